"""JSON values as columns: a loop for what it is sure of, Arrow's reader for the rest."""
