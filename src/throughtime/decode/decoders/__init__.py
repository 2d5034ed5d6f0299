"""Decoders: greedy and sampled, beam search."""
