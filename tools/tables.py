"""Write the tables of the documentation from the newest benchmark results.

A page says where with a pair of comments, `<!-- table: NAME -->` and `<!-- end -->`. NAME is that of a benchmark, or
`goals` for one table of all goals and what was reached, `headline` for the few of them that the README shows.

    python tools/tables.py [--check]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

# The benchmarks say how their results are laid out; they do so without torch.
sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from goals import GOALS, of_row, shown, word
from layouts import BUSY, LAYOUTS

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGES = (ROOT / "README.md", ROOT / "docs" / "memory.md", ROOT / "docs" / "speed.md")
BLOCK = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# Wins and misses alike, on both kinds of processor.
HEADLINE = (
    "training, dense, against torch.nn",
    "training, variable length, against torch packed",
    "inference, against the faster of torch and ONNX Runtime",
    "models of published packages, training",
    "minimal gated unit, against its eager loop",
    "training, against TensorFlow's dynamic_rnn",
    "training float32 and bfloat16, against cuDNN",
    "minimal gated unit, on a GPU, against its eager loop",
)
UNMEASURED = "Not measured yet: `make bench` does.\n"


def newest(name: str) -> dict[str, Any] | None:
    """The latest results of a benchmark, whose file names begin with the date; None where there are none."""
    files = sorted(path for path in RESULTS.glob("*.json") if path.stem[len("2000-01-01-") :] == name)
    content: dict[str, Any] | None = json.loads(files[-1].read_text()) if files else None
    return content


def markdown(headings: list[str], numeric: list[bool], rows: list[list[str]]) -> list[str]:
    rule = "|".join("---:" if number else "---" for number in numeric)
    return [f"| {' | '.join(headings)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def machine_line(content: dict[str, Any]) -> str:
    """Where and with what it was measured."""
    about, on_gpu = content["machine"], content["benchmark"].startswith(("gpu-", "swap-"))
    where = about["gpu"] if on_gpu else f"{about['processor']}, {about['threads']} threads"
    peers = {"torch": about["versions"]["torch"], **content.get("peers", {})}
    versions = ", ".join(f"{name} {version or 'not installed'}" for name, version in peers.items())
    busy = content.get("busy_before") or 0
    shared = f" Others used {busy:.0%} of the machine." if busy > BUSY else ""
    return f"{where}, {versions}, {content['date']}. Medians.{shared}"


def suite(name: str, content: dict[str, Any]) -> str:
    """All results of a suite, the goals that a single one has, and below them those of all together."""
    layout, goals = LAYOUTS[name], content.get("goals", [])
    rows = [[column.text(row) for column in layout.columns] for row in content["results"]]
    headings, numeric = [column.heading for column in layout.columns], [column.numeric for column in layout.columns]
    # A column without a word would only say that no single result has a goal.
    verdicts = [of_row(row, goals) for row in content["results"]]
    if any(verdicts):
        rows = [[*row, verdict] for row, verdict in zip(rows, verdicts, strict=True)]
        headings, numeric = [*headings, "goal"], [*numeric, False]
    lines = [*([layout.note, ""] if layout.note else []), *markdown(headings, numeric, rows), ""]
    lines += [f"* {sentence(goal)}" for goal in goals]
    return "\n".join([*lines, *([""] if goals else []), machine_line(content), ""])


def sentence(goal: dict[str, Any]) -> str:
    reached = f"{goal['statistic']} {shown(goal, goal['got'])}"
    return f"**{word(goal['met'])}**: {goal['what']}: {reached}, goal {goal['sign']} {shown(goal, goal['bound'])}"


def all_goals(only: tuple[str, ...] = ()) -> str:
    """One line a goal, or for each of `only`: what was to be reached, what was, and whether that is enough."""
    rows, where = [], set()
    for name, wanted in GOALS.items():
        content = newest(name)
        goals = content.get("goals", []) if content else [goal.verdict([]) for goal in wanted]
        goals = [goal for goal in goals if not only or goal["what"] in only]
        if content and goals:
            where.add(machine_line({**content, "peers": {}}))
        for what in dict.fromkeys(goal["what"] for goal in goals):
            same = [goal for goal in goals if goal["what"] == what]
            asked = [f"{goal['statistic']} {goal['sign']} {shown(goal, goal['bound'])}" for goal in same]
            reached = [shown(goal, goal["got"]) for goal in same] if content else []
            verdict = combined([goal["met"] for goal in same])
            rows.append([what, ", ".join(dict.fromkeys(asked)), ", ".join(reached), verdict])
    lines = markdown(["what", "goal", "reached", ""], [False] * 4, rows)
    return "\n".join([*lines, *(f"\n{line}" for line in sorted(where)), ""])


def combined(met: list[bool | None]) -> str:
    """Goals of one line count as met together."""
    return word(False) if False in met else word(None) if None in met else word(True)


def swap_memory(content: dict[str, Any]) -> str:
    """Peak and time of every way to run a training step, beside those of the plain one."""
    rows, results = [], content["results"]
    plain = {row["case"]: row for row in results if row["way"] == "plain"}
    for row in results:
        first, shape = plain[row["case"]], row["shape"]
        case = f"{row['case']}, B{shape['B']} T{shape['T']} I{shape['I']}" if row is first else ""
        peak, time = row["peak_mib"] / first["peak_mib"], row["median_ms"] / first["median_ms"]
        rows.append(
            [case, row["way"], f"{row['peak_mib']:.0f}", f"{peak:.2f}", f"{row['median_ms']:.0f}", f"{time:.2f}"]
        )
    headings = ["network and batch", "way", "peak MiB", "of plain", "ms a step", "of plain"]
    return "\n".join([*markdown(headings, [False, False, True, True, True, True], rows), "", machine_line(content), ""])


def table(name: str) -> str:
    """The table of that name, made anew; `NAME-on-16-threads` has what NAME gave on another machine."""
    if name == "goals":
        return all_goals()
    if name == "headline":
        return all_goals(HEADLINE)
    what = name.partition("-on-")[0]
    if what != "swap-memory" and what not in LAYOUTS:
        sys.exit(f"got a table {name!r}, expected one of: {', '.join(['goals', 'headline', 'swap-memory', *LAYOUTS])}")
    content = newest(name)
    if content is None:
        return UNMEASURED
    return swap_memory(content) if what == "swap-memory" else suite(what, content)


def rewritten(text: str) -> str:
    """A page with every table made anew."""
    return BLOCK.sub(lambda match: f"{match[1]}\n{table(match['name'])}\n{match[3]}", text)


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
