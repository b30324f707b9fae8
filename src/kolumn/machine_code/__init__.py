"""Shared by the compilers for the CPU and for CUDA: scalar functions, and the folder that stores compiled code."""
