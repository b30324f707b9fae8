"""What every folder may import: errors, types of arrays, columns and parameters, Arrow's buffers and texts; how functions are registered
for machine code, and where that is kept.
"""
