"""The pipeline on the CPU: compiled loops over the scalar functions of `kolumn.formats`, and Arrow at the end of it."""
