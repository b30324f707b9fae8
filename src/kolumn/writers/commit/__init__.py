"""Files appear complete or not at all: they are staged, synced and renamed, and cleaned up after a run that was killed."""
