"""From a checkpoint into cells and models: names, shapes, dtypes, and what is said when they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from _recorded import FOLDER
from torch import nn

import throughtime as tt
from descriptors import DESCRIPTORS, MORE_DESCRIPTORS, Descriptor, settled
from throughtime.interop import Restored, TFCheckpoint, load_tf_checkpoint, save_tf_checkpoint, tf_variables
from throughtime.interop.checkpoints._matching import is_bookkeeping, modern

pytestmark = pytest.mark.covers("checkpoints")

ALL = [*DESCRIPTORS, *MORE_DESCRIPTORS]


def named(descriptor: Descriptor) -> bool:
    """Whether a cell has variables, and all of them have names."""
    cell = descriptor.make(4)
    try:
        return isinstance(cell, tt.RNNCell) and bool(tf_variables(cell))
    except ValueError:
        return False


@pytest.mark.parametrize("descriptor", list(filter(named, ALL)), ids=lambda descriptor: descriptor.name)
def test_every_cell_there_and_back(descriptor: Descriptor, tmp_path: Path) -> None:
    case = descriptor.case(1, 3, torch.float32)
    cell, other = settled(descriptor.make(4), case.inputs, torch.float32), descriptor.make(4)
    try:
        path = save_tf_checkpoint(cell, tmp_path / "model.ckpt")
    except ValueError as error:
        pytest.skip(str(error))
    load_tf_checkpoint(other, path)
    for name, parameter in tf_variables(other, cell.variable_scope).items():
        assert torch.equal(parameter, tf_variables(cell)[name]), name


def refused(target: Any, case: str, scope: str | None = None, kind: type[Exception] = ValueError) -> str:
    with pytest.raises(kind) as raised:
        load_tf_checkpoint(target, FOLDER / case / "model.ckpt", scope)
    return str(raised.value)


def test_another_scope_is_found() -> None:
    message = refused(tt.LSTMCell(3), "bidirectional")
    assert message == (
        f"{FOLDER}/bidirectional/model.ckpt does not fit LSTMCell: got 2 missing, expected a variable for every "
        "parameter, and no other. Pass scope='bidirectional_rnn/bw'.\n"
        "  missing: rnn/lstm_cell/kernel (the nearest: bidirectional_rnn/bw/lstm_cell/kernel)\n"
        "  missing: rnn/lstm_cell/bias (the nearest: bidirectional_rnn/bw/lstm_cell/bias)"
    )
    assert "Pass scope='RNN/MultiRNNCell/Cell0' or scope='RNN/MultiRNNCell/Cell1'." in refused(
        tt.BasicLSTMCell(3), "names_of_0_12"
    )


def test_other_names_and_more_of_them() -> None:
    message = refused(tt.LSTMCell(3), "objects")
    assert "missing: rnn/lstm_cell/kernel (the nearest: rnn/basic_lstm_cell/kernel)" in message
    assert "unexpected: rnn/basic_lstm_cell/kernel" in message
    assert "the `name=` of a cell" in message
    load_tf_checkpoint(tt.LSTMCell(3, name="basic_lstm_cell"), FOLDER / "objects" / "model.ckpt")
    message = refused(tt.LSTMCell(4, num_proj=2), "trained_lstm")
    assert "got 3 unexpected" in message
    assert "Make the cell as the saved one was made" in message
    message = refused(tt.MultiRNNCell([tt.BasicLSTMCell(2)]), "names_of_0_12")
    assert "unexpected: RNN/MultiRNNCell/Cell1/BasicLSTMCell/Linear/Bias" in message
    stack = tt.MultiRNNCell([tt.BasicLSTMCell(2), *(tt.BasicLSTMCell(3) for _ in range(8))])
    assert "\n  and 2 more" in refused(stack, "names_of_0_12")


def test_not_strict() -> None:
    restored = load_tf_checkpoint(tt.LSTMCell(4, num_proj=2), FOLDER / "trained_lstm", strict=False)
    assert restored.unexpected == [f"rnn/lstm_cell/w_{gate}_diag" for gate in "fio"]
    stack = tt.MultiRNNCell([tt.BasicLSTMCell(2), tt.BasicLSTMCell(3), tt.BasicLSTMCell(3)], input_size=3)
    restored = load_tf_checkpoint(stack, FOLDER / "names_of_0_12", strict=False)
    assert restored.missing == [f"rnn/multi_rnn_cell/cell_2/basic_lstm_cell/{part}" for part in ("kernel", "bias")]
    # What does not fit is never loaded.
    with pytest.raises(ValueError, match="of another shape"):
        load_tf_checkpoint(tt.LSTMCell(5, num_proj=2), FOLDER / "trained_lstm", strict=False)


def test_shapes_and_dtypes_are_looked_at_first() -> None:
    cell = tt.GRUCell(4, input_size=9)
    before = cell.gates.bias.clone()
    message = refused(cell, "names_of_1_1")
    assert "does not fit: rnn/gru_cell/gates/kernel: got shape (7, 8), expected (13, 8)" in message
    assert "got 2 of another shape or dtype" in message
    assert torch.equal(cell.gates.bias, before)
    lazy = tt.GRUCell(5)
    assert "the loaded `gates.kernel` does not fit GRUCell: got shape (7, 8), expected [I + 5, 10]" in refused(
        lazy, "names_of_1_1"
    )
    assert not lazy.built
    message = refused(tt.GRUCell(4, dtype=torch.bfloat16), "names_of_1_1")
    assert "got float32, which torch.bfloat16 does not hold; convert after loading" in message
    wide = tt.GRUCell(4, dtype=torch.float64)
    load_tf_checkpoint(wide, FOLDER / "names_of_1_1")
    assert wide.gates.kernel.dtype == torch.float64
    linear = nn.LazyLinear(5)
    assert "got shape (4, 2), expected a matrix for 5 units" in refused({"model/dense": linear}, "model")
    assert "int64, which torch.float32 does not hold" in refused({"global_step": torch.zeros(())}, "trained_lstm")
    step = torch.tensor(-1)
    load_tf_checkpoint({"global_step": step}, FOLDER / "trained_lstm")
    assert step == 0


def test_what_others_keep_otherwise_is_refused(tmp_path: Path) -> None:
    assert "It has layers of Keras" in refused(tt.LSTMCell(2), "keras")
    path = save_tf_checkpoint({"rnn/cudnn_lstm/opaque_kernel": torch.ones(9)}, tmp_path / "model.ckpt")
    with pytest.raises(ValueError, match="It has CudnnLSTM's opaque weights"):
        load_tf_checkpoint(tt.LSTMCell(2), path)


def test_targets_that_are_none(tmp_path: Path) -> None:
    for nothing in (None, 3, nn.Linear(2, 3), [tt.GRUCell(3)]):
        assert "`target` has no names" in refused(nothing, "model", kind=TypeError)
    assert "has nothing to load or to save" in refused({"rnn": 3}, "model", kind=TypeError)
    assert "a part without a scope" in refused({3: tt.GRUCell(3)}, "model", kind=TypeError)
    assert "`target` has no parameters" in refused({}, "model")
    assert "`scope` must be a name" in refused(tt.GRUCell(3), "model", scope=3, kind=TypeError)  # type: ignore[arg-type]
    twice = {"dense": nn.Linear(2, 4), "dense/kernel": torch.ones(2, 4)}
    assert "two parts have a variable 'dense/kernel'" in refused(twice, "model")
    with pytest.raises(ValueError, match="GRUCell has no weights yet"):
        save_tf_checkpoint(tt.GRUCell(3), tmp_path / "model.ckpt")
    for prefix in (None, 3, ""):
        with pytest.raises(TypeError, match="`prefix` names no checkpoint"):
            save_tf_checkpoint(tt.GRUCell(3, input_size=2), prefix)
    assert not list(tmp_path.iterdir())


def test_parameters_without_a_name_are_not_passed_over() -> None:
    class Duck(nn.Module):
        state_size = output_size = 3

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def zero_state(self, batch_size: int, dtype: torch.dtype) -> Any:
            return torch.zeros(batch_size, 3, dtype=dtype)

        def forward(self, inputs: Any, state: Any) -> Any:
            return state * self.weight, state

    assert "`cell_0.weight` has no name in TensorFlow" in refused(tt.MultiRNNCell([Duck()]), "model")


def test_a_cell_that_was_called_by_itself(tmp_path: Path) -> None:
    cell = tt.LSTMCell(3, input_size=2)
    assert list(tf_variables(cell, "")) == ["lstm_cell/kernel", "lstm_cell/bias"]
    path = save_tf_checkpoint({"": cell, "lstm/kernel": torch.ones(2)}, tmp_path / "model.ckpt")
    restored = load_tf_checkpoint(tt.LSTMCell(3), path, scope="")
    assert restored.unused == ["lstm/kernel"]


def test_attention(tmp_path: Path) -> None:
    def wrapper() -> Any:
        attention = tt.decode.BahdanauAttention(4, memory, [6, 2])
        return tt.decode.AttentionWrapper(tt.LSTMCell(8), attention, attention_layer_size=5)

    memory, inputs = torch.randn(2, 6, 3), torch.randn(2, 7, 3)
    cell, other = wrapper(), wrapper()
    expected, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32, scope="decoder")
    path = save_tf_checkpoint(cell, tmp_path / "model.ckpt")
    assert "memory_layer/kernel" in TFCheckpoint(path)
    assert "decoder/attention_wrapper/lstm_cell/kernel" in TFCheckpoint(path)
    load_tf_checkpoint(other, path, "decoder")
    other.attention_mechanisms[0].setup_memory(memory, [6, 2])
    found, _ = tt.dynamic_rnn(other, inputs, dtype=torch.float32)
    torch.testing.assert_close(found, expected)


def test_shared_cells_have_one_name(tmp_path: Path) -> None:
    cell = tt.GRUCell(3)
    stack = tt.MultiRNNCell([cell, cell], input_size=3)
    path = save_tf_checkpoint(stack, tmp_path / "model.ckpt")
    assert len(TFCheckpoint(path)) == 4
    other = tt.GRUCell(3)
    load_tf_checkpoint(tt.MultiRNNCell([other, other]), path)
    assert torch.equal(other.gates.kernel, cell.gates.kernel)


def test_loaded_weights_are_used_by_the_next_call(tmp_path: Path) -> None:
    """A compiled loop that has run notices them; an optimiser made before keeps its parameters."""
    cell, other, inputs = tt.LSTMCell(4, input_size=3), tt.LSTMCell(4, input_size=3), torch.randn(2, 5, 3)
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    for _ in range(3):
        tt.dynamic_rnn(other, inputs, dtype=torch.float32)
    load_tf_checkpoint(other, save_tf_checkpoint(cell, tmp_path / "model.ckpt"))
    expected, _ = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
    found, _ = tt.dynamic_rnn(other, inputs, dtype=torch.float32)
    assert torch.equal(found, expected)
    found.sum().backward()
    optimizer.step()
    assert not torch.equal(other.kernel, cell.kernel)


def test_saving_again_keeps_what_was_there(tmp_path: Path) -> None:
    cell = tt.GRUCell(3, input_size=2)
    for step in (1, 2, 2):
        save_tf_checkpoint(cell, tmp_path / f"model.ckpt-{step}")
    assert (tmp_path / "checkpoint").read_text().splitlines() == [
        'model_checkpoint_path: "model.ckpt-2"',
        'all_model_checkpoint_paths: "model.ckpt-1"',
        'all_model_checkpoint_paths: "model.ckpt-2"',
    ]
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize(
    ("old", "now"),
    [
        ("rnn/basic_lstm_cell/weights", "rnn/basic_lstm_cell/kernel"),
        ("RNN/GRUCell/Candidate/Linear/Bias", "rnn/gru_cell/candidate/bias"),
        ("RNN/LSTMCell/W_0", "rnn/lstm_cell/kernel"),
        ("RNN/LSTMCell/B", "rnn/lstm_cell/bias"),
        ("RNN/LSTMCell/W_F_diag", "rnn/lstm_cell/w_f_diag"),
        ("BiRNN/FW/BasicLSTMCell/Linear/Matrix", "bidirectional_rnn/fw/basic_lstm_cell/kernel"),
        ("RNN/MultiRNNCell/Cell12/BasicRNNCell/Linear/Matrix", "rnn/multi_rnn_cell/cell_12/basic_rnn_cell/kernel"),
        ("rnn/lstm_cell/kernel", "rnn/lstm_cell/kernel"),
    ],
)
def test_names_of_other_times(old: str, now: str) -> None:
    assert modern(old) == now


def test_what_belongs_to_optimizers() -> None:
    names = ["rnn/kernel", "dense/bias"]
    theirs = ["rnn/kernel/Adam", "optimizer/rnn/kernel/RMSProp_1", "beta1_power", "train/beta2_power_1", "global_step"]
    assert all(is_bookkeeping(name, names) for name in theirs)
    assert not any(is_bookkeeping(name, names) for name in ("rnn/bias", "rnn/kernel", "dense/kernel", "kernel"))


def test_what_was_done_is_said() -> None:
    restored = Restored({"a": "a", "b": "b"}, missing=["c"], unused=["d", "e"])
    assert str(restored) == "2 variables loaded; left alone: 1 missing (c), 2 of other parts (d, ...)"
