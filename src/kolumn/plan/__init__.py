"""Which bytes of which segments a read needs, and where they are cut into chunks. Reads headers only."""
