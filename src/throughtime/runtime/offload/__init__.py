"""Saved values in host memory: what to offload, the transfers, and what is recomputed instead."""
