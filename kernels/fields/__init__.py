"""Stage 4 on a GPU: where each record begins, and its fields."""
