"""Files appear whole or not at all: staged, synced, renamed, and cleaned up after a run that was killed."""
