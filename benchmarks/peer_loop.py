"""The inside of a peer: a process of its own that loads a case and times it, a line of JSON at a time.

    {"load": {...}, "arrays": FILE}   ->  {"answers": FILE}      load a case, run it once, leave what it gave
    {"run": 3}                        ->  {"seconds": [...]}     time three calls
    anything that fails               ->  {"error": "..."}

It runs with the interpreter of the peer, which has numpy, but neither torch nor this package.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, Any]


class Loaded(NamedTuple):
    """What to time, and what it gives: to be compared before anything is timed."""

    run: Callable[[], object]
    answers: Arrays


Load = Callable[[dict[str, Any], Arrays], Loaded]


def serve(version: str, load: Load) -> None:
    """Answer the lines on standard input until it ends; the first line out is the version of the peer."""
    # Libraries print what they like: theirs goes to standard error, and the channel stays ours.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: dict[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    say({"version": version})
    loaded: Loaded | None = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if "load" in message:
                # The one before is let go first: two may not fit.
                loaded = None
                loaded = _loaded(load, message)
                say({"answers": _write(loaded.answers, Path(message["arrays"]))})
            else:
                assert loaded is not None, "nothing is loaded"
                say({"seconds": [_seconds(loaded.run) for _ in range(message["run"])]})
        except Exception:
            say({"error": traceback.format_exc()})


def _loaded(load: Load, message: dict[str, Any]) -> Loaded:
    with np.load(message["arrays"]) as arrays:
        return load(message["load"], dict(arrays))


def _write(answers: Arrays, beside: Path) -> str:
    path = beside.with_name("answers.npz")
    np.savez(path, **answers)
    return str(path)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
