"""What the compilers for the CPU and for CUDA share: scalar functions, and the folder that keeps compiled code."""
