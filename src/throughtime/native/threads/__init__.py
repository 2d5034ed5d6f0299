"""Parallel regions in torch's own OpenMP runtime, and what threads synchronise with."""
