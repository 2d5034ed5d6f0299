"""Records what TensorFlow 1.15 answers to the cases of `tests/tf1/cases` (run with its Python 3.7).

    python3.7 tools/record_tf1.py [family …]

Writes `tests/tf1/goldens/<family>.jsonl` and `.npz`. A second recording on the same machine gives the same answers.
"""

import importlib
import os
import sys
import warnings
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.filterwarnings("ignore")

import tensorflow as tf  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "tf1"))

from cases import case as case_module  # noqa: E402
from cases import families, golden, harness  # noqa: E402

GOLDENS = ROOT / "tests" / "tf1" / "goldens"


def record(family):
    """Record one family; returns the numbers of cases and of failures."""
    case_module.CASES.clear()
    importlib.import_module("cases." + family)
    writer, failures = golden.Writer(), 0
    for case in case_module.CASES.values():
        try:
            writer.add(case.name, answers(case))
        except Exception as error:
            failures += 1
            print("%s: %s: %s" % (case.name, type(error).__name__, str(error)[:400]))
    writer.save(GOLDENS / family)
    return len(case_module.CASES), failures


def answers(case):
    """What TensorFlow answers to a case."""
    made = harness.run(tf, case)
    if case.shapes:
        made["variants"] = {name: harness.static_shapes(tf, case, name) for name in ("batch", "dims", "rank")}
    return made


def main():
    tf.compat.v1.logging.set_verbosity("ERROR")
    GOLDENS.mkdir(exist_ok=True)
    total = 0
    for family in sys.argv[1:] or families.FAMILIES:
        count, failures = record(family)
        total += count
        print("%s: %d cases, %d failed" % (family, count, failures))
    print("%d cases" % total)


if __name__ == "__main__":
    main()
