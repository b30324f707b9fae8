"""Below the stages: devices, memory, kernels as machine code, nvCOMP."""
