"""Damage: how it is found and said, what follows it, and what the end of a segment means."""
