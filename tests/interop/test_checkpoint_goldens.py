"""Checkpoints that TensorFlow wrote: every number is read, and the cells in them answer as they did there."""

from __future__ import annotations

import json
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from _recorded import CASES, FOLDER, LENGTHS, answers, prefix
from torch import nn

import throughtime as tt
from throughtime import _pytree
from throughtime.interop import TFCheckpoint, load_tf_checkpoint, save_tf_checkpoint

pytestmark = [pytest.mark.covers("checkpoints"), pytest.mark.covers("goldens")]

ROOT = Path(__file__).parents[2]
TENSORFLOW = ROOT / ".venv-tf" / "bin" / "python"

CELLS: dict[str, Any] = {
    "trained_lstm": lambda: tt.LSTMCell(4, use_peepholes=True, num_proj=2),
    "names_of_1_1": lambda: tt.GRUCell(4),
    "names_of_0_12": lambda: tt.MultiRNNCell([tt.BasicLSTMCell(2), tt.BasicLSTMCell(3)]),
    "partitioned": lambda: tt.LSTMCell(4),
    "sharded": lambda: tt.BasicRNNCell(4),
    "sharded_1": lambda: tt.BasicRNNCell(4),
    "objects": lambda: tt.BasicLSTMCell(3),
}


def check(case: str, found: dict[str, Any]) -> None:
    for key, value in found.items():
        np.testing.assert_allclose(value.detach().numpy(), answers(case)[key], rtol=1e-5, atol=1e-5, err_msg=key)


def outputs_of(case: str, cell: Any) -> dict[str, Any]:
    inputs = torch.from_numpy(answers(case)["inputs"])
    outputs, state = tt.dynamic_rnn(cell, inputs, LENGTHS, dtype=torch.float32)
    return {"outputs": outputs} | {f"state/{index}": leaf for index, leaf in enumerate(_pytree.flatten(state))}


@pytest.mark.parametrize("case", CELLS)
@pytest.mark.parametrize("built", [False, True], ids=["lazy", "built"])
def test_cells_answer_as_in_tensorflow(case: str, built: bool) -> None:
    cell = CELLS[case]()
    if built:
        cell.build(3)
    restored = load_tf_checkpoint(cell, prefix(case))
    check(case, outputs_of(case, cell))
    assert set(restored.loaded) == set(tt.interop.tf_variables(cell))
    assert not restored.missing
    assert not restored.unexpected


def test_what_an_optimizer_keeps_is_left_alone() -> None:
    restored = load_tf_checkpoint(CELLS["trained_lstm"](), FOLDER / "trained_lstm")
    assert len(restored.optimizer) == 15
    assert {"beta1_power", "global_step", "rnn/lstm_cell/kernel/Adam_1"} <= set(restored.optimizer)
    assert str(restored) == "6 variables loaded; left alone: 15 of the optimizer (beta1_power, ...)"


def test_two_directions() -> None:
    forwards, backwards = tt.GRUCell(2), tt.LSTMCell(3)
    parts = {"fw": forwards, "bw": backwards}
    load_tf_checkpoint(parts, FOLDER / "bidirectional", "bidirectional_rnn")
    inputs = torch.from_numpy(answers("bidirectional")["inputs"])
    (ahead, back), _ = tt.bidirectional_dynamic_rnn(forwards, backwards, inputs, LENGTHS, dtype=torch.float32)
    check("bidirectional", {"forwards": ahead, "backwards": back})
    # Having run, a cell knows its scope.
    forwards.gates.bias.data.zero_()
    load_tf_checkpoint(forwards, FOLDER / "bidirectional")
    assert forwards.gates.bias.any()


def test_a_model_of_parts() -> None:
    case = answers("model")
    layers = [tt.DropoutWrapper(tt.BasicLSTMCell(3)), tt.ResidualWrapper(tt.GRUCell(3))]
    rnn = tt.RNN(tt.OutputProjectionWrapper(tt.MultiRNNCell(layers), 2), returns="outputs")
    embedding, dense = nn.Embedding(5, 3), nn.Linear(2, 4)
    parts = {"embedding": embedding.weight, "model/encoder": rnn, "model/dense": dense}
    restored = load_tf_checkpoint(parts, FOLDER / "model")
    assert not restored.unused
    outputs = rnn(embedding(torch.from_numpy(case["ids"])), LENGTHS)
    check("model", {"outputs": outputs, "logits": dense(outputs)})
    # A layer that is not built learns its width, too.
    lazy = nn.LazyLinear(4)
    load_tf_checkpoint({"model/dense": lazy}, FOLDER / "model")
    assert torch.equal(lazy(outputs), dense(outputs))
    # One part alone: the others are reported.
    alone = tt.RNN(tt.OutputProjectionWrapper(tt.MultiRNNCell(layers), 2), scope="model/encoder")
    assert load_tf_checkpoint(alone, FOLDER / "model").unused == ["embedding", "model/dense/bias", "model/dense/kernel"]


@pytest.mark.parametrize("case", ["dtypes", "dtypes_1"])
def test_every_dtype(case: str) -> None:
    checkpoint, values = TFCheckpoint(prefix(case)), torch.from_numpy(answers(case)["values"])
    for name, dtype in checkpoint.dtypes.items():
        if name == dtype != "string":
            expected = values.abs() if name.startswith("u") else values
            found: Any = checkpoint[name]
            assert found.dtype == getattr(torch, name)
            assert torch.equal(found, expected.to(found.dtype)), name
    assert checkpoint["large"].tolist() == [-1, 2**40, -(2**62)]
    assert checkpoint["scalar"].item() == 7
    assert checkpoint["empty"].shape == (0, 3)
    if case == "dtypes":
        assert checkpoint["string"].tolist() == [[b"", b"a"], ["τ".encode() * 100, b"\0"]]


@pytest.mark.parametrize(("case", "names"), [("partitioned", ["cut/0", "cut/1"]), ("partitioned_1", ["cut"])])
def test_slices_are_joined(case: str, names: list[str]) -> None:
    checkpoint = TFCheckpoint(prefix(case))
    for name in names:
        assert torch.equal(checkpoint[name], torch.from_numpy(answers(case)[name])), name
        assert checkpoint.variables[name].nbytes == 200 * 7 * 4


@pytest.mark.parametrize("case", CASES)
def test_every_way_to_name_one(case: str) -> None:
    names = list(TFCheckpoint(prefix(case)))
    assert names
    for path in (FOLDER / case).iterdir():
        assert list(TFCheckpoint(str(path))) == names, path
    if (FOLDER / case / "checkpoint").exists():
        assert list(TFCheckpoint(FOLDER / case)) == names


def test_a_mapping() -> None:
    checkpoint = TFCheckpoint(prefix("sharded"))
    assert checkpoint.shapes == {"rnn/basic_rnn_cell/bias": (4,), "rnn/basic_rnn_cell/kernel": (7, 4)}
    assert checkpoint.dtypes["rnn/basic_rnn_cell/bias"] == "float32"
    assert len(checkpoint) == 2
    assert checkpoint.nbytes == 128
    assert repr(checkpoint).endswith("model.ckpt'): 2 variables, 128 bytes")
    assert str(checkpoint).splitlines()[1] == "rnn/basic_rnn_cell/kernel  float32  (7, 4)  112"
    assert checkpoint.get("none") is None
    with pytest.raises(KeyError, match="The nearest: 'rnn/basic_rnn_cell/bias'"):
        checkpoint["basic_rnn_cell/bias"]
    again = pickle.loads(pickle.dumps(checkpoint))
    name = "rnn/basic_rnn_cell/bias"
    # Each time it is read: a change of one result does not show in another.
    checkpoint[name].zero_()
    assert torch.equal(again[name], checkpoint[name])
    assert again[name].any()


@pytest.mark.parametrize("case", [*CELLS, "bidirectional"])
def test_what_is_saved_is_what_was_loaded(case: str, tmp_path: Any) -> None:
    made = {"fw": tt.GRUCell(2), "bw": tt.LSTMCell(3)} if case == "bidirectional" else CELLS[case]()
    scope = "bidirectional_rnn" if case == "bidirectional" else None
    restored = load_tf_checkpoint(made, prefix(case), scope)
    path = save_tf_checkpoint(made, tmp_path / "deep" / "model.ckpt-3", scope)
    original, saved = TFCheckpoint(prefix(case)), TFCheckpoint(tmp_path / "deep")
    assert path == str(tmp_path / "deep" / "model.ckpt-3")
    assert set(saved) == set(restored.loaded)
    assert all(torch.equal(saved[name], original[key]) for name, key in restored.loaded.items())


@pytest.mark.parametrize("case", ["bidirectional", "model"])
def test_what_is_saved_is_what_tensorflow_saved_byte_for_byte(case: str, tmp_path: Any) -> None:
    variables: Any = dict(TFCheckpoint(prefix(case)))
    save_tf_checkpoint(variables, tmp_path / "model.ckpt")
    for ending in ("index", "data-00000-of-00001"):
        name = f"model.ckpt.{ending}"
        assert (tmp_path / name).read_bytes() == (FOLDER / case / name).read_bytes(), name
    assert (tmp_path / "checkpoint").read_text() == (FOLDER / case / "checkpoint").read_text()


@pytest.mark.skipif(not TENSORFLOW.exists(), reason="no TensorFlow; `make goldens` installs it")
def test_tensorflow_reads_what_is_saved(tmp_path: Any) -> None:
    dtypes = [torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.uint32, torch.bool]
    tensors = {f"{dtype}".removeprefix("torch."): torch.tensor([[1, 0], [3, 4]]).to(dtype) for dtype in dtypes}
    # More than a block of names, and one that is not plain.
    many = {f"many/variable_{number:04}/τ": torch.full((number % 3,), float(number)) for number in range(700)}
    cell = tt.MultiRNNCell([tt.LSTMCell(3, use_peepholes=True), tt.GRUCell(2)], input_size=4)
    parts = {"encoder": cell, "global_step": torch.tensor(7), "none": torch.zeros(0, 3), **tensors, **many}
    path = save_tf_checkpoint(parts, tmp_path / "model.ckpt-7")
    script = ROOT / "tools" / "record_checkpoints.py"
    told = subprocess.run([TENSORFLOW, script, "--read", path], check=True, capture_output=True, text=True)
    read, saved = json.loads(told.stdout.splitlines()[-1]), TFCheckpoint(path)
    assert set(read) == set(saved)
    for name, (dtype, values) in read.items():
        assert dtype == saved.dtypes[name]
        expected: Any = saved[name]
        assert torch.equal(torch.tensor(values, dtype=torch.float64).reshape(expected.shape), expected.double()), name
