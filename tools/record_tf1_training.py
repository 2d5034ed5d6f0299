"""Record what TensorFlow 1.15 computes for the programs of `tests/support/tf1_*programs.py`.

    PYTHON_WITH_TF_1_15 tools/record_tf1_training.py [NAME ...]

writes `tests/tf1/goldens/training.npz`; with names, only programs whose names begin so are recorded anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
GOLDENS = ROOT / "tests" / "tf1" / "goldens" / "training.npz"


CHECKPOINTS = ROOT / "tests" / "tf1" / "goldens" / "checkpoint"


def record_checkpoint(tf):
    """Save a model after ten steps, and what its variables are after five more."""
    from tf1_programs import named, trained_between, training  # noqa: PLC0415

    tf.reset_default_graph()
    x, train = training(tf)
    CHECKPOINTS.mkdir(exist_ok=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        trained_between(session, train, x, 0, 10)
        tf.train.Saver().save(session, str(CHECKPOINTS / "model"), global_step=10, write_meta_graph=False)
        trained_between(session, train, x, 10, 15)
        np.savez_compressed(str(CHECKPOINTS / "after.npz"), **named(tf, session))
    # The folder is known to the reader: paths are relative.
    text = 'model_checkpoint_path: "model-10"\nall_model_checkpoint_paths: "model-10"\n'
    (CHECKPOINTS / "checkpoint").write_text(text)


def main(wanted):
    import tensorflow as tf  # noqa: PLC0415

    from tf1_layer_programs import PROGRAMS  # noqa: PLC0415

    tf.logging.set_verbosity(tf.logging.ERROR)
    arrays = dict(np.load(str(GOLDENS))) if wanted else {}
    for name, program in sorted(PROGRAMS.items()):
        if wanted and not name.startswith(tuple(wanted)):
            continue
        tf.reset_default_graph()
        arrays = {key: value for key, value in arrays.items() if not key.startswith(name + "|")}
        found = program(tf)
        arrays.update({f"{name}|{key}": np.asarray(value) for key, value in found.items()})
        print(name, len(found))
    np.savez_compressed(str(GOLDENS), **arrays)
    if not wanted or "checkpoint" in wanted:
        record_checkpoint(tf)


if __name__ == "__main__":
    main(sys.argv[1:])
