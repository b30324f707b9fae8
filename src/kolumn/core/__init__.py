"""What every folder may import: errors, types of arrays, columns and parameters, Arrow's buffers and texts."""
