"""What `test_folder_lock.py` starts and kills: a process that holds a folder, and a forked child that outlives it."""

from __future__ import annotations

import multiprocessing
import sys
import time
from pathlib import Path

from throughtime.train._folder_lock import locked


def main(folder: Path) -> None:
    with locked(folder):
        # As a DataLoader starts its workers on Linux.
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
        child.start()
        print(child.pid, flush=True)
        time.sleep(60)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
