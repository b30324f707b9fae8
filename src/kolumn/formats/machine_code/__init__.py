"""What the compilers for the CPU and for CUDA share."""
