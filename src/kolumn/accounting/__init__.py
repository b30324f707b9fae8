"""What the bytes of a log are used for: `anatomy` counts them, `formats` writes them in every format, `draft_table` is KIP-98's table."""
