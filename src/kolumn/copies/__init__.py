"""Several copies of one partition become one log: leader epochs decide which entries belong to it, markers what a transaction became."""
