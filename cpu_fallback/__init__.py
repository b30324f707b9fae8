"""The pipeline on the CPU: compiled loops over the scalar functions of `kolumn.formats`, and the memory of Arrow columns."""
