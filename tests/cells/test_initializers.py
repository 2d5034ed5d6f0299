"""The first values of parameters: TensorFlow's distributions, found again in the sizes of large samples."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

import throughtime as tt

pytestmark = pytest.mark.covers("conformance")

INPUTS, UNITS, PROJECTED = 300, 500, 200


def glorot(fan_in: int, fan_out: int) -> float:
    return math.sqrt(6 / (fan_in + fan_out))


@pytest.mark.parametrize(
    ("make", "limits"),
    [
        (lambda: tt.BasicRNNCell(UNITS, input_size=INPUTS), {"kernel": glorot(INPUTS + UNITS, UNITS), "bias": 0}),
        (
            lambda: tt.LSTMCell(UNITS, use_peepholes=True, num_proj=PROJECTED, input_size=INPUTS),
            {
                "kernel": glorot(INPUTS + PROJECTED, 4 * UNITS),
                "bias": 0,
                "w_f_diag": glorot(UNITS, UNITS),
                "w_i_diag": glorot(UNITS, UNITS),
                "w_o_diag": glorot(UNITS, UNITS),
                "projection.kernel": glorot(UNITS, PROJECTED),
            },
        ),
        (
            lambda: tt.GRUCell(UNITS, input_size=INPUTS),
            {
                "gates.kernel": glorot(INPUTS + UNITS, 2 * UNITS),
                "candidate.kernel": glorot(INPUTS + UNITS, UNITS),
                "candidate.bias": 0,
            },
        ),
        (
            lambda: tt.InputProjectionWrapper(tt.GRUCell(4), PROJECTED, input_size=INPUTS),
            {"kernel": glorot(INPUTS, PROJECTED), "bias": 0},
        ),
        (
            lambda: tt.OutputProjectionWrapper(tt.GRUCell(UNITS), PROJECTED, input_size=4),
            {"kernel": glorot(UNITS, PROJECTED), "bias": 0},
        ),
    ],
    ids=["rnn", "lstm", "gru", "input projection", "output projection"],
)
def test_uniform_up_to_the_limit(make: Callable[[], tt.RNNCell], limits: dict[str, float]) -> None:
    """Weights fill ±limit evenly: none beyond it, some close to it, and the variance of a uniform distribution."""
    cell = make()
    for name, limit in limits.items():
        values = cell.get_parameter(name)
        assert values.abs().max() <= limit
        if limit:
            assert values.abs().max() > 0.97 * limit
            assert values.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1)
            assert values.mean().item() == pytest.approx(0, abs=0.1 * limit)


def test_the_gates_of_a_gru_start_open() -> None:
    assert (tt.GRUCell(UNITS, input_size=INPUTS).gates.bias == 1).all()


def test_embeddings_start_with_unit_variance() -> None:
    cell = tt.EmbeddingWrapper(tt.GRUCell(4), 400, 50)
    cell.build(1)
    assert 0.99 * math.sqrt(3) < cell.embedding.abs().max() <= math.sqrt(3)
    assert cell.embedding.std().item() == pytest.approx(1, rel=0.02)


def test_an_initializer_fills_what_it_is_given_for() -> None:
    """`initializer` covers kernel, peepholes and projection of an LSTM, but not its bias."""
    cell = tt.LSTMCell(
        4, use_peepholes=True, num_proj=3, initializer=lambda w: torch.nn.init.constant_(w, 0.5), input_size=2
    )
    assert {name: parameter.unique().tolist() for name, parameter in cell.named_parameters()} == {
        "kernel": [0.5],
        "bias": [0.0],
        "w_f_diag": [0.5],
        "w_i_diag": [0.5],
        "w_o_diag": [0.5],
        "projection.kernel": [0.5],
    }
