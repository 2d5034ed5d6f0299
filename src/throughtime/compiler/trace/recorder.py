"""One run of a step that notes every operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward, saved_tensors_hooks

from throughtime import _pytree
from throughtime._torch_internals import DisableTorchFunction, OpOverload, TorchDispatchMode, no_dispatch, tree_leaves
from throughtime.cells._rng import drawing
from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.guards.fingerprint import CellFingerprint, anatomies, changed_attribute
from throughtime.compiler.ir.graph import Graph, Node, Value
from throughtime.compiler.trace.batched_matmul import RowAxes
from throughtime.compiler.trace.call_log import CallLog
from throughtime.compiler.trace.decompositions import DECOMPOSITIONS
from throughtime.compiler.trace.foreign_rng import foreign_randomness, unseeded
from throughtime.compiler.trace.functionalize import Memory, View, out_of_place, written_by
from throughtime.compiler.trace.side_effects import OutsideState, side_effects_undone
from throughtime.compiler.trace.stand_in import with_tensors
from throughtime.compiler.trace.trace import ESCAPED, Source, StepCall, StepSignature, Trace, TracedTensor

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


def record(
    cell: Any,
    anatomy: CellFingerprint,
    signature: StepSignature,
    call: StepCall,
    rows: int,
    axes: RowAxes,
    *,
    differentiate: bool,
    outside: OutsideState,
) -> Trace:
    """Run one step on so many rows, and its gradient if wanted, and write down what happens."""
    axes.begin(rows)
    return _Recording(cell, anatomy, signature, call, rows, axes, differentiate, outside).trace


class _Recording(TorchDispatchMode):
    """One run of the step that notes every operation."""

    def __init__(
        self,
        cell: Any,
        anatomy: CellFingerprint,
        signature: StepSignature,
        call: StepCall,
        rows: int,
        axes: RowAxes,
        differentiate: bool,
        outside: OutsideState,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._nodes: list[Node] = []
        self._names: dict[str, int] = {}
        self._literals: dict[Value, Tensor] = {}
        # Of each storage the tensor that was seen first.
        self._storages: dict[int, TracedTensor] = {}
        self._alive: list[Tensor] = []
        self._generators: dict[int, Source] = {}
        self._differentiate = differentiate
        # Whether torch differentiates what is being recorded; and whether that was ever kept from it.
        self._is_forward = differentiate
        self._is_plain = True
        self._calls = CallLog(axes)
        self._owner = object()
        devices = {leaf.device for leaf in signature.input_leaves if leaf.device.type == "cuda"}
        # Autocast would cast its weights once and keep them for later steps: as part of this step, it must cast.
        cache = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        # A user's hooks on saved tensors are for real ones; only the innermost hooks are called.
        hidden = saved_tensors_hooks(_with_version, _unchanged)
        try:
            with (
                side_effects_undone(cell),
                outside.watched(),
                foreign_randomness(anatomy.kept),
                torch.random.fork_rng(list(devices)),
                torch.inference_mode(False),
                torch.set_grad_enabled(differentiate),
                hidden,
            ):
                self.trace = self._run(cell, anatomy, signature, call, rows)
        except Uncompilable:
            raise
        except NotImplementedError as error:
            raise Uncompilable(f"it cannot be traced ({_first_line(error)})") from error
        except RuntimeError as error:
            raise Uncompilable(_reason(error)) from error
        finally:
            torch.set_autocast_cache_enabled(cache)

    def _run(self, cell: Any, anatomy: CellFingerprint, signature: StepSignature, call: StepCall, rows: int) -> Trace:
        made: dict[int, TracedTensor] = {}

        def replace(tensor: Tensor) -> TracedTensor:
            if id(tensor) not in made:
                path = anatomy.paths[next(i for i, one in enumerate(anatomy.tensors) if one is tensor)]
                made[id(tensor)] = self._wrap(
                    tensor.detach(), path, requires_grad=tensor.requires_grad and self._differentiate, of_cell=True
                )
            return made[id(tensor)]

        stand_in = with_tensors(cell, replace, anatomy.named)
        tensors = [replace(tensor) for tensor in anatomy.tensors]
        self._prepare(stand_in)
        before = anatomies(stand_in)
        inputs, state = (
            [self._wrap(leaf.zeros(rows), leaf.name, requires_grad=self._tracks(leaf.dtype)) for leaf in leaves]
            for leaves in (signature.input_leaves, signature.state_leaves)
        )
        begun = [[leaf.value for leaf in leaves] for leaves in (tensors, inputs, state)]
        self._calls.note("begin", None, None, [*tensors, *inputs, *state])
        with self, self._calls, unseeded():
            result = _by_the_cell(
                call, stand_in, _pytree.pack_as(signature.inputs, inputs), _pytree.pack_as(signature.state, state)
            )
            outputs, new_state = (list(map(self._adopt, part)) for part in result)
        if self._calls.failure is not None:
            # The step has caught it, and gone on in another way than it would with values.
            raise self._calls.failure
        results = [*outputs, *new_state]
        self._calls.note("return", self._calls.described(results), None, results)
        changed = changed_attribute(stand_in, before)
        if changed is not None:
            raise Uncompilable(f"a step changes the cell itself (its attribute `{changed}`)")
        start, self._is_forward = len(self._nodes), False
        cotangents = [self._cotangent(leaf) for leaf in results]
        gradients = self._gradients(results, cotangents, [*tensors, *inputs, *state])
        cotangent_values = [None if cotangent is None else cotangent.value for cotangent in cotangents]
        first, second = len(tensors), len(tensors) + len(inputs)
        return Trace(
            graph=Graph(self._nodes),
            tensors=begun[0],
            inputs=begun[1],
            state=begun[2],
            outputs=[leaf.value for leaf in outputs],
            new_state=[leaf.value for leaf in new_state],
            once=_kept_noise(stand_in),
            output_cotangents=cotangent_values[: len(outputs)],
            state_cotangents=cotangent_values[len(outputs) :],
            backward_start=start,
            tensor_gradients=gradients[:first],
            input_gradients=gradients[first:second],
            state_gradients=gradients[second:],
            literals=self._literals,
            device=signature.input_leaves[0].device,
            rows=rows,
            calls=self._calls.made,
            is_plain=self._is_plain,
        )

    def _prepare(self, stand_in: Any) -> None:
        """A sequence begins; generators are copies, so that nothing is drawn from the cell's own."""
        for path, module in drawing(stand_in):
            module.begin_sequence()
            module.set_noise_state(module.noise_state())
            for device in {torch.device("cpu"), *(tensor.device for tensor in self._alive)}:
                generator = module.generator(device)
                if generator is not None:
                    self._generators[_identity(generator)] = Source(path, device)

    def _tracks(self, dtype: torch.dtype) -> bool:
        return self._differentiate and dtype.is_floating_point

    def _cotangent(self, leaf: TracedTensor) -> TracedTensor | None:
        if not leaf.requires_grad:
            return None
        return self._wrap(torch.zeros_like(leaf.held), f"d_{leaf.value.name}")

    def _gradients(
        self, results: list[TracedTensor], cotangents: list[TracedTensor | None], sources: list[TracedTensor]
    ) -> list[Value | None]:
        pairs = [
            (result, cotangent) for result, cotangent in zip(results, cotangents, strict=True) if cotangent is not None
        ]
        wanted = [source for source in sources if source.requires_grad]
        if not pairs or not wanted:
            return [None] * len(sources)
        # Autograd is torch itself, but for functions that have a gradient of their own.
        self._calls.inside = True
        # create_graph keeps autograd from adding gradients up in place.
        with self, self._calls:
            # What `torch.autograd.grad` does, but for a look at shapes that takes it an import of sympy.
            found: Sequence[Tensor | None] = _engine_run_backward(
                tuple(result for result, _ in pairs),
                tuple(cotangent for _, cotangent in pairs),
                True,
                True,
                tuple(wanted),
                True,
                accumulate_grad=False,
            )
            adopted = [None if gradient is None else self._adopt(gradient).value for gradient in found]
        by_source = dict(zip(map(id, wanted), adopted, strict=True))
        return [by_source.get(id(source)) for source in sources]

    def _wrap(
        self, inner: Tensor, name: str, *, requires_grad: bool = False, constant: bool = False, of_cell: bool = False
    ) -> TracedTensor:
        """A tensor with a memory of its own."""
        value = Value(self._unique(name), tuple(inner.shape), inner.dtype)
        memory = Memory(value, self._emit, of_cell=of_cell, constant=constant)
        return self._known(TracedTensor(inner, memory, (), self._owner, requires_grad=requires_grad).shows(value))

    def _known(self, tensor: TracedTensor) -> TracedTensor:
        # Its storage is kept: no other may come to lie there.
        self._alive.append(tensor.held)
        storage = tensor.held.untyped_storage()
        if storage.nbytes():
            self._storages.setdefault(storage.data_ptr(), tensor)
        return tensor

    def _view(self, inner: Tensor, source: TracedTensor, view: View, name: str) -> TracedTensor:
        """A tensor that looks into the memory of another."""
        value = Value(self._unique(name), tuple(inner.shape), inner.dtype)
        return self._known(TracedTensor(inner, source.memory, (*source.views, view), self._owner).shows(value))

    def _emit(self, func: OpOverload, args: tuple[Any, ...], shape: tuple[int, ...], dtype: torch.dtype) -> Value:
        value = Value(self._unique(func.overloadpacket.__name__), shape, dtype)
        self._nodes.append(Node(func, args, {}, (value,)))
        return value

    def _unique(self, name: str) -> str:
        name = "".join(letter if letter.isalnum() else "_" for letter in name).strip("_") or "value"
        count = self._names.get(name, 0)
        self._names[name] = count + 1
        return name if not count else f"{name}_{count}"

    def _adopt(self, tensor: Any) -> TracedTensor:
        """A tensor that has come out of a step."""
        if isinstance(tensor, TracedTensor):
            return tensor
        raise Uncompilable("it returns a tensor that is no attribute of it and was not computed in the step")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with DisableTorchFunction():
            return self._record(func, args, kwargs or {})

    def _record(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.overloadpacket in _LOOKS_AT_VALUES:
            raise Uncompilable(f"what it does depends on the values of tensors (aten.{func.overloadpacket.__name__})")
        if self._is_forward and (func is aten.detach.default or not torch.is_grad_enabled()):
            self._is_plain &= not any(isinstance(arg, Tensor) and arg.requires_grad for arg in tree_leaves(args))
        own = _OWN_RECORDS.get(func)
        if own is not None:
            return own(self, *args, **kwargs)
        decomposed = DECOMPOSITIONS.get(func)
        if decomposed is not None:
            with self:
                simpler = decomposed(*args, **kwargs)
            if simpler is not NotImplemented:
                return simpler
        if func._schema.is_mutable:
            return self._in_place(func, args, kwargs)
        args = _normalized(func, args)
        inner_args, inner_kwargs = self._unwrapped((args, kwargs))
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

    def _renamed(self, source: object) -> object:
        if not isinstance(source, TracedTensor):
            raise Uncompilable(_unknown_tensor(source))
        self._check_own(source)
        return TracedTensor(source.held, source.memory, source.views, self._owner).shows(source.value)

    def _check_own(self, tensor: TracedTensor) -> None:
        if tensor.owner is not self._owner:
            raise Uncompilable(ESCAPED)

    def _blank(self, like: Any, size: Any, stride: Any, *, dtype: Any = None, device: Any = None, **_: Any) -> Tensor:
        """What autograd makes to write the gradient of a view into: how it lies in memory does not matter."""
        dtype, device = dtype or like.dtype, device or like.device
        blank = torch.empty_strided(size, stride, dtype=dtype, device=device)
        made: Tensor = self._note(aten.empty.memory_format, (list(size),), {"dtype": dtype, "device": device}, blank)
        return made

    def _literal(self, tensor: Tensor) -> Tensor:
        """A number written in the step: it is the same at every step."""
        literal = self._wrap(tensor, "literal", constant=True)
        self._literals[literal.value] = tensor
        return literal

    def _unwrapped(self, tree: Any) -> Any:
        if isinstance(tree, TracedTensor):
            self._check_own(tree)
            return tree.held
        if isinstance(tree, Tensor):
            raise Uncompilable(_unknown_tensor(tree))
        if isinstance(tree, tuple | list):
            return type(tree)(map(self._unwrapped, tree))
        if isinstance(tree, dict):
            return {key: self._unwrapped(part) for key, part in tree.items()}
        return tree

    def _values(self, tree: Any) -> Any:
        """Arguments as a graph has them: values for tensors, sources for generators."""
        if isinstance(tree, TracedTensor):
            return tree.value
        if isinstance(tree, torch.Generator):
            source = self._generators.get(_identity(tree))
            if source is None:
                raise Uncompilable("it draws from a random generator that the engine cannot find again")
            return source
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
        given = [leaf.constant for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, TracedTensor)]
        constant = all(given) and torch.Tag.nondeterministic_seeded not in func.tags
        wrapped = [None if part is None else self._result(part, func, args, name, constant) for part in outs]
        results = tuple(Value("unused", (), torch.float32) if part is None else part.value for part in wrapped)
        self._nodes.append(Node(func, self._values(tuple(args)), self._values(kwargs), results))
        if not self._calls.inside:
            # Called by something that is no function of torch, such as a script.
            self._calls.note(func, self._calls.described((args, kwargs)), (args, kwargs), wrapped)
        return type(out)(wrapped) if isinstance(out, tuple | list) else wrapped[0]

    def _result(self, part: Tensor, func: OpOverload, args: Any, name: str, constant: bool) -> TracedTensor:
        storage = part.untyped_storage()
        seen = self._storages.get(storage.data_ptr()) if storage.nbytes() else None
        if seen is None:
            return self._wrap(part, name, constant=constant)
        first = args[0] if args and isinstance(args[0], TracedTensor) else None
        if first is not None and first.held.untyped_storage().data_ptr() == storage.data_ptr():
            return self._view(part, first, View(func, tuple(args[1:]), tuple(first.shape), tuple(part.shape)), name)
        # Nothing is known of how it looks into the memory of another argument: it cannot be written to.
        unknown = View(aten.as_strided.default, (), tuple(seen.shape), tuple(part.shape))
        return self._view(part, seen, unknown, name)

    def _in_place(self, func: OpOverload, args: Any, kwargs: Any) -> Any:
        """An operation in place as the operation out of place, whose results are then written."""
        name = func.overloadpacket.__name__
        targets = written_by(func, args, kwargs)
        for target in targets:
            if not isinstance(target, TracedTensor):
                raise Uncompilable(f"it changes in place what is no tensor of the step (aten.{name})")
            self._check_own(target)
            if target.memory.of_cell:
                raise Uncompilable(f"it changes a tensor of the cell in place (aten.{name})")
        plain = out_of_place(func, args, kwargs)
        if plain is None:
            raise Uncompilable(f"it uses aten.{name}, of which only the form in place is known")
        operation, plain_args, plain_kwargs = plain
        with self:
            noted = operation(*plain_args, **plain_kwargs)
            if torch.Tag.inplace_view in func.tags:
                return self._look_through(targets[0], noted, func, args)
            results = noted if isinstance(noted, tuple | list) else (noted,)
            for target, result in zip(targets, results, strict=True):
                self._write(target, result)
        return targets[0] if len(targets) == 1 else tuple(targets)

    def _look_through(self, target: TracedTensor, view: TracedTensor, func: OpOverload, args: Any) -> TracedTensor:
        """`unsqueeze_` and the like: the same memory, seen in another shape, which torch notes at the tensor."""
        with no_dispatch():
            func(target, *args[1:])
        target.held, target.views = view.held, view.views
        return target.shows(view.value)

    def _write(self, target: TracedTensor, result: TracedTensor) -> None:
        if result.shape != target.shape or not torch.can_cast(result.dtype, target.dtype):
            what = f"a {result.dtype} tensor of shape {tuple(result.shape)} is written into {target!r}"
            raise Uncompilable(f"it cannot be traced ({what})")
        if result.dtype != target.dtype:
            result = aten._to_copy.default(result, dtype=target.dtype)
        target.memory.write(target.views, result.value)
        target.shows(result.value)


_OWN_RECORDS: dict[OpOverload, Callable[..., object]] = {
    aten.detach.default: _Recording._renamed,
    aten.alias.default: _Recording._renamed,
    aten.lift_fresh.default: _Recording._literal,
    aten.new_empty_strided.default: _Recording._blank,
}


def _with_version(tensor: Tensor) -> tuple[Tensor, int]:
    return tensor, tensor._version


def _unchanged(saved: tuple[Tensor, int]) -> Tensor:
    """What was saved for a gradient, unless it was written to since: where there are hooks, torch does not look."""
    tensor, version = saved
    if tensor._version != version:
        raise RuntimeError("a tensor that a gradient needs has been modified by an inplace operation")
    return tensor


def _by_the_cell(call: Any, *args: Any) -> Any:
    """Call the cell; whatever it raises is its own affair, and the reference raises it again where it belongs."""
    try:
        return call(*args)
    except (Uncompilable, NotImplementedError, RuntimeError):
        raise
    except Exception as error:
        raise Uncompilable(f"it cannot be traced ({type(error).__name__}: {_first_line(error)})") from error


def _normalized(func: OpOverload, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Places counted from the start, and within bounds: `v[:, -1:]` and `v[:, 6:7]` are one thing."""
    first = {aten.slice.Tensor: 1, aten.slice_scatter.default: 2, aten.select.int: 1}.get(func)
    if first is None or len(args) <= first:
        return args
    shape = args[0].shape
    dim = args[first] % len(shape)
    if func is aten.select.int:
        return (args[0], dim, args[2] % shape[dim])
    step = args[first + 3] if len(args) > first + 3 else 1
    ends = [args[place] if len(args) > place else None for place in (first + 1, first + 2)]
    start, stop, _ = slice(*ends).indices(shape[dim])
    return (*args[:first], dim, start, max(start, stop), *([step] if step != 1 else []))


def _unknown_tensor(tensor: Any) -> str:
    return (
        f"it uses a tensor of shape {tuple(tensor.shape)} that is no attribute of it: "
        "the engine could not see when it changes"
    )


def _identity(generator: Any) -> int:
    """A generator has many Python objects, but one address."""
    address: int = generator._cdata
    return address


def _reason(error: RuntimeError) -> str:
    """What an error of torch in a step says about the cell."""
    if "tensor subclass" in str(error):
        return f"what it does depends on the values of tensors ({_first_line(error)})"
    if "leaf Variable that requires grad" in str(error):
        return "it changes a tensor in place that has a gradient of its own, such as a parameter"
    return f"it cannot be traced ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:160]


def _kept_noise(stand_in: object) -> list[Value]:
    """What the modules that draw random numbers keep for the rest of the sequence."""
    states = [module.noise_state() for _, module in drawing(stand_in)]
    return [
        tensor.value
        for state in states
        for tensor in CellFingerprint(state).tensors
        if isinstance(tensor, TracedTensor)
    ]
