"""Triton kernels, one file for each function of `unsmooth.training.fast` that launches them."""
