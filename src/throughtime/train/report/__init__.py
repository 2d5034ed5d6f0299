"""The report of a run: one HTML file that needs nothing else."""

from throughtime.train.report._report import Report

__all__ = ["Report"]
