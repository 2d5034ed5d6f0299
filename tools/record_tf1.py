"""Records what TensorFlow 1.15 answers to the cases of `tests/tf1/cases` (run with its Python 3.7).

    python3.7 tools/record_tf1.py [family …]

Writes `tests/tf1/goldens/<family>.jsonl` and `.npz`. A second recording on the same machine gives the same answers.
"""

import importlib
import inspect
import json
import os
import sys
import types
import warnings
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.filterwarnings("ignore")

import tensorflow as tf  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "tf1"))

from cases import case as case_module  # type: ignore[import-not-found] # noqa: E402
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


NAMESPACES = (
    "", "app", "bitwise", "compat", "contrib.framework", "contrib.layers", "contrib.rnn", "contrib.seq2seq", "data",
    "debugging", "dtypes", "errors", "flags", "gfile", "graph_util", "image", "initializers", "io", "layers", "linalg",
    "logging", "losses", "manip", "math", "metrics", "nn", "nn.rnn_cell", "python_io", "quantization", "queue",
    "random",
    "sets", "signal", "sparse", "spectral", "strings", "summary", "test", "train",
)  # fmt: skip


def surface():
    """Every public function and class of these namespaces, with its parameters in order."""
    found = {}
    for space in NAMESPACES:
        module = families.function(tf, space) if space else tf
        for name in dir(module):
            value = getattr(module, name, None)
            if not name.startswith("_") and callable(value) and not isinstance(value, types.ModuleType):
                found[space + "." + name if space else name] = parameters(value)
    return found


def parameters(function):
    """The names of a function's parameters; None for a class."""
    try:
        return None if inspect.isclass(function) else [str(one) for one in inspect.signature(function).parameters]
    except (TypeError, ValueError):
        return None


def main():
    tf.compat.v1.logging.set_verbosity("ERROR")
    GOLDENS.mkdir(exist_ok=True)
    total = 0
    for family in sys.argv[1:] or families.FAMILIES:
        count, failures = record(family)
        total += count
        print("%s: %d cases, %d failed" % (family, count, failures))
    print("%d cases" % total)
    if not sys.argv[1:]:
        (GOLDENS / "surface.json").write_text(json.dumps(surface(), separators=(",", ":"), sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
