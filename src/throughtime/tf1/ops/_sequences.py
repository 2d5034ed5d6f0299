"""Sequences of labels: distances, and decoding of connectionist temporal classification."""

from __future__ import annotations

from typing import Any

import torch

from throughtime.tf1._namespace import exported
from throughtime.tf1.graph._dtypes import float32, int64
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.ops._sparse import SparseTensor


def _rows(indices: torch.Tensor, values: Any, count: int) -> list[list[Any]]:
    """The values of each row; all axes but the last are one."""
    found: list[list[Any]] = [[] for _ in range(count)]
    for place, value in zip(indices[:, 0].tolist(), values.tolist(), strict=True):
        found[place].append(value)
    return found


def _levenshtein(first: list[Any], second: list[Any]) -> int:
    """The number of insertions, deletions and replacements between two sequences."""
    before = list(range(len(second) + 1))
    for row, item in enumerate(first, 1):
        now = [row]
        for column, other in enumerate(second, 1):
            now.append(min(before[column] + 1, now[-1] + 1, before[column - 1] + (item != other)))
        before = now
    return before[-1]


@exported("edit_distance")
def edit_distance(hypothesis: Any, truth: Any, normalize: bool = True, name: str | None = None) -> Any:
    """The distances of Levenshtein between rows of two sparse matrices, divided by the length of the true row."""

    def kernel(*parts: Any) -> torch.Tensor:
        count = int(max(parts[2][0], parts[5][0]))
        pairs = zip(_rows(parts[0], parts[1], count), _rows(parts[3], parts[4], count), strict=True)
        distances = [(float(_levenshtein(one, other)), len(other)) for one, other in pairs]
        scaled = [
            distance / length if length else float(bool(distance)) and float("inf") for distance, length in distances
        ]
        return torch.tensor(scaled if normalize else [distance for distance, _ in distances], dtype=torch.float32)

    inputs = [part for one in (hypothesis, truth) for part in (one.indices, one.values, one.dense_shape)]
    return create_op(
        "EditDistance",
        kernel,
        inputs,
        name=name or "edit_distance",
        dtypes=[float32],
        shapes=[(None,)],
        differentiable=False,
    ).outputs[0]


@exported("nn.ctc_greedy_decoder")
def ctc_greedy_decoder(
    inputs: Any, sequence_length: Any, merge_repeated: bool = True
) -> tuple[list[SparseTensor], Any]:
    """The most likely class at each step of logits `[time, batch, classes]`, without repetitions and blanks."""
    tensors = [convert_to_tensor(inputs), convert_to_tensor(sequence_length)]

    def kernel(logits: torch.Tensor, lengths: torch.Tensor) -> Any:
        best, classes = logits.max(-1)
        blank = logits.shape[-1] - 1
        places: list[list[int]] = []
        values: list[int] = []
        widths = [0]
        for row, length in enumerate(lengths.tolist()):
            path = classes[:length, row].tolist()
            merged = [one for at, one in enumerate(path) if not merge_repeated or at == 0 or one != path[at - 1]]
            kept = [one for one in merged if one != blank]
            places.extend([row, at] for at in range(len(kept)))
            values.extend(kept)
            widths.append(len(kept))
        scores = [-best[:length, row].sum() for row, length in enumerate(lengths.tolist())]
        shape = torch.tensor([len(lengths), max(widths)])
        return (
            torch.tensor(places, dtype=torch.int64).reshape(-1, 2),
            torch.tensor(values),
            shape,
            torch.stack(scores).unsqueeze(1),
        )

    rows = tensors[1].shape.sizes[0] if tensors[1].shape.sizes else None
    op = create_op(
        "CTCGreedyDecoder",
        kernel,
        tensors,
        dtypes=[int64, int64, int64, tensors[0].dtype.base_dtype],
        shapes=[(None, 2), (None,), (2,), (rows, 1)],
        differentiable=False,
    )
    return [SparseTensor(*op.outputs[:3])], op.outputs[3]
