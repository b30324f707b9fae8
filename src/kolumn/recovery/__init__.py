"""After damage: the next intact entries, how far the log goes, and files that are not log segments."""
