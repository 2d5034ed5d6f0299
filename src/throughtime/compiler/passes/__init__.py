"""Rewrites and analyses, one module each."""
