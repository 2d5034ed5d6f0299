"""Records what the programs of `tests/tf1/programs` give on TensorFlow 1.15 (run with its Python 3.7).

    python3.7 tools/record_tf1_programs.py [module …]

Writes `tests/tf1/goldens/programs_<module>.npz` and `.json`.
"""

import importlib
import json
import os
import sys
import warnings
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
warnings.filterwarnings("ignore")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "tf1"))

from programs.answers import programs_of, split  # noqa: E402

MODULES = ("recurrence", "functions", "graphs", "sessions", "seq2seq")


def record(module):
    numbers, words = {}, {}
    for name, program in programs_of(importlib.import_module("programs." + module)).items():
        tf.compat.v1.reset_default_graph()
        found = split(name, program(tf))
        numbers.update(found[0])
        words.update(found[1])
    place = ROOT / "tests" / "tf1" / "goldens" / ("programs_" + module)
    np.savez_compressed(str(place) + ".npz", **numbers)
    Path(str(place) + ".json").write_text(json.dumps(words, indent=0, sort_keys=True) + "\n")
    print(f"{module}: {len(numbers)} numbers, {len(words)} words")


def main():
    tf.compat.v1.logging.set_verbosity("ERROR")
    for module in sys.argv[1:] or MODULES:
        record(module)


if __name__ == "__main__":
    main()
