"""Write the tables of the documentation from the newest benchmark results; nobody types them.

A page says where with a pair of comments, `<!-- table: NAME -->` and `<!-- end -->`, and NAME is that of a benchmark.

    python tools/tables.py [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "docs" / "memory.md", ROOT / "docs" / "speed.md")
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def newest(name: str) -> dict[str, Any]:
    """The latest results of a benchmark; their file names begin with the date."""
    files = sorted((ROOT / "benchmarks" / "results").glob(f"*-{name}.json"))
    if not files:
        sys.exit(f"no results of the benchmark {name!r} in benchmarks/results/: run `make bench` first")
    content: dict[str, Any] = json.loads(files[-1].read_text())
    return content


def swap_memory(content: dict[str, Any]) -> str:
    """Peak and time of every way to run a training step, beside those of the plain one."""
    about = content["machine"]
    lines = [
        "| network and batch | way | peak MiB | of plain | ms a step | of plain |",
        "|---|---|---:|---:|---:|---:|",
    ]
    results = content["results"]
    plain = {row["case"]: row for row in results if row["way"] == "plain"}
    for row in results:
        first, shape = plain[row["case"]], row["shape"]
        case = f"{row['case']}, B{shape['B']} T{shape['T']} I{shape['I']}" if row is first else ""
        peak, time = row["peak_mib"] / first["peak_mib"], row["median_ms"] / first["median_ms"]
        lines.append(
            f"| {case} | {row['way']} | {row['peak_mib']:.0f} | {peak:.2f} | {row['median_ms']:.0f} | {time:.2f} |"
        )
    versions = about["versions"]
    return "\n".join([*lines, "", f"{about['gpu']}, torch {versions['torch']}, {content['date']}. Medians.", ""])


def reference(content: dict[str, Any]) -> str:
    """Times of the reference loop beside those of torch.nn; a ratio above 1 means that torch is faster."""
    about = content["machine"]
    lines = ["| cell and batch | lengths | mode | reference ms | torch ms | ratio |", "|---|---|---|---:|---:|---:|"]
    for row in content["results"]:
        shape = " ".join(f"{letter}{size}" for letter, size in row["shape"].items())
        ours, theirs = row["throughtime"]["median_ms"], row["torch"]["median_ms"]
        case = f"{row['cell']}, {shape} | {row['lengths']} | {row['mode']}"
        lines.append(f"| {case} | {ours:.1f} | {theirs:.1f} | {row['ratio']:.1f} |")
    processor, threads = about["processor"], about["threads"]
    note = f"{processor}, {threads} threads, torch {about['versions']['torch']}, {content['date']}. Medians."
    return "\n".join([*lines, "", note, ""])


TABLES = {"swap-memory": swap_memory, "reference": reference}


def rewritten(text: str) -> str:
    """A page with every table made anew."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        return f"{match[1]}\n{TABLES[name](newest(name))}\n{match[3]}"

    return BLOCK.sub(table, text)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the tables of the documentation from benchmark results.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a table is out of date")
    check = parser.parse_args().check
    stale = []
    for page in PAGES:
        text = page.read_text()
        if rewritten(text) != text:
            stale.append(page.relative_to(ROOT).as_posix())
            if not check:
                page.write_text(rewritten(text))
    if check and stale:
        sys.exit(f"out of date: {', '.join(stale)}; run `python tools/tables.py`")
    print("tables up to date" if check or not stale else f"rewritten: {', '.join(stale)}")


if __name__ == "__main__":
    main()
