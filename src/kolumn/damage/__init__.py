"""What is wrong with an entry, in words, and what a read left out."""
