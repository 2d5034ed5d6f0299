"""Batches of sequences of like length."""
