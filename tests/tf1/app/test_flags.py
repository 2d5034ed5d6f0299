"""`tf.app.flags`, `tf.app.run` and `tf.logging`, as programs use them."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest

import throughtime.tf1 as tf
from throughtime.tf1.app import _define as define
from throughtime.tf1.app import _logging
from throughtime.tf1.app._flags import FlagValues

pytestmark = pytest.mark.covers("tf1")


@pytest.fixture
def flags() -> FlagValues:
    found = FlagValues()
    define.define_string("data_dir", "/tmp", "Where data are.", found)
    define.define_integer("epochs", 3, "How often.", found)
    define.define_float("rate", 0.5, "How fast.", found)
    define.define_boolean("verbose", False, "Say more.", found)
    define.define_list("layers", ["1"], "Sizes.", found)
    define.define_multi_string("name", None, "Names.", found)
    define.define_enum("cell", "lstm", ["lstm", "gru"], "Which.", found)
    return found


@pytest.mark.parametrize(
    ("words", "values", "left"),
    [
        (["--epochs=5", "rest"], {"epochs": 5}, ["rest"]),
        (["--epochs", "7", "-rate", "1e-3"], {"epochs": 7, "rate": 0.001}, []),
        (["--verbose", "x"], {"verbose": True}, ["x"]),
        (["--noverbose"], {"verbose": False}, []),
        (["--verbose=true"], {"verbose": True}, []),
        (["--verbose=0"], {"verbose": False}, []),
        (["--data_dir="], {"data_dir": ""}, []),
        (["--data-dir=x"], {"data_dir": "x"}, []),
        (["--layers=1,2, 3"], {"layers": ["1", "2", "3"]}, []),
        (["--name=a", "--name=b"], {"name": ["a", "b"]}, []),
        (["--cell=gru"], {"cell": "gru"}, []),
        (["a", "--", "--epochs=5"], {"epochs": 3}, ["a", "--epochs=5"]),
        (["-"], {}, ["-"]),
        (["--epochs=-2"], {"epochs": -2}, []),
    ],
)
def test_command_lines(flags: FlagValues, words: list[str], values: dict[str, Any], left: list[str]) -> None:
    assert flags(["program", *words]) == ["program", *left]
    assert {name: getattr(flags, name) for name in values} == values


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epoch=5"], "Unknown command line flag 'epoch'. Did you mean: epochs ?"),
        (["--epochs=many"], "got 'many', expected an int"),
        (["--epochs"], "Missing value for flag --epochs"),
        (["--verbose=maybe"], "got 'maybe', expected bool"),
        (["--cell=rnn"], "got 'rnn', expected one of lstm, gru"),
        (["--noepochs"], "Unknown command line flag 'noepochs'"),
    ],
)
def test_wrong_command_lines(flags: FlagValues, words: list[str], message: str) -> None:
    with pytest.raises(tf.flags.Error) as error:
        flags(["program", *words])
    assert message in str(error.value)


def test_flags_are_parsed_at_the_first_read(flags: FlagValues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "--epochs=9"])
    assert flags.epochs == 9
    assert flags.flag_values_dict()["epochs"] == 9
    assert flags.__getattr__("__flags")["epochs"].value == 9
    flags.epochs = 4
    assert flags.epochs == 4
    assert "--epochs=4\n" in flags.flags_into_string()
    with pytest.raises(AttributeError, match="Did you mean 'epochs'"):
        _ = flags.epoch
    with pytest.raises(AttributeError, match="no flag is named"):
        flags.other = 1


def test_a_flag_of_another_module_is_defined_once(flags: FlagValues) -> None:
    define.define_integer("epochs", 8, "Again, in the same module.", flags)
    flags.mark_as_parsed()
    assert flags.epochs == 8
    flags._modules["epochs"] = "elsewhere"
    with pytest.raises(tf.flags.DuplicateFlagError, match="defined twice"):
        define.define_integer("epochs", 9, "In another one.", flags)


def test_older_spellings() -> None:
    found = FlagValues()
    define.define_string(flag_name="a", default_value="x", docstring="Words.", flag_values=found)
    found.mark_as_parsed()
    assert found.a == "x"
    with pytest.raises(TypeError, match="expected \\(name, default, help\\)"):
        define.define_string("b", flag_values=found)


def test_run_calls_main_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["program", "--unknown=1", "word"])
    with pytest.raises(SystemExit) as ended:
        tf.app.run(main=lambda words: words)
    assert ended.value.code == ["program", "--unknown=1", "word"]


def test_lines_of_the_log(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a program that has not set up logging; pytest has.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    _logging._logger.cache_clear()
    before = tf.logging.get_verbosity()
    try:
        tf.logging.set_verbosity(tf.logging.INFO)
        tf.logging.info("step %d", 3)
        tf.logging.debug("not shown")
        for _ in range(4):
            tf.logging.log_every_n(tf.logging.WARN, "now and then", 2)
    finally:
        tf.logging.set_verbosity(before)
        logging.getLogger("tensorflow").handlers.clear()
        logging.getLogger("tensorflow").propagate = True
        _logging._logger.cache_clear()
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["INFO:tensorflow:step 3", *["WARNING:tensorflow:now and then"] * 2]
