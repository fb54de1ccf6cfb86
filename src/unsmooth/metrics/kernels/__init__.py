"""Kernels for a GPU, compiled when they are first needed."""
