"""Several copies of one partition become one log: leader epochs decide which entries belong to it, and markers which records were aborted."""
