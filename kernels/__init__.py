"""The room of all that touches CUDA. This version has no kernels: `kolumn.backend` says so to whoever asks for that backend."""
