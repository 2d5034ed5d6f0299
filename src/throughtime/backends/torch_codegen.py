"""Sections of a program as Python functions over torch operations."""

from __future__ import annotations

import keyword
import linecache
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from throughtime.backends.native_gemm import over_rows, product_over_rows, times
from throughtime.compiler import ROWS, Graph, Node, Section, Source, Value, taken_by
from throughtime.compiler.ir.gemm_ops import OVER_ROWS, PRODUCT_OVER_ROWS, TIMES
from throughtime.compiler.ir.ops import name_of
from throughtime.compiler.pipeline import optimize_section
from throughtime.native.caching_allocator import empty

Env = dict[Value, Tensor]
"""The values that are known while a program runs."""
Generators = Callable[[Source], torch.Generator]
"""The random generator of a cell that a program names."""

_ATEN = torch.ops.aten
_BOUND: dict[Any, Callable[..., Any]] = {
    _ATEN.mm.default: torch.mm,
    _ATEN.mm.out: torch.mm,
    _ATEN.addmm.default: torch.addmm,
    _ATEN.addmm.out: torch.addmm,
    _ATEN.cat.default: torch.cat,
    _ATEN.cat.out: torch.cat,
    _ATEN.t.default: torch.t,
    _ATEN.view.default: Tensor.view,
    _ATEN.clone.default: torch.clone,
    _ATEN.sum.dim_IntList: torch.sum,
    _ATEN.add.Tensor: torch.add,
    _ATEN.mul.Tensor: torch.mul,
    _ATEN.div.Tensor: torch.div,
    _ATEN.floor.default: torch.floor,
    _ATEN.expand.default: Tensor.expand,
    _ATEN.repeat.default: Tensor.repeat,
    OVER_ROWS: over_rows,
    PRODUCT_OVER_ROWS: product_over_rows,
    TIMES: times,
    TIMES.overloadpacket.out: times,
}
"""The same operations as functions of torch: to call one takes half as long."""
_SAME_CALL = frozenset(
    "abs neg exp log log1p sqrt rsqrt reciprocal sin cos erf sigmoid tanh relu sign floor ceil round "
    "sub rsub pow maximum minimum where eq ne lt le gt ge logical_and logical_or logical_not bitwise_and bitwise_or "
    "bmm permute transpose unsqueeze squeeze select stack reshape gather scatter scatter_add index_select flip roll "
    "slice_scatter select_scatter mean amax amin cumsum cumprod sort topk zeros ones full convolution embedding "
    "_softmax _log_softmax _softmax_backward_data _log_softmax_backward_data native_layer_norm".split()
)
"""Those whose function in `torch` has their name and takes the same arguments, whichever overload is meant."""


def _function_of(operation: Any) -> Callable[..., Any]:
    """What to call for an operation."""
    found = _BOUND.get(operation)
    if found is None:
        name = name_of(operation)
        found = getattr(torch, name) if name in _SAME_CALL and operation._overloadname != "out" else operation
    return found


class SectionFunction:
    """Nodes made into one function: `run(rows, env, generators)` puts the values of `gives` into `env`.

    Values that are used up on the way are let go at once, so that memory is held no longer than it is needed. Unless
    `reuse` is None, large values that are used up or that are in it are written to memory that has been used before,
    and on a GPU parts of a join to their places in it; torch cannot differentiate either, nor products that are
    made `by_kernels`. What is for a GPU has fewer operations.
    """

    def __init__(
        self,
        name: str,
        nodes: Sequence[Node],
        gives: Iterable[Value],
        reuse: Iterable[Value] | None = None,
        *,
        on_gpu: bool = False,
        by_kernels: bool = False,
    ) -> None:
        self.gives = list(dict.fromkeys(gives))
        nodes = optimize_section(nodes, self.gives, on_gpu=on_gpu, by_kernels=by_kernels)
        made = {value for node in nodes for value in node.results}
        self.takes = taken_by(nodes, self.gives)
        # These need no copy of a stream as it was at the step before.
        others = {value for node in nodes if node.target is not OVER_ROWS for value in node.values}
        self.takes_lagged = set(self.takes) - others - set(self.gives)
        again = set() if reuse is None else {*reuse, *(made - set(self.gives))}
        placed = _placed(nodes, set(self.gives)) if on_gpu and reuse is not None else {}
        writer = _PythonWriter(name, nodes, self.takes, self.gives, again, placed, on_gpu=on_gpu)
        self.source = writer.source
        # Runs on the number of rows, the generators, and the values of `takes` in order.
        self.call = self._function = writer.compile()

    @classmethod
    def of(
        cls,
        section: Section,
        wanted: set[Value],
        reuse: Iterable[Value] | None = None,
        *,
        on_gpu: bool = False,
        by_kernels: bool = False,
    ) -> SectionFunction:
        """The section, as far as it is wanted; torch itself keeps the memory of a GPU to use it again."""
        nodes = Graph(section.nodes).needed_for(wanted)
        gives = [value for value in section.gives if value in wanted]
        return cls(section.name, nodes, gives, None if on_gpu else reuse, on_gpu=on_gpu, by_kernels=by_kernels)

    def left_of(self, section: Section) -> list[Node]:
        """The nodes of the section it was made of that it does not run."""
        own = set(map(id, Graph(section.nodes).needed_for(self.gives)))
        return [node for node in section.nodes if id(node) not in own]

    def run(self, rows: int, env: Env, generators: Generators | None = None) -> None:
        """Run on values from `env`, and add what comes out."""
        if self.gives:
            results = self._function(rows, generators, *[env[value] for value in self.takes])
            env.update(zip(self.gives, results, strict=True))

    def __call__(self, rows: int, generators: Generators | None, *args: Tensor) -> tuple[Tensor, ...]:
        """Run on the values of `takes`, in order."""
        results: tuple[Tensor, ...] = self._function(rows, generators, *args)
        return results


class _PythonWriter:
    def __init__(
        self,
        name: str,
        nodes: Sequence[Node],
        takes: list[Value],
        gives: list[Value],
        reuse: set[Value],
        placed: dict[Value, Node],
        *,
        on_gpu: bool,
    ) -> None:
        self._reuse, self._placed, self._on_gpu = reuse, placed, on_gpu
        self._names: dict[Value, str] = {}
        # Joins whose parts are being made.
        self._begun: set[Value] = set()
        self._globals: dict[str, Any] = {"torch": torch, "empty": empty, "inf": float("inf"), "nan": float("nan")}
        self._taken: set[str] = {"n", "generators", "device", *self._globals}
        self._function = "".join(letter if letter.isalnum() else "_" for letter in name)
        arguments = ", ".join(["n", "generators", *map(self._name, takes)])
        lines = [f"def {self._function}({arguments}):"]
        # A tensor without dimensions may be on a CPU, beside others that are not.
        self._anchor = next((value for value in takes if value.shape), None)
        if self._anchor is not None and any("device" in node.kwargs for node in nodes):
            lines.append(f"    device = {self._name(self._anchor)}.device")
        last = {value: position for position, node in enumerate(nodes) for value in (*node.values, *node.results)}
        kept = set(gives)
        for position, node in enumerate(nodes):
            lines += [f"    {line}" for line in self._lines(node)]
            dead = [
                value
                for value in dict.fromkeys((*node.values, *node.results))
                if last[value] == position and value not in kept
            ]
            if dead:
                lines.append(f"    del {', '.join(map(self._name, dead))}")
        lines.append(f"    return ({''.join(f'{self._name(value)}, ' for value in gives)})")
        self.source = "\n".join(lines) + "\n"

    def compile(self) -> Callable[..., Any]:
        filename = f"<throughtime {self._function} {id(self):x}>"
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(True), filename)
        exec(compile(self.source, filename, "exec"), self._globals)
        function: Callable[..., Any] = self._globals[self._function]
        # What nobody runs any more need not be shown.
        weakref.finalize(function, linecache.cache.pop, filename, None)
        return function

    def _name(self, value: Value) -> str:
        if value not in self._names:
            name = value.name if value.name.isidentifier() and not value.name[0].isdigit() else f"v_{value.name}"
            if keyword.iskeyword(name) or name in self._taken:
                name = f"{name}_"
            if name.startswith(("aten_", "throughtime_")):
                # The names of operations.
                name = f"v_{name}"
            while name in self._taken:
                name += "_"
            self._taken.add(name)
            self._names[value] = name
        return self._names[value]

    def _lines(self, node: Node) -> Iterator[str]:
        join = self._placed.get(node.results[0]) if node.name == "mm" else None
        if join is None:
            # All that is joined is in its place already.
            if node not in self._placed.values():
                yield self._line(node)
            return
        parts, whole, first = join.args[0], self._name(join.result), self._name(node.args[0])
        if join.result not in self._begun:
            self._begun.add(join.result)
            shape = ", ".join(map(self._shown, join.result.shape))
            yield f"{whole} = torch.empty({shape}, dtype={join.result.dtype}, device={first}.device)"
            yield f"{', '.join(map(self._name, parts))} = {whole}.split({[part.shape[0] for part in parts]})"
        self._globals["aten_mm_out"] = torch.mm
        yield f"aten_mm_out({first}, {self._name(node.args[1])}, out={self._name(node.result)})"

    def _line(self, node: Node) -> str:
        if (part := _narrow(node)) is not None:
            return f"{self._name(node.result)} = {self._name(node.args[0])}.narrow({part})"
        operation, target = node.target, str(node.target).replace(".", "_")
        arguments = [self._shown(arg) for arg in node.args]
        options = {key: self._shown(value) for key, value in node.kwargs.items()}
        if self._anchor is not None and "device" in options and not node.is_random:
            # What a program makes up belongs where its tensors are, wherever it was traced.
            options["device"] = "device"
        arguments += [f"{key}={value}" for key, value in options.items()]
        names = [self._name(value) for value in node.results]
        if node.results[0] in self._reuse and node.name in ("mm", "addmm", "cat", "times"):
            operation, target = node.target.overloadpacket.out, f"{target}_out"
            shape = ", ".join(map(self._shown, node.result.shape))
            arguments.append(f"out=empty(({shape}), {node.result.dtype}, {self._name(node.values[0])}.device)")
        self._globals[target] = _function_of(operation)
        results = (
            names[0] if len(node.target._schema.returns) == 1 and not _gives_list(node) else f"{', '.join(names)},"
        )
        return f"{results} = {target}({', '.join(arguments)})"

    def _shown(self, tree: Any) -> str:
        if isinstance(tree, Value):
            return self._name(tree)
        if tree is ROWS:
            return "n"
        if isinstance(tree, Source):
            name = f"source_{len(self._globals)}"
            self._globals[name] = tree
            return f"generators({name})"
        if isinstance(tree, list | tuple):
            return f"[{', '.join(map(self._shown, tree))}]"
        if isinstance(tree, torch.device):
            return f"torch.device({str(tree)!r})"
        return repr(tree)


def _placed(nodes: Sequence[Node], gives: set[Value]) -> dict[Value, Node]:
    """Products that nobody needs but a join of them, which can be made in their places in it; each with its join."""
    graph = Graph(list(nodes))
    made, users = graph.producers(), graph.users()
    placed: dict[Value, Node] = {}
    for node in nodes:
        parts = node.args[0] if node.name == "cat" and node.arg("dim") == 0 and not node.result.has_rows else []
        products = [part for part in parts if part in made and made[part].name == "mm" and part not in gives]
        alone = all(len(users[part]) == 1 and part.dtype == node.result.dtype for part in products)
        if alone and len(set(products)) == len(parts) > 1:
            placed.update(dict.fromkeys(products, node))
    return placed


def _narrow(node: Node) -> str | None:
    """The arguments of `narrow`, to call which takes a third as long, for a part without gaps."""
    if node.target is not _ATEN.slice.Tensor or node.arg("step") != 1:
        return None
    axis, start = node.arg("dim"), node.arg("start") or 0
    size = node.result.shape[axis]
    return f"{axis}, {start}, {size}" if isinstance(size, int) and size and start >= 0 else None


def _gives_list(node: Node) -> bool:
    return str(node.target._schema.returns[0].type).startswith("List")
