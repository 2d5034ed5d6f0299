"""The pictures of the report as functions, for notebooks: each returns a matplotlib figure."""

from throughtime.train.plots._curves import cost, forecast, learning, lengths
from throughtime.train.plots._heatmaps import attention, confusion, through_time

__all__ = ["attention", "confusion", "cost", "forecast", "learning", "lengths", "through_time"]
