"""The room of the GPU kernels. This version has none: `kolumn.backend` says so to whoever asks for one."""
