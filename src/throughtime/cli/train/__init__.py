"""`throughtime train`: from a file of sequences to a model and a report."""

from throughtime.cli.train._command import train

__all__ = ["train"]
