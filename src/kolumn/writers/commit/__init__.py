"""Files appear complete or not at all: they are staged, synced and renamed, and cleaned up after a run that was killed.

Decisions:

* A killed run is completed, or has changed nothing. When all files are staged, a journal is written, and files get their names one
  after the other until it is removed. Object stores have no locks, so nobody can say that a run is dead there. But two runs may carry
  out the same journal at once, since each step can be repeated: a staged file gets its name, or already has it; a replaced file is
  removed, or already gone. Undoing would need to know that the owner is dead. On this machine a lock tells that, so staged files
  without a journal need not become a day old before they are removed; a second protocol that undoes would buy nothing else. A run that
  fails, or that Spark aborts, does know that it is over, and takes its names back. If old files were replaced, the commit goes on to
  the end instead, because they are not kept. pyarrow has no put-if-absent: at a URL a second writer is found by names, offsets and
  manifests, in all but a window.
* Nobody can hold a lock for a Spark job. `df.write` runs our code in Python workers that end before the job does. So its staging folder
  names a process: the JVM above the worker, with the time of its start, the boot and the namespace. On another machine age decides.
"""
