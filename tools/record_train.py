"""Record `throughtime train` on its embedded data, as a terminal shows it, and take a picture of its report.

python tools/record_train.py [--save LOG] [--picture PNG]
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from tables import ROOT

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH, HEIGHT, SCALE = 1100, 1150, 1.5
OTHER_SEEDS = (1, 2, 3, 4)


def train(folder: Path, seed: int = 0) -> tuple[str, float]:
    """What a terminal of 80 columns shows of a run, and the seconds from start to report."""
    command = [sys.executable, "-m", "throughtime", "train", *(["--seed", str(seed)] if seed else [])]
    paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
    begin = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, time.perf_counter() - begin


def headline(told: str) -> str:
    """The sentence that a run ends with: the line before that of the report."""
    lines = told.splitlines()
    return lines[next(place for place, line in enumerate(lines) if line.startswith("Report: ")) - 1]


def take_picture(page: Path, picture: Path) -> None:
    """The first part of a page, as a browser shows it."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("There is no chromium here: `make browser` installs it.")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                f"--window-size={WIDTH},{HEIGHT}",
                f"--force-device-scale-factor={SCALE}",
                "--virtual-time-budget=5000",
                f"--screenshot={picture.absolute()}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=120,
        )


def main() -> None:
    """Train with five seeds, write the log, take the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    today = dt.datetime.now(dt.UTC).date()
    results, pictures = ROOT / "benchmarks" / "results", ROOT / "docs" / "pictures"
    parser.add_argument("--save", type=Path, default=results / f"{today}-train-japanese-vowels.txt")
    parser.add_argument("--picture", type=Path, default=pictures / "report.png")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, seconds = train(Path(folder))
        take_picture(Path(folder) / "runs" / "japanese_vowels" / "report.html", asked.picture)
        others = [headline(train(Path(folder), seed)[0]) for seed in OTHER_SEEDS]
    asked.save.write_text(
        f"# throughtime train, no flags: Japanese Vowels, embedded. {today}, {os.cpu_count()} cores, "
        f"torch {torch.__version__.split('+')[0]}, Python {platform.python_version()}.\n"
        f"$ throughtime train\n{first}{seconds:.2f} s from start to report\n\n"
        f"# Another seed each: the headlines.\n$ for seed in {' '.join(map(str, OTHER_SEEDS))}; "
        f"do throughtime train --seed $seed; done\n" + "".join(f"{line}\n" for line in others),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
