"""Layers of torch in checkpoints: TensorFlow's names come with TensorFlow's order of axes, or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt

pytestmark = pytest.mark.covers("conformance")


def saved(part: nn.Module, folder: Path) -> dict[str, Any]:
    checkpoint = tt.interop.TFCheckpoint(tt.interop.save_tf_checkpoint({"part": part}, folder / "model.ckpt"))
    return {name: checkpoint[name] for name in checkpoint}


# The layer, and TensorFlow's kernel by hand: space, in, out; transposed space, out, in.
LAYERS: tuple[tuple[nn.Module, Any], ...] = (
    (nn.Conv1d(3, 5, 2), lambda weight: weight.permute(2, 1, 0)),
    (nn.Conv2d(3, 5, (2, 4)), lambda weight: weight.permute(2, 3, 1, 0)),
    (nn.Conv3d(3, 5, (2, 4, 1)), lambda weight: weight.permute(2, 3, 4, 1, 0)),
    (nn.ConvTranspose2d(3, 5, (2, 4)), lambda weight: weight.permute(2, 3, 1, 0)),
    (nn.Linear(3, 5), lambda weight: weight.t()),
)


@pytest.mark.parametrize(("layer", "in_tensorflow"), LAYERS, ids=[type(layer).__name__ for layer, _ in LAYERS])
def test_kernels(layer: Any, in_tensorflow: Any, tmp_path: Path) -> None:
    found = saved(layer, tmp_path)
    assert found.keys() == {"part/kernel", "part/bias"}
    assert torch.equal(found["part/kernel"], in_tensorflow(layer.weight))
    weight = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.zero_()
    tt.interop.load_tf_checkpoint({"part": layer}, tmp_path / "model.ckpt")
    assert torch.equal(layer.weight, weight)


def test_a_convolution_of_torch_is_one_of_tensorflow(tmp_path: Path) -> None:
    """`y[t, o] = sum(x[t + k, i] * kernel[k, i, o])`, which is how TensorFlow defines it."""
    layer, x = nn.Conv1d(3, 5, 2), torch.randn(1, 3, 7)
    found = saved(layer, tmp_path)
    windows = x[0].t().unfold(0, 2, 1)
    want = torch.einsum("tik,kio->to", windows, found["part/kernel"]) + found["part/bias"]
    assert torch.allclose(layer(x)[0].t(), want, atol=1e-6)


def test_layers_inside_of_a_model(tmp_path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution, self.norm = nn.Conv1d(3, 5, 2), nn.LayerNorm((2, 5))
            self.words, self.own = nn.Embedding(7, 4), nn.Parameter(torch.randn(2, 3))

        def forward(self, x: Tensor) -> Tensor:
            return x

    model = Model()
    found = saved(model, tmp_path)
    shapes = {name.removeprefix("part/"): tuple(value.shape) for name, value in found.items()}
    assert shapes == {
        "own": (2, 3),
        "convolution/kernel": (2, 3, 5),
        "convolution/bias": (5,),
        "norm/weight": (2, 5),
        "norm/bias": (2, 5),
        "words/weight": (7, 4),
    }


@pytest.mark.parametrize("layer", [nn.LSTM(3, 4), tt.nn.GRU(3, 4), nn.LSTMCell(3, 4), nn.Bilinear(2, 3, 4)])
def test_other_layouts_are_refused(layer: nn.Module, tmp_path: Path) -> None:
    for part, name in ((layer, "part"), (nn.Sequential(layer), "part/0")):
        with pytest.raises(TypeError, match=rf"the layout of '{name}' differs between torch and Tens.* Give its param"):
            saved(part, tmp_path)
    assert not list(tmp_path.iterdir())
