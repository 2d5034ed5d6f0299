"""What `test_cli_workers.py` runs, alone and under torchrun: commands, and a copy of each new run on its way."""

from __future__ import annotations

import json
import shutil
import sys

import throughtime as tt
from throughtime.cli import main

ON_ITS_WAY = 8


class Copying(tt.train.Progress):
    """Copies a new run after some epochs: what a kill at that moment would leave behind."""

    def epoch(self, epoch: tt.train.Epoch) -> None:
        super().epoch(epoch)
        if epoch.number == ON_ITS_WAY and "--out" in sys.argv:
            folder = sys.argv[sys.argv.index("--out") + 1]
            shutil.copytree(folder, f"{folder}, begun")


def run(arguments: list[str]) -> None:
    """A command line, which must end well."""
    before = sys.argv, tt.train.Progress
    sys.argv, tt.train.Progress = ["throughtime", *arguments], Copying
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv, tt.train.Progress = before


if __name__ == "__main__":
    # Processes can meet but once, so that all commands share a meeting; a command alone has its own.
    with tt.train.workers() as worker:
        assert worker.size == 2
        for line in json.loads(sys.argv[1]):
            run(line)
