"""Where the bytes of a log go: `anatomy` takes entries apart, `formats` writes them in every format, `draft_table` is KIP-98's own sum."""
