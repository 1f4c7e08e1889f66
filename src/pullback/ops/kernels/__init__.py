"""Kernels: C for the CPU and Triton for CUDA, each with a fallback in torch that gives the same numbers."""
