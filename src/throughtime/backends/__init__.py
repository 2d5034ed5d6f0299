"""Backends: the loop over time on the reference, torch operations, CPU kernels and GPU kernels."""
