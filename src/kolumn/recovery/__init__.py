"""What follows damage: the next intact entries, the end of a segment, files that are no log segments."""
