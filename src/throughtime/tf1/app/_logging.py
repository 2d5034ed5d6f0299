"""`tf.logging`: TensorFlow's levels and lines, on Python's logger "tensorflow"."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from functools import cache
from typing import Any

DEBUG, INFO, WARN, ERROR, FATAL = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL
_counts: Counter[tuple[int, str]] = Counter()


class _Stderr(logging.StreamHandler[Any]):
    """Lines go where standard error leads now: notebooks and tests replace it."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


@cache
def _logger() -> logging.Logger:
    logger = logging.getLogger("tensorflow")
    logger.setLevel(WARN)
    # A program that has set up logging of its own gets the lines there.
    if not logging.getLogger().handlers:
        handler = _Stderr()
        handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        logger.addHandler(handler)
        logger.propagate = False
    return logger


def get_logger() -> logging.Logger:
    """Python's logger behind these functions."""
    return _logger()


def log(level: int, msg: Any, *args: Any, **extra: Any) -> None:
    """Write a line of a level."""
    _logger().log(level, msg, *args, **extra)


def debug(msg: Any, *args: Any, **extra: Any) -> None:
    """Write a line of level DEBUG."""
    log(DEBUG, msg, *args, **extra)


def info(msg: Any, *args: Any, **extra: Any) -> None:
    """Write a line of level INFO."""
    log(INFO, msg, *args, **extra)


def warn(msg: Any, *args: Any, **extra: Any) -> None:
    """Write a line of level WARN."""
    log(WARN, msg, *args, **extra)


def error(msg: Any, *args: Any, **extra: Any) -> None:
    """Write a line of level ERROR."""
    log(ERROR, msg, *args, **extra)


def fatal(msg: Any, *args: Any, **extra: Any) -> None:
    """Write a line of level FATAL; the program goes on."""
    log(FATAL, msg, *args, **extra)


def vlog(level: int, msg: Any, *args: Any, **extra: Any) -> None:
    """Write a line of a level."""
    log(level, msg, *args, **extra)


def flush() -> None:
    """Write what is buffered."""
    for handler in _logger().handlers:
        handler.flush()


def set_verbosity(v: int | str) -> None:
    """Write lines of this level and above."""
    _logger().setLevel(v)


def get_verbosity() -> int:
    """The level from which lines are written."""
    return _logger().getEffectiveLevel()


def log_if(level: int, msg: Any, condition: Any, *args: Any) -> None:
    """Write a line if a condition holds."""
    if condition:
        log(level, msg, *args)


def log_first_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Write a line at its first `n` calls only."""
    if _count(level, msg) <= n:
        log(level, msg, *args)


def log_every_n(level: int, msg: Any, n: int, *args: Any) -> None:
    """Write a line at every `n`-th call, beginning with the first."""
    if (_count(level, msg) - 1) % n == 0:
        log(level, msg, *args)


def _count(level: int, msg: Any) -> int:
    _counts[level, str(msg)] += 1
    return _counts[level, str(msg)]
