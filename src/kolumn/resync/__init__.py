"""The search after damage: finds the next intact entries and the extent of the log, and recognises files that are not log segments."""
