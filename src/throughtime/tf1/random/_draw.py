"""A node that draws random numbers: its stream belongs to the session and continues from run to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime.tf1.graph._graph import create_op, get_default_graph
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.random._philox import PhiloxStream
from throughtime.tf1.random._seeds import get_seed

Sampler = Callable[..., Any]


def draw(
    op_type: str,
    sample: Sampler,
    inputs: Sequence[Tensor],
    *,
    seed: int | None,
    name: str,
    dtypes: Sequence[Any],
    shapes: Sequence[Any],
    in_function: Sampler | None = None,
    ids: tuple[int, int] = (0, 0),
) -> Any:
    """A stateful node with the value `sample(stream, *values of inputs)`.

    Args:
        op_type: TensorFlow's name of the kind.
        sample: A function of the stream and the inputs' values.
        inputs: The tensors that it takes.
        seed: The operation's own seed.
        name: The name of the node.
        dtypes: The dtypes of the results.
        shapes: The static shapes of the results.
        in_function: A torch function of the inputs' values that takes the place of `sample` in the body of a loop or
            a cell, where the engine's own generators draw.
        ids: How many operations TensorFlow makes for this one before the seeds are derived, and after.
    """
    graph = get_default_graph()
    if in_function is not None and graph.building_function:
        return _result(create_op(op_type, in_function, inputs, name=name, attrs={"random": True}))
    graph.skip_ids(ids[0])
    first, second = get_seed(seed)

    def kernel(state: Any, *values: Any) -> Any:
        return sample(_stream(state, op, first, second), *values)

    op = create_op(
        op_type, kernel, inputs, name=name, dtypes=dtypes, shapes=shapes, stateful=True, attrs={"random": True}
    )
    graph.skip_ids(ids[1])
    return _result(op)


def _stream(state: Any, op: Operation, seed: int | None, seed2: int | None) -> PhiloxStream:
    if op not in state.resources:
        own = (seed, seed2) if seed is not None and seed2 is not None else (state.entropy, op.number + 1)
        state.resources[op] = PhiloxStream(*own)
    stream: PhiloxStream = state.resources[op]
    return stream


def _result(op: Operation) -> Any:
    return op.outputs[0] if len(op.outputs) == 1 else tuple(op.outputs)


def as_tensor(numbers: Any) -> torch.Tensor:
    """An array as a torch tensor."""
    return torch.as_tensor(numbers)
