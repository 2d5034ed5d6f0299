"""`tf.gradients`: one operation that calls torch's autograd on the values of the same run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from throughtime.tf1._namespace import export, exported
from throughtime.tf1.graph._graph import create_op
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._program import GRADIENTS
from throughtime.tf1.graph._scopes import name_scope
from throughtime.tf1.ops._convert import convert_to_tensor
from throughtime.tf1.session._sparse_gradients import lookups_of, slices_of


@exported("AggregationMethod")
class AggregationMethod:
    """Accepted: torch adds gradients up."""

    ADD_N = 0
    DEFAULT = 0
    EXPERIMENTAL_TREE = 1
    EXPERIMENTAL_ACCUMULATE_N = 2


@exported("UnconnectedGradients")
class UnconnectedGradients:
    """What `tf.gradients` gives for what `ys` do not depend on."""

    NONE = "none"
    ZERO = "zero"


@exported("gradients")
def gradients(
    ys: Any,
    xs: Any,
    grad_ys: Any = None,
    name: str = "gradients",
    colocate_gradients_with_ops: bool = False,
    gate_gradients: bool = False,
    aggregation_method: Any = None,
    stop_gradients: Any = None,
    unconnected_gradients: Any = "none",
) -> list[Any]:
    """The sums of derivatives of `ys` by each of `xs`; None where there is no connection."""
    del colocate_gradients_with_ops, gate_gradients, aggregation_method
    targets = [convert_to_tensor(one) for one in _list(ys)]
    sources = [_source(one) for one in _list(xs)]
    stops = [_source(one) for one in _list(stop_gradients)] if stop_gradients is not None else []
    connected = _connected(targets, sources, stops)
    with name_scope(name, "gradients") as scope:
        seeds = _seeds(targets, grad_ys)
        used = [one for one in dict.fromkeys(sources) if one in connected]
        found = _with_lookups(targets, used, seeds, stops, scope)
        zero = unconnected_gradients == "zero"
        return [found.get(source) if source in found or not zero else _zeros(source) for source in sources]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _source(value: Any) -> Tensor:
    """What to differentiate by; of a variable its storage, which all its reads derive from."""
    return value._ref() if hasattr(value, "_ref") else convert_to_tensor(value)


def _seeds(targets: Sequence[Tensor], grad_ys: Any) -> list[Tensor | None]:
    given = [None] * len(targets) if grad_ys is None else _list(grad_ys)
    if len(given) != len(targets):
        raise ValueError(f"Passed {len(given)} grad_ys for {len(targets)} ys")
    return [
        None if seed is None else convert_to_tensor(seed, target.dtype.base_dtype, name="grad_ys")
        for seed, target in zip(given, targets, strict=True)
    ]


def _connected(targets: Sequence[Tensor], sources: Sequence[Tensor], stops: Sequence[Tensor]) -> set[Tensor]:
    """Those of `sources` from which differentiable operations lead to `targets`."""
    wanted, stopped = set(sources), set(stops)
    found: set[Tensor] = set()
    seen: set[Tensor] = set()
    stack = [target for target in targets if target.dtype.is_differentiable]
    while stack:
        tensor = stack.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if tensor in wanted:
            found.add(tensor)
        if tensor not in stopped and tensor.op.differentiable:
            stack.extend(one for one in tensor.op.inputs if one.dtype.is_differentiable)
    return found


def _with_lookups(
    targets: Sequence[Tensor],
    sources: Sequence[Tensor],
    seeds: Sequence[Tensor | None],
    stops: Sequence[Tensor],
    scope: str,
) -> dict[Tensor, Any]:
    """The gradients; of variables that are only looked up, by the rows that were."""
    lookups = lookups_of(targets, sources, stops)
    rows = [op.outputs[0] for ops in lookups.values() for op in ops]
    plain = [source for source in sources if source not in lookups]
    found: dict[Tensor, Any] = dict(_make(targets, [*dict.fromkeys([*plain, *rows])], seeds, stops, scope))
    for source, ops in lookups.items():
        found[source] = slices_of(source, ops, [found[op.outputs[0]] for op in ops])
    return found


def _make(
    targets: Sequence[Tensor],
    sources: Sequence[Tensor],
    seeds: Sequence[Tensor | None],
    stops: Sequence[Tensor],
    scope: str,
) -> dict[Tensor, Tensor]:
    if not sources:
        return {}
    if stops:
        return _with_stops(targets, sources, seeds, stops, scope)
    given = [seed for seed in seeds if seed is not None]
    bind = functools.partial(_bound, len(targets), len(sources), tuple(seed is not None for seed in seeds))
    count = len(targets)
    op = create_op(
        GRADIENTS,
        bind(retain=False, again=False),
        [*targets, *sources, *given],
        name=GRADIENTS,
        dtypes=[source.dtype.base_dtype for source in sources],
        shapes=[source.shape for source in sources],
        attrs={"bind": bind, "xs_of": lambda op: op.inputs[count : count + len(sources)], "tuple": True},
    )
    return dict(zip(sources, op.outputs, strict=True))


def _bound(
    ys: int, xs: int, seeded: tuple[bool, ...], *, retain: bool, again: bool
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The kernel; `retain` the recorded graph for another gradient, record this one to be differentiated `again`."""

    def kernel(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs, inputs, given = values[:ys], values[ys : ys + xs], iter(values[ys + xs :])
        seeds = [next(given) if one else torch.ones_like(output) for one, output in zip(seeded, outputs, strict=True)]
        pairs = [pair for pair in zip(outputs, seeds, strict=True) if pair[0].requires_grad]
        if not pairs:
            return tuple(map(torch.zeros_like, inputs))
        found: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
            [pair[0] for pair in pairs],
            inputs,
            [pair[1].expand_as(pair[0]) for pair in pairs],
            retain_graph=retain or again,
            create_graph=again,
            allow_unused=True,
        )
        return tuple(torch.zeros_like(value) if one is None else one for one, value in zip(found, inputs, strict=True))

    return kernel


def _with_stops(
    targets: Sequence[Tensor],
    sources: Sequence[Tensor],
    seeds: Sequence[Tensor | None],
    stops: Sequence[Tensor],
    scope: str,
) -> dict[Tensor, Tensor]:
    """Gradients with `stops` held constant: the part of the graph after them is computed again from their values."""
    copies = _copy_after(targets, [*dict.fromkeys([*sources, *stops])])
    barriers = {
        one: create_op("StopGradient", torch.detach, [one], name="stop", differentiable=False).outputs[0]
        for one in dict.fromkeys([*sources, *stops])
    }
    renamed = copies(barriers)
    again = [renamed[target] for target in targets]
    found = _make(again, [barriers[source] for source in sources], seeds, [], scope)
    return {source: found[barriers[source]] for source in sources if barriers[source] in found}


def _copy_after(
    targets: Sequence[Tensor], roots: Sequence[Tensor]
) -> Callable[[dict[Tensor, Tensor]], dict[Tensor, Tensor]]:
    """A function that copies the operations between `roots` and `targets` onto replacements of the roots."""
    depends: set[Operation] = set()
    order: list[Operation] = []

    def visit(tensor: Tensor, seen: dict[Operation, bool]) -> bool:
        if tensor in roots:
            return True
        if tensor.op not in seen:
            seen[tensor.op] = False
            reached = [visit(one, seen) for one in tensor.op.inputs]
            seen[tensor.op] = any(reached)
            if seen[tensor.op]:
                depends.add(tensor.op)
                order.append(tensor.op)
        return seen[tensor.op]

    seen: dict[Operation, bool] = {}
    for target in targets:
        visit(target, seen)

    def copy(replaced: dict[Tensor, Tensor]) -> dict[Tensor, Tensor]:
        renamed = dict(replaced)
        for op in order:
            new = create_op(
                op.type,
                op.kernel,
                [renamed.get(tensor, tensor) for tensor in op.inputs],
                name=f"{op.name.rpartition('/')[2]}_again",
                dtypes=[tensor.dtype for tensor in op.outputs],
                shapes=[tensor.shape for tensor in op.outputs],
                stateful=op.stateful,
                differentiable=op.differentiable,
                mutates=op.mutates,
                attrs=op.attrs,
            )
            renamed.update(zip(op.outputs, new.outputs, strict=True))
        return {tensor: renamed.get(tensor, tensor) for tensor in [*targets, *renamed]}

    return copy


@exported("hessians")
def hessians(ys: Any, xs: Any, name: str = "hessians", **_: Any) -> list[Any]:
    """Second derivatives of `ys` by each of `xs`, as matrices over the elements."""
    results = []
    for x in _list(xs):
        first = gradients(ys, x, name=name)[0]
        source = _source(x)
        results.append(_jacobian(first, source))
    return results


def _jacobian(gradient: Tensor, source: Tensor) -> Tensor:
    from throughtime.tf1._namespace import lookup  # noqa: PLC0415

    count = gradient.shape.num_elements()
    if count is None:
        raise ValueError(f"tf.hessians needs a known shape of xs, got {gradient.shape}")
    flat = lookup("reshape")(gradient, [-1])
    rows = [gradients(flat[place], source)[0] for place in range(count)]
    square: Tensor = lookup("reshape")(lookup("stack")(rows), [*gradient.shape.as_list(), *gradient.shape.as_list()])
    return square


def _zeros(source: Tensor) -> Tensor:
    return create_op("ZerosLike", torch.zeros_like, [source]).outputs[0]


export("python.ops.gradients.gradients", gradients)
