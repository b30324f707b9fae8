"""Files appear complete or not at all: they are staged, synced and renamed, and cleaned up after a run that was killed.

* A killed run is completed, or has changed nothing: when all files are staged, a journal is written, and files get their names one after
  the other until it is removed. Object stores have no locks, so nobody can say that a run is dead there, and two runs may carry out the
  same journal at once: each step can be repeated. On this machine a lock tells that a run is dead, so staged files without a journal need
  not become a day old before they are removed. A run that fails, or that Spark aborts, takes its names back, unless old files were
  replaced, which are not kept. pyarrow has no put-if-absent: at a URL a second writer is found by names and offsets, in all but a
  window.
* Nobody can hold a lock for a Spark job, since Python workers end before the job does. So its staging folder names a process: the JVM above
  the worker, with the time of its start, the boot and the namespace. On another machine age decides.
"""
