"""`throughtime run` and `python -m throughtime.tf1`: programs that import tensorflow, as they stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from throughtime.tf1._run_program import ProgramError, run_program

pytestmark = pytest.mark.covers("tf1")

PROGRAM = '''
"""A program."""
import os, sys
import tensorflow as tf
import tensorflow.contrib.layers as layers
import beside
from tensorflow.contrib import rnn, nothing_like_it
from tensorflow.python.framework import ops
from tensorflow.python.ops import math_ops, rnn_cell
from tensorflow.python.ops.rnn_cell_impl import _Linear as linear
from tensorflow.python.platform import gfile

tf.app.flags.DEFINE_integer("count", 1, "How many.")
FLAGS = tf.app.flags.FLAGS

def main(argv):
    assert rnn.BasicLSTMCell is tf.contrib.rnn.BasicLSTMCell
    assert math_ops.matmul is tf.matmul and ops.Tensor is tf.Tensor and gfile.GFile is tf.gfile.GFile
    assert layers.fully_connected is tf.contrib.layers.fully_connected
    x = tf.placeholder(tf.float32, [None, 2])
    with tf.Session() as session:
        print(session.run(tf.reduce_sum(x), {x: [[1, 2]] * FLAGS.count}), argv[1:], beside.VALUE, __name__)
        folder = os.path.dirname(os.path.abspath(__file__))
        print(os.path.basename(sys.argv[0]), os.path.basename(__file__), sys.path[0] == folder)
        if FLAGS.count == 2:
            session.run(tf.reduce_sum(x), {x: [[1.0]]})
        if FLAGS.count == 3:
            nothing_like_it.function(1)
    return 7

if __name__ == "__main__":
    tf.app.run()
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "beside.py").write_text("VALUE = 'beside'\n")
    return tmp_path


def run(*words: str | Path, way: str = "throughtime.tf1") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", way, *(["run"] if way == "throughtime" else []), *map(str, words)]
    environment = {**os.environ, "COLUMNS": "300", "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("way", ["throughtime.tf1", "throughtime"])
def test_a_program_as_it_stands(folder: Path, way: str) -> None:
    done = run(folder / "program.py", "--count=4", "--other", "word", way=way)
    assert done.stdout.splitlines() == ["12.0 ['--other', 'word'] beside __main__", "program.py program.py True"]
    assert done.returncode == 7
    assert done.stderr.count("\n") == 1
    assert "`tensorflow` is throughtime.tf1 in this process" in done.stderr


def test_tracebacks_show_the_program_alone(folder: Path) -> None:
    done = run(folder / "program.py", "--count=2")
    assert done.returncode == 1
    assert "ValueError: Cannot feed value of shape (1, 1)" in done.stderr
    assert 'program.py", line' in done.stderr
    assert "site-packages" not in done.stderr
    assert "src/throughtime" not in done.stderr


def test_what_is_missing_says_so_when_it_is_used(folder: Path) -> None:
    done = run(folder / "program.py", "--count=3")
    assert done.returncode == 1
    assert "NotImplementedError: module 'tf' has no attribute 'contrib.nothing_like_it.function'" in done.stderr


def test_a_notebook(tmp_path: Path) -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title"]},
        {"cell_type": "code", "source": ["%matplotlib inline\n", "import tensorflow as tf\n", "!pip list"]},
        {"cell_type": "code", "source": ["%%bash\n", "exit 1"]},
        {
            "cell_type": "code",
            "source": ["if True:\n", "    %time\n", "with tf.Session() as s:\n", "    print(s.run(tf.constant(3)))"],
        },
        {"cell_type": "code", "source": "tf.constant([1.0]) + tf.constant([1.0, 2.0, 3.0][:0])"},
        {"cell_type": "code", "source": "raise ValueError('here')"},
    ]
    (tmp_path / "book.ipynb").write_text(json.dumps({"cells": cells, "nbformat": 4}))
    done = run(tmp_path / "book.ipynb")
    assert done.stdout == "3\n"
    assert "left out 4 magics and shell lines of book.ipynb" in done.stderr
    assert "book.ipynb[cell" in done.stderr
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("old.py", 'import tensorflow as tf\nprint "hello"\n', 'is written in Python 2: got line 2: print "hello"'),
        ("old.py", "try:\n    pass\nexcept ValueError, e:\n    pass\n", "is written in Python 2: got line 3"),
        ("wrong.py", "def f(:\n", "is not a Python program: got invalid syntax in line 1"),
        ("book.ipynb", "{}{", "book.ipynb cannot be read"),
        ("", "", "there is no such program"),
    ],
)
def test_what_cannot_be_run(tmp_path: Path, name: str, text: str, words: str) -> None:
    if name:
        (tmp_path / name).write_text(text)
    with pytest.raises(ProgramError) as error:
        run_program(str(tmp_path / (name or "missing.py")))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("way", ["throughtime.tf1", "throughtime"])
def test_a_program_of_python_2_gets_one_line(tmp_path: Path, way: str) -> None:
    (tmp_path / "old.py").write_text('print "hello"\n')
    done = run(tmp_path / "old.py", way=way)
    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1


def test_the_hook_is_of_this_process_only() -> None:
    code = "import throughtime.tf1, sys; assert 'tensorflow' not in sys.modules; import tensorflow"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: No module named 'tensorflow'" in done.stderr
