"""What is left of damaged copies becomes a folder that a broker starts on: `chosen` decides which entries, `files` writes them."""
