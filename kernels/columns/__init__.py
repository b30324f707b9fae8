"""Stage 5 on a GPU: columns, and which rows are kept."""
