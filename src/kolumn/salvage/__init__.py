"""What is left of damaged copies becomes a folder that a broker starts on: `runs` are the entries that are kept, `files` writes them."""
