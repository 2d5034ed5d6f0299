"""Recurrence: cells and unrolls, each unroll one operation on the engine."""
