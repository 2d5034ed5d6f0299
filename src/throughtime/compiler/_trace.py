"""Tracing: one step of a cell, and its gradient, written down as a step graph.

The step runs on a shadow of the cell with tensors that note every operation done with them. They answer questions
about shapes but not about values, so a cell that looks at its data is found out. The step is traced twice, for two
numbers of rows: what differs between the two is the number of rows, and must differ in nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode

from throughtime import _nest
from throughtime.compiler._decompose import DECOMPOSITIONS
from throughtime.compiler._errors import Uncompilable
from throughtime.compiler._graph import ROWS, Dim, Graph, Node, Value
from throughtime.compiler._watch import BOOKKEEPING, Anatomy, shadow

# Far enough apart that a cell which treats small batches differently shows it, and small enough to run at once.
BATCHES = (2, 67)

aten = torch.ops.aten
_LOOKS_AT_VALUES = {
    aten._local_scalar_dense,
    aten.is_nonzero,
    aten.nonzero,
    aten.masked_select,
    aten.equal,
    aten._unique2,
    aten.unique_dim,
}


@dataclass(frozen=True)
class Source:
    """A random number generator of the cell: which module it belongs to, on which device."""

    path: str
    device: torch.device

    def __repr__(self) -> str:
        return f"generator of {self.path or 'the cell'}"


@dataclass
class Trace:
    """One step as a graph, and with `differentiate` the gradient of every differentiable thing in it."""

    graph: Graph
    tensors: list[Value]
    inputs: list[Value]
    state: list[Value]
    outputs: list[Value]
    new_state: list[Value]
    # Cotangents of outputs and new state (None where there is no gradient), and where the backward part begins.
    output_tangents: list[Value | None]
    state_tangents: list[Value | None]
    backward_start: int
    # Gradients of tensors, inputs and state; None where there is none.
    tensor_gradients: list[Value | None]
    input_gradients: list[Value | None]
    state_gradients: list[Value | None]
    # Values baked into the graph, such as `torch.tensor(3.0)` inside of a step.
    literals: dict[Value, Tensor]
    device: torch.device


@dataclass(frozen=True)
class Leaf:
    """What is known of a leaf of the inputs or of the state: the shape of a row (None: no rows at all) and the dtype."""

    shape: tuple[int, ...] | None
    dtype: torch.dtype
    device: torch.device
    name: str

    def zeros(self, rows: int) -> Tensor:
        """A tensor of so many rows."""
        shape = () if self.shape is None else (rows, *self.shape)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)


@dataclass(frozen=True)
class StepSignature:
    """How a step is called: structures and leaves of its inputs and state, and the dtype its outputs must have."""

    inputs: Any
    input_leaves: tuple[Leaf, ...]
    state: Any
    state_leaves: tuple[Leaf, ...]


def trace(cell: Any, anatomy: Anatomy, signature: StepSignature, call: Any, *, differentiate: bool, keep_states: bool) -> Trace:
    """Trace `call(cell, inputs, state) -> (outputs, state)`, a checked step, for any number of rows."""
    def step(stand_in: Any, inputs: Any, state: Any) -> tuple[list[Any], list[Any]]:
        outputs, new_state = map(_nest.flatten, call(stand_in, inputs, state))
        return [*outputs, *new_state] if keep_states else outputs, new_state

    first, second = (
        _Recording(cell, anatomy, signature, step, rows, differentiate=differentiate).trace for rows in BATCHES
    )
    return _Merge(first, second).trace


class Traced(Tensor):
    """A tensor that has a shape, a dtype and a device, but whose values nobody may ask for."""

    value: Value
    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, value: Value, requires_grad: bool = False) -> Traced:
        made: Traced = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=inner.device,
            requires_grad=requires_grad,
        )
        made.inner, made.value = inner, value
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Traced({self.value.described})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Uncompilable("it keeps a tensor of one step and uses it outside of the step")


class _Recording(TorchDispatchMode):
    """One run of the step that notes every operation."""

    def __init__(
        self, cell: Any, anatomy: Anatomy, signature: StepSignature, call: Any, rows: int, *, differentiate: bool
    ) -> None:
        super().__init__()
        self._nodes: list[Node] = []
        self._names: dict[str, int] = {}
        self._literals: dict[Value, Tensor] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[Tensor] = []
        self._generators: dict[int, Source] = {}
        self._differentiate = differentiate
        random_state = torch.get_rng_state()
        try:
            # Autocast would cast its weights once and keep them for later steps: as part of this step, it must cast.
            cache = torch.is_autocast_cache_enabled()
            torch.set_autocast_cache_enabled(False)
            # Somebody's hooks on saved tensors are for real ones; only the innermost hooks are called.
            hidden = saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor)
            with torch.inference_mode(False), torch.set_grad_enabled(differentiate), hidden:
                self.trace = self._run(cell, anatomy, signature, call, rows)
        except Uncompilable:
            raise
        except NotImplementedError as error:
            raise Uncompilable(f"it cannot be traced ({_first_line(error)})") from error
        except RuntimeError as error:
            if "tensor subclass" in str(error):
                raise Uncompilable(f"what it does depends on the values of tensors ({_first_line(error)})") from error
            raise Uncompilable(f"it cannot be traced ({_first_line(error)})") from error
        finally:
            torch.set_autocast_cache_enabled(cache)
            torch.set_rng_state(random_state)

    def _run(self, cell: Any, anatomy: Anatomy, signature: StepSignature, call: Any, rows: int) -> Trace:
        made: dict[int, Traced] = {}

        def replace(tensor: Tensor) -> Tensor:
            if id(tensor) not in made:
                path = anatomy.paths[next(i for i, one in enumerate(anatomy.tensors) if one is tensor)]
                made[id(tensor)] = self._wrap(
                    tensor.detach(), path, requires_grad=tensor.requires_grad and self._differentiate
                )
            return made[id(tensor)]

        stand_in = shadow(cell, replace)
        tensors = [replace(tensor) for tensor in anatomy.tensors]
        self._prepare(stand_in)
        before = _attributes(stand_in)
        inputs, state = (
            [self._wrap(leaf.zeros(rows), leaf.name, requires_grad=self._tracks(leaf.dtype)) for leaf in leaves]
            for leaves in (signature.input_leaves, signature.state_leaves)
        )
        with self:
            result = call(stand_in, _nest.pack_as(signature.inputs, inputs), _nest.pack_as(signature.state, state))
            outputs, new_state = (list(map(self._adopt, part)) for part in result)
        _check_unchanged(before, _attributes(stand_in))
        start = len(self._nodes)
        tangents = [self._tangent(leaf) for leaf in (*outputs, *new_state)]
        gradients = self._gradients([*outputs, *new_state], tangents, [*tensors, *inputs, *state])
        tangent_values = [None if tangent is None else tangent.value for tangent in tangents]
        first, second = len(tensors), len(tensors) + len(inputs)
        return Trace(
            graph=Graph(self._nodes),
            tensors=[tensor.value for tensor in tensors],
            inputs=[leaf.value for leaf in inputs],
            state=[leaf.value for leaf in state],
            outputs=[leaf.value for leaf in outputs],
            new_state=[leaf.value for leaf in new_state],
            output_tangents=tangent_values[: len(outputs)],
            state_tangents=tangent_values[len(outputs) :],
            backward_start=start,
            tensor_gradients=gradients[:first],
            input_gradients=gradients[first:second],
            state_gradients=gradients[second:],
            literals=self._literals,
            device=signature.input_leaves[0].device,
        )

    def _prepare(self, stand_in: Any) -> None:
        """A sequence begins; generators are copies, so that nothing is drawn from the cell's own."""
        for path, module in stand_in.named_modules() if isinstance(stand_in, nn.Module) else ():
            if hasattr(module, "noise_state"):
                module.begin_sequence()
                module.set_noise_state(module.noise_state())
            if hasattr(module, "generator"):
                for device in {torch.device("cpu"), *(tensor.device for tensor in self._alive)}:
                    generator = module.generator(device)
                    if generator is not None:
                        self._generators[generator._cdata] = Source(path, device)

    def _tracks(self, dtype: torch.dtype) -> bool:
        return self._differentiate and dtype.is_floating_point

    def _tangent(self, leaf: Traced) -> Traced | None:
        if not self._differentiate or not leaf.requires_grad:
            return None
        return self._wrap(torch.zeros_like(leaf.inner), f"d_{leaf.value.name}")

    def _gradients(
        self, results: list[Traced], tangents: list[Traced | None], sources: list[Traced]
    ) -> list[Value | None]:
        pairs = [(result, tangent) for result, tangent in zip(results, tangents, strict=True) if tangent is not None]
        wanted = [source for source in sources if source.requires_grad]
        if not pairs or not wanted:
            return [None] * len(sources)
        # create_graph keeps autograd from adding gradients up in place.
        with self:
            found = torch.autograd.grad(
                [result for result, _ in pairs],
                wanted,
                [tangent for _, tangent in pairs],
                allow_unused=True,
                create_graph=True,
            )
            adopted = [None if gradient is None else self._adopt(gradient).value for gradient in found]
        by_source = dict(zip(map(id, wanted), adopted, strict=True))
        return [by_source.get(id(source)) for source in sources]

    def _wrap(self, inner: Tensor, name: str, requires_grad: bool = False) -> Traced:
        self._alive.append(inner)
        key = inner.untyped_storage().data_ptr()
        self._storages[key] = self._storages.get(key, 0) + 1
        return Traced(inner, Value(self._unique(name), tuple(inner.shape), inner.dtype), requires_grad)

    def _unique(self, name: str) -> str:
        name = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_") or "value"
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if not count else f"{name}_{count}"

    def _adopt(self, tensor: Any) -> Traced:
        """A tensor that has come out of a step."""
        if isinstance(tensor, Traced):
            return tensor
        if not isinstance(tensor, Tensor):
            raise Uncompilable("its state or output is no tensor")
        raise Uncompilable("it returns a tensor that is no attribute of it and was not computed in the step")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket in _LOOKS_AT_VALUES:
            raise Uncompilable(f"what it does depends on the values of tensors (aten.{func.overloadpacket.__name__})")
        if func in (aten.detach.default, aten.alias.default):
            (source,) = args
            return self._renamed(source)
        decomposed = DECOMPOSITIONS.get(func)
        if decomposed is not None:
            with self:
                return decomposed(*args, **kwargs)
        if func is aten.lift_fresh.default:
            return self._literal(args[0])
        if func._schema.is_mutable:
            return self._in_place(func, args, kwargs)
        inner_args, inner_kwargs = self._inner((args, kwargs))
        out = func(*inner_args, **inner_kwargs)
        if not isinstance(out, Tensor | tuple | list):
            return self._fact(func, args, out)
        return self._note(func, args, kwargs, out)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its whole compiler to be told to leave this alone, which takes a second."""
        return False

    def _fact(self, func: OpOverload, args: Any, out: Any) -> Any:
        """What is no tensor, such as the dtype that two others promote to, may not come from one."""
        if any(isinstance(arg, Tensor) for arg in args):
            raise Uncompilable(f"what it does depends on the values of tensors ({func})")
        return out

    def _renamed(self, source: Any) -> Any:
        if not isinstance(source, Traced):
            raise Uncompilable(_unknown_tensor(source))
        twin = Traced(source.inner, source.value)
        return twin

    def _literal(self, tensor: Tensor) -> Tensor:
        """A number written in the step: it is the same at every step."""
        literal = self._wrap(tensor, "literal")
        self._literals[literal.value] = tensor
        return literal

    def _inner(self, tree: Any) -> Any:
        if isinstance(tree, Traced):
            return tree.inner
        if isinstance(tree, Tensor):
            raise Uncompilable(_unknown_tensor(tree))
        if isinstance(tree, tuple | list):
            return type(tree)(map(self._inner, tree))
        if isinstance(tree, dict):
            return {key: self._inner(part) for key, part in tree.items()}
        return tree

    def _values(self, tree: Any) -> Any:
        """Arguments as a graph has them: values for tensors, sources for generators."""
        if isinstance(tree, Traced):
            return tree.value
        if isinstance(tree, torch.Generator):
            if tree._cdata not in self._generators:
                raise Uncompilable("it draws from a random generator that the engine cannot find again")
            return self._generators[tree._cdata]
        if isinstance(tree, tuple | list):
            return type(tree)(map(self._values, tree))
        if isinstance(tree, dict):
            return {key: self._values(part) for key, part in tree.items()}
        return tree

    def _note(self, func: OpOverload, args: Any, kwargs: Any, out: Any) -> Any:
        name = func.overloadpacket.__name__.strip("_")
        outs = out if isinstance(out, tuple | list) else (out,)
        if not all(isinstance(part, Tensor) or part is None for part in outs):
            raise Uncompilable(f"aten.{name} does not compute tensors")
        wrapped = [None if part is None else self._wrap(part, name) for part in outs]
        results = tuple(Value("unused", (), torch.float32) if part is None else part.value for part in wrapped)
        self._nodes.append(Node(func, self._values(tuple(args)), self._values(kwargs), results))
        return type(out)(wrapped) if isinstance(out, tuple | list) else wrapped[0]

    def _in_place(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """An operation in place on a tensor that nothing else looks into is the same operation out of place."""
        target = args[0]
        name = func.overloadpacket.__name__
        if not isinstance(target, Traced):
            raise Uncompilable(_unknown_tensor(target))
        plain = getattr(aten, name[:-1], None) if name.endswith("_") else None
        overload = None if plain is None else getattr(plain, func._overloadname, None)
        shared = self._storages[target.inner.untyped_storage().data_ptr()] > 1
        made_here = any(target.value in node.results for node in self._nodes)
        if name == "bernoulli_":
            overload = aten.bernoulli.p
        if overload is None or shared or not made_here:
            raise Uncompilable(f"it changes a tensor in place that is seen elsewhere (aten.{name})")
        with self:
            noted = overload(*args, **kwargs)
        target.value, target.inner = noted.value, noted.inner
        return target


def _unknown_tensor(tensor: Any) -> str:
    return (
        f"it uses a tensor of shape {tuple(tensor.shape)} that is no attribute of it: "
        "the engine could not see when it changes"
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:160]


def _attributes(cell: Any) -> dict[str, Any]:
    """What a cell holds besides tensors and noise, to see whether a step changes it."""
    named = cell.named_modules() if isinstance(cell, nn.Module) else [("", cell)]
    return {
        f"{path}.{name}".strip("."): _content(part)
        for path, module in named
        for name, part in getattr(module, "__dict__", {}).items()
        if name not in getattr(module, "unwatched", ()) and not (isinstance(module, nn.Module) and name in BOOKKEEPING)
    }


def _content(part: Any) -> Any:
    """An object as it can be recognised: by what it holds if that can change, else by itself."""
    if isinstance(part, list | tuple | set):
        return (type(part), *map(_content, part))
    if isinstance(part, dict):
        return (type(part), *((key, _content(value)) for key, value in part.items()))
    return _Same(part)


class _Same:
    """Equal only if it is the very same object."""

    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._thing is other._thing

    __hash__ = None  # type: ignore[assignment]


def _check_unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            raise Uncompilable(f"a step changes the cell itself (its attribute `{name}`)")


class _Merge:
    """Two traces of the same step for different numbers of rows, made into one for any number."""

    def __init__(self, one: Trace, other: Trace) -> None:
        self._made: dict[Value, Value] = {}
        if [node.target for node in one.graph.nodes] != [node.target for node in other.graph.nodes]:
            raise Uncompilable("what it does depends on the number of rows in the batch")
        self._twins: dict[Value, Value] = {}
        for field in ("tensors", "inputs", "state", "output_tangents", "state_tangents"):
            self._pair(getattr(one, field), getattr(other, field))
        self._pair(list(one.literals), list(other.literals))
        nodes = [self._node(a, b) for a, b in zip(one.graph.nodes, other.graph.nodes, strict=True)]
        self.trace = Trace(
            graph=Graph(nodes),
            backward_start=one.backward_start,
            device=one.device,
            literals={self._made[value]: literal for value, literal in one.literals.items()},
            **{
                field: [None if value is None else self._made[value] for value in getattr(one, field)]
                for field in (
                    "tensors",
                    "inputs",
                    "state",
                    "outputs",
                    "new_state",
                    "output_tangents",
                    "state_tangents",
                    "tensor_gradients",
                    "input_gradients",
                    "state_gradients",
                )
            },
        )
        for field in ("outputs", "new_state", "tensor_gradients", "input_gradients", "state_gradients"):
            for a, b in zip(getattr(one, field), getattr(other, field), strict=True):
                if (a is None) != (b is None) or (a is not None and self._twins[a] is not b):
                    raise Uncompilable("what it does depends on the number of rows in the batch")

    def _pair(self, ones: Sequence[Value | None], others: Sequence[Value | None]) -> None:
        for one, other in zip(ones, others, strict=True):
            if one is not None and other is not None:
                self._value(one, other)

    def _value(self, one: Value, other: Value) -> Value:
        if one not in self._made:
            if len(one.shape) != len(other.shape):
                raise Uncompilable("what it does depends on the number of rows in the batch")
            shape = tuple(self._size(a, b) for a, b in zip(one.shape, other.shape, strict=True))
            if shape.count(ROWS) > 1:
                raise Uncompilable(f"the rows of a batch meet each other ({one.name} has shape {list(shape)})")
            self._made[one] = Value(one.name, shape, one.dtype)
            self._twins[one] = other
        elif self._twins[one] is not other:
            raise Uncompilable("what it does depends on the number of rows in the batch")
        return self._made[one]

    def _size(self, one: Any, other: Any) -> Dim:
        if one == other:
            return int(one)
        if (one, other) == BATCHES:
            return ROWS
        raise Uncompilable(
            f"it folds the rows of a batch into another dimension (a size of {one} for {BATCHES[0]} rows "
            f"and of {other} for {BATCHES[1]})"
        )

    def _argument(self, one: Any, other: Any) -> Any:
        if isinstance(one, Value):
            if not isinstance(other, Value) or one not in self._made or self._twins[one] is not other:
                raise Uncompilable("what it does depends on the number of rows in the batch")
            return self._made[one]
        if isinstance(one, tuple | list):
            if len(one) != len(other):
                raise Uncompilable("what it does depends on the number of rows in the batch")
            return type(one)(self._argument(a, b) for a, b in zip(one, other, strict=True))
        if isinstance(one, dict):
            return {key: self._argument(part, other[key]) for key, part in one.items()}
        if type(one) is int and type(other) is int and one != other:
            return self._size(one, other)
        if one != other and not (one != one and other != other):
            raise Uncompilable(f"it computes with the number of rows in the batch ({one} here, {other} there)")
        return one

    def _node(self, one: Node, other: Node) -> Node:
        args, kwargs = (self._argument(*pair) for pair in ((one.args, other.args), (one.kwargs, other.kwargs)))
        results = tuple(self._value(*pair) for pair in zip(one.results, other.results, strict=True))
        return Node(one.target, args, kwargs, results)


