"""The unroll as one custom operator, so that torch.compile sees one node for any number of steps.

A compiled graph contains tensors and numbers only: the cell is passed as its number, and its parameters as arguments,
by name. Values saved for the backward pass are results of the operator.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from throughtime import _pytree
from throughtime._errors import problem
from throughtime._pytree import Nest
from throughtime._torch_internals import (
    ForceDispatchKeyGuard,
    disable_current_modes,
    disable_dynamo,
    dispatch_keys_of_thread,
)
from throughtime.backends.checked_cell import CheckedCell
from throughtime.backends.loop_backend import Cotangents
from throughtime.cells._base import RNNCell, begin_sequence, find_cell
from throughtime.compiler import Value
from throughtime.layout.pack import AS_GIVEN, LeafLists
from throughtime.runtime.autograd import UnrollCall, backward_rows, forward_rows, without_aliases
from throughtime.runtime.forward import Executable
from throughtime.runtime.rng import RngState
from throughtime.runtime.select import choose
from throughtime.unroll._arguments import check_lengths
from throughtime.unroll._batch_format import Padded
from throughtime.unroll._run_compiled import draw
from throughtime.unroll._schedule import Dense, Schedule, make_schedule
from throughtime.unroll.torch_compile._executable_handles import handle_of, resolve

_library = torch.library.Library("throughtime", "FRAGMENT")
_ARGUMENTS = (
    "Tensor[] tensors, Tensor[] inputs, Tensor[] state, Tensor? lengths, str structure, str[] names, "
    "int number, ScalarType dtype, ScalarType? autocast, bool time_major, bool reverse, bool all_states, "
    "int? parallel_iterations, bool train"
)
# Kernels cache memory across calls, and the host plans their launches: torch cannot capture them in its CUDA graphs.
_UNGRAPHED = torch.Tag.cudagraph_unsafe
# `first` repeats the first of the inputs: to replay random numbers, torch takes the device of an argument that is a
# tensor, and ignores lists.
_library.define(f"unroll(Tensor first, {_ARGUMENTS}) -> Tensor[]", tags=(torch.Tag.nondeterministic_seeded, _UNGRAPHED))
_library.define(
    f"unroll_backward({_ARGUMENTS}, Tensor[] kept, Tensor?[] gradients, bool[] wanted) -> Tensor[]", tags=(_UNGRAPHED,)
)


class _Arguments(NamedTuple):
    """The operator's arguments besides tensors; `autocast` is the dtype of active autocast, or None."""

    structure: str
    names: list[str]
    number: int
    dtype: torch.dtype
    autocast: torch.dtype | None
    time_major: bool
    reverse: bool
    all_states: bool
    parallel_iterations: int | None
    train: bool


@dataclass
class _Site:
    """One call of the operator: its cell and the executable that runs it."""

    cell: RNNCell | None
    executable: Executable
    form: Padded
    # For each of the cell's tensors its index among the operator's tensors.
    places: Sequence[int]

    def in_order(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The operator's tensors in the order of the program."""
        return [tensors[place] for place in self.places]

    @property
    def kept(self) -> list[Value]:
        """The saved values that are not outputs."""
        outputs = set(self.executable.program.outputs)
        return [value for value in self.executable.kept if value not in outputs]

    def call(
        self, schedule: Schedule, device: torch.device, parallel_iterations: int | None, *, draws: bool
    ) -> UnrollCall:
        """The call on rows that the schedule has packed; only a forward pass draws random numbers."""
        steps = schedule.steps
        # Random numbers are replayed by torch, so the state of generators is not saved here.
        noise = RngState(self.cell, device, is_random=False)
        drawn = draw(self.executable, steps, noise) if draws else {}
        return UnrollCall(self.executable, steps, AS_GIVEN, noise, drawn, parallel_iterations)


def _site(inputs: Sequence[Tensor], state: Sequence[Tensor], arguments: _Arguments) -> _Site:
    """Find the cell and compile it; of the tensors only shapes and dtypes count."""
    cell = find_cell(arguments.number)
    assert cell is not None
    kind = inputs[0].device.type
    autocast = torch.autocast(kind, arguments.autocast, enabled=arguments.autocast is not None, cache_enabled=False)
    with without_modes(), autocast, torch.set_grad_enabled(arguments.train):
        blanks = [blank_row(leaf, leaf.shape[2:]) for leaf in inputs]
        state_nest = _pytree.pack_as(cell.state_size, list(range(len(state))))
        blank_state = _pytree.map_leaves(lambda i: blank_row(state[i], state[i].shape[1:]), state_nest)
        nest = _pytree.pack_as(_template(arguments.structure), blanks)
        step = CheckedCell(cell, blank_state, arguments.dtype)
        train, all_states = arguments.train, arguments.all_states
        choice = choose(step, nest, blanks, blank_state, keep_states=all_states, differentiate=train)
        own = {id(tensor): arguments.names.index(name) for name, tensor in _named_tensors(cell)}
    if choice.executable is None or choice.fingerprint is None:
        raise ValueError(
            problem(
                "torch.compile cannot take this cell as one operator",
                got="; ".join(dict.fromkeys(choice.reasons.values())),
                expected="a cell that can be compiled",
                fix="Call the unroll outside of the compiled function, for example under torch.compiler.disable.",
            )
        )
    for path, tensor in zip(choice.fingerprint.paths, choice.fingerprint.tensors, strict=True):
        if id(tensor) not in own:
            what, fix = "torch.compile cannot see a tensor of the cell", "Register it with `register_buffer`."
            raise ValueError(problem(what, got=f"the attribute {path}", expected="a parameter or a buffer", fix=fix))
    places = [own[id(tensor)] for tensor in choice.fingerprint.tensors]
    return _Site(cell, choice.executable, _form_of(inputs, arguments), places)


def _site_of(handle: Tensor, inputs: Sequence[Tensor], arguments: _Arguments) -> _Site:
    """The site of the forward pass that has returned this handle."""
    executable, places = resolve(handle)
    return _Site(find_cell(arguments.number), executable, _form_of(inputs, arguments), places)


def _form_of(inputs: Sequence[Tensor], arguments: _Arguments) -> Padded:
    first, second = inputs[0].shape[:2]
    time, batch = (first, second) if arguments.time_major else (second, first)
    return Padded(batch, time, arguments.time_major)


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """Disable the active modes of torch, and reset the dispatch keys of the thread.

    Inside of an operator, torch excludes the dispatch keys that it has passed. A step that is traced there needs them:
    on a GPU its gradients are computed in other threads, which do not exclude them.
    """
    with disable_current_modes(), ForceDispatchKeyGuard(*_default_dispatch_keys()):
        yield


@functools.cache
def _default_dispatch_keys() -> tuple[Any, Any]:
    """The dispatch keys that a new thread includes and excludes."""
    found: list[tuple[Any, Any]] = []

    def look() -> None:
        found.append(dispatch_keys_of_thread())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


def blank_row(leaf: Tensor, dims: Sequence[int], rows: Sequence[int] = (1,)) -> Tensor:
    """Zeros like one row of a tensor: the sizes of features are known, even if torch has made them symbolic."""
    return torch.zeros(*map(int, (*rows, *dims)), dtype=leaf.dtype, device=leaf.device)


def _template(structure: str) -> Nest:
    """A nest of the structure that `_pytree.describe` has written as a string."""
    return ast.literal_eval(structure.replace("*", "None"))


def _named_tensors(cell: RNNCell) -> list[tuple[str, Tensor]]:
    return [*cell.named_parameters(), *cell.named_buffers()]


def _schedule(site: _Site, lengths: Tensor | None, arguments: _Arguments) -> Schedule:
    checked = check_lengths(lengths, site.form.batch_size)
    in_chunks = arguments.parallel_iterations is not None
    return make_schedule(site.form, checked, reverse=arguments.reverse, in_chunks=in_chunks)


def _forward(
    first: Tensor,
    tensors: list[Tensor],
    inputs: list[Tensor],
    state: list[Tensor],
    lengths: Tensor | None,
    *rest: Any,
) -> list[Tensor]:
    """Outputs, all states if they are required, the final state, a handle, and the saved values."""
    arguments = _Arguments(*rest)
    site = _site(inputs, state, arguments)
    assert site.cell is not None
    schedule = _schedule(site, lengths, arguments)
    if not schedule.active:
        return _no_steps(site, inputs, state, arguments.all_states)
    begin_sequence(site.cell)
    rows, start = schedule.pack(inputs, state)
    site.cell.check_values(_pytree.pack_as(_template(arguments.structure), rows))
    call = site.call(schedule, first.device, arguments.parallel_iterations, draws=True)
    outputs, final, saved = forward_rows(call, site.in_order(tensors), rows, start)
    # States are among the outputs, after those of the cell.
    count = len(outputs) - (len(final) if arguments.all_states else 0)
    restored, final = schedule.unpack(outputs[:count], final)
    restored += schedule.unpack_states(outputs[count:], final) if arguments.all_states else []
    results = [*restored, *final, *(saved[value] for value in site.kept)]
    own = without_aliases(results, [*tensors, *inputs, *state])
    split = len(restored) + len(final)
    return [*own[:split], handle_of(site.executable, site.places), *own[split:]]


def _no_steps(site: _Site, inputs: list[Tensor], state: list[Tensor], all_states: bool) -> list[Tensor]:
    """Every length is 0: zero outputs, and the initial state as all states."""
    results = [blank.zero_() for blank in _blank_results(site, inputs, state, 0)]
    count = len(site.executable.program.outputs)
    results[count + len(state)] = handle_of(site.executable, site.places)
    first = count - len(state) if all_states else count
    for result, leaf in zip(results[first:count], state, strict=False):
        result.copy_(leaf.unsqueeze(site.form.time_axis).expand_as(result))
    for result, leaf in zip(results[count : count + len(state)], state, strict=True):
        result.copy_(leaf)
    return results


def _blank_results(site: _Site, inputs: Sequence[Tensor], state: Sequence[Tensor], rows: Any) -> list[Tensor]:
    """Tensors of the shapes of the results; saved values have `rows` rows, which may be a symbolic number."""
    leading = list(inputs[0].shape[:2])
    program = site.executable.program
    results = [inputs[0].new_empty([*leading, *value.row_shape], dtype=value.dtype) for value in program.outputs]
    results += [leaf.new_empty(leaf.shape) for leaf in state]
    results.append(torch.empty(1 + len(site.places), dtype=torch.int64, device="cpu"))
    results += [inputs[0].new_empty(value.sized(rows), dtype=value.dtype) for value in site.kept]
    return results


def _fake_forward(
    first: Tensor,
    tensors: list[Tensor],
    inputs: list[Tensor],
    state: list[Tensor],
    lengths: Tensor | None,
    *rest: Any,
) -> list[Tensor]:
    site = _site(inputs, state, _Arguments(*rest))
    rows: Any = inputs[0].shape[0] * inputs[0].shape[1]
    if lengths is not None and site.kept:
        rows = torch.library.get_ctx().new_dynamic_size()
    return _blank_results(site, inputs, state, rows)


def _backward(
    tensors: list[Tensor],
    inputs: list[Tensor],
    state: list[Tensor],
    lengths: Tensor | None,
    *rest: Any,
) -> list[Tensor]:
    """The required gradients of tensors, inputs and state, in this order.

    `saved` begins with the handle and ends with the outputs.
    """
    *others, (handle, *saved), gradients, required = rest
    arguments = _Arguments(*others)
    site = _site_of(handle, inputs, arguments)
    schedule = _schedule(site, lengths, arguments)
    leaves = [*tensors, *inputs, *state]
    if not schedule.active:
        passed = _passed_through(site, state, gradients, arguments.all_states)
        found: list[Tensor | None] = [*[None] * (len(tensors) + len(inputs)), *passed]
    else:
        call = site.call(schedule, inputs[0].device, arguments.parallel_iterations, draws=False)
        rows, start = schedule.pack(inputs, state)
        of_inputs = required[len(tensors) : len(tensors) + len(inputs)]
        needed = (*(required[place] for place in site.places), *of_inputs)
        of_results = _packed_gradients(site, schedule, gradients, len(state), arguments.all_states)
        cotangents = Cotangents(start, *of_results, needed)
        values = backward_rows(call, site.in_order(tensors), rows, _saved_rows(site, schedule, saved), cotangents)
        found = _gradients(site, schedule, len(tensors), *values)
    results = [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient, is_required in zip(leaves, found, required, strict=True)
        if is_required
    ]
    return without_aliases(results, [*leaves, *saved, *(gradient for gradient in gradients if gradient is not None)])


def _passed_through(
    site: _Site, state: list[Tensor], gradients: list[Tensor | None], all_states: bool
) -> list[Tensor | None]:
    """Gradients of an initial state that is also the final one, and that of every step."""
    count = len(site.executable.program.outputs)
    passed = []
    for index in range(len(state)):
        total = gradients[count + index]
        every = gradients[count - len(state) + index] if all_states else None
        if every is not None:
            copied = every.sum(site.form.time_axis)
            total = copied if total is None else total + copied
        passed.append(total)
    return passed


def _saved_rows(site: _Site, schedule: Schedule, saved: Sequence[Tensor]) -> list[Tensor]:
    """The saved values in the order of the executable; those that are outputs are packed again."""
    outputs = site.executable.program.outputs
    values = dict(zip([*site.kept, *outputs], saved, strict=True))
    are_outputs = set(outputs)
    return [schedule.rows(values[value]) if value in are_outputs else values[value] for value in site.executable.kept]


def _packed_gradients(
    site: _Site, schedule: Schedule, gradients: list[Tensor | None], states: int, all_states: bool
) -> LeafLists:
    """The gradients of outputs and of the final state, in the order of the loop."""
    count = len(site.executable.program.outputs)
    outputs, final = gradients[:count], gradients[count : count + states]
    if all_states and not isinstance(schedule, Dense):
        every = gradients[count - states : count]
        final = [_with_copies(schedule, site.form.time_axis, *pair) for pair in zip(final, every, strict=True)]
    return schedule.pack(outputs, final)


def _with_copies(schedule: Schedule, time_axis: int, final: Tensor | None, every: Tensor | None) -> Tensor | None:
    """The gradient of a final state: past the end of a sequence, the state of every step is a copy of it."""
    if every is None:
        return final
    copies: Tensor = (every - schedule.restore(schedule.rows(every))).sum(time_axis)
    return copies if final is None else final + copies


def _gradients(
    site: _Site, schedule: Schedule, tensor_count: int, values: list[Tensor | None], states: list[Tensor | None]
) -> list[Tensor | None]:
    """The gradients of a backward pass in the order of the operator's tensors, inputs and state."""
    by_tensor: list[Tensor | None] = [None] * tensor_count
    for place, gradient in zip(site.places, values[: len(site.places)], strict=True):
        by_tensor[place] = gradient
    of_inputs, of_state = schedule.unpack(values[len(site.places) :], states)
    return [*by_tensor, *of_inputs, *of_state]


def _fake_backward(
    tensors: list[Tensor],
    inputs: list[Tensor],
    state: list[Tensor],
    lengths: Tensor | None,
    *rest: Any,
) -> list[Tensor]:
    leaves = [*tensors, *inputs, *state]
    return [leaf.new_empty(leaf.shape) for leaf, want in zip(leaves, rest[-1], strict=True) if want]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    _, tensors, steps, state, lengths, *rest = inputs
    with torch.no_grad():
        site = _site(steps, state, _Arguments(*rest))
    outputs = len(site.executable.program.outputs)
    split = outputs + len(state)
    ctx.counts = (len(tensors), len(steps), len(state), outputs)
    ctx.options = rest
    ctx.has_lengths = lengths is not None
    known = [] if lengths is None else [lengths]
    ctx.save_for_backward(*tensors, *steps, *state, *known, *output[split:], *output[:outputs])


def _autograd(ctx: Any, gradients: list[Tensor | None]) -> tuple[Any, ...]:
    tensor_count, input_count, state_count, outputs = ctx.counts
    saved = list(ctx.saved_tensors)
    first, second = tensor_count, tensor_count + input_count
    third = second + state_count
    leaves = saved[:third]
    lengths = saved[third] if ctx.has_lengths else None
    kept = saved[third + ctx.has_lengths :]
    wanted = [leaf.is_floating_point() for leaf in leaves]
    results = iter(
        torch.ops.throughtime.unroll_backward(
            leaves[:first],
            leaves[first:second],
            leaves[second:],
            lengths,
            *ctx.options,
            kept,
            list(gradients[: outputs + state_count]),
            wanted,
        )
    )
    found = [next(results) if want else None for want in wanted]
    # torch takes an empty list, of names where there are no parameters, for a list of tensors.
    nothing: list[Any] = [[] if option == [] else None for option in ctx.options]
    return (None, found[:first], found[first:second], found[second:], None, *nothing)


def _no_second_gradient(ctx: Any, gradients: list[Tensor | None]) -> Any:
    what = "torch.compile takes no gradients of gradients of an unroll"
    fix = "Leave the unroll uncompiled where you differentiate twice."
    raise RuntimeError(problem(what, got="create_graph=True", expected="first gradients", fix=fix))


# After a graph break torch.compile would try to compile frames of these functions.
_library.impl("unroll", disable_dynamo(_forward), "CompositeExplicitAutograd")
_library.impl("unroll_backward", disable_dynamo(_backward), "CompositeExplicitAutograd")
torch.library.register_autograd("throughtime::unroll_backward", _no_second_gradient, lib=_library)
torch.library.register_fake("throughtime::unroll", _fake_forward, lib=_library)
torch.library.register_fake("throughtime::unroll_backward", _fake_backward, lib=_library)
_context = disable_dynamo(_setup_context)
torch.library.register_autograd("throughtime::unroll", _autograd, setup_context=_context, lib=_library)

OPERATOR = torch.ops.throughtime.unroll.default
