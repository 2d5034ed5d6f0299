"""Attention over a memory."""
