"""A page about a log: what is in it, whether it is healthy, and where its bytes go."""
