"""The unroll as one operator, so that torch.compile sees one node whatever the number of steps.

A graph that torch compiles has no cells in it, only tensors and numbers: the cell goes by its number, and its
parameters come as arguments, by name. What the backward pass needs leaves the operator as results of its own.
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
from throughtime._torch_internals import (
    ForceDispatchKeyGuard,
    disable_current_modes,
    disable_dynamo,
    dispatch_keys_of_thread,
)
from throughtime.backends.checked_cell import CheckedCell
from throughtime.cells._base import begin_sequence, cell_by_number, known_cell
from throughtime.compiler import Value
from throughtime.runtime.autograd import UnrollCall, apart, environment
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
# Kernels keep memory from call to call, and launches are planned on the host: no CUDA graph of torch's can hold them.
_UNGRAPHED = torch.Tag.cudagraph_unsafe
# `first` is the first of the inputs once more: to draw the same random numbers again, torch looks for the device of a
# tensor, and looks into no list.
_library.define(f"unroll(Tensor first, {_ARGUMENTS}) -> Tensor[]", tags=(torch.Tag.nondeterministic_seeded, _UNGRAPHED))
_library.define(
    f"unroll_backward({_ARGUMENTS}, Tensor[] kept, Tensor?[] gradients, bool[] wanted) -> Tensor[]", tags=(_UNGRAPHED,)
)


class _Options(NamedTuple):
    """What an unroll is asked for, besides tensors; `autocast` is the dtype that autocast is at work with, if it is."""

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
class _BoundOp:
    """One call of the operator: the cell it means and the program that runs it."""

    cell: Any
    executable: Executable
    form: Padded
    # Which of the operator's tensors each of the cell's tensors is.
    places: list[int]

    def in_order(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The operator's tensors in the order of the program."""
        return [tensors[place] for place in self.places]

    @property
    def kept(self) -> list[Value]:
        """What must leave the operator besides its results, for the backward pass."""
        outputs = set(self.executable.program.outputs)
        return [value for value in self.executable.kept if value not in outputs]


def _site(inputs: Sequence[Tensor], state: Sequence[Tensor], options: _Options) -> _BoundOp:
    """Find the cell and compile it; only shapes and dtypes of the tensors count."""
    cell = cell_by_number(options.number)
    time, batch = inputs[0].shape[:2] if options.time_major else reversed(inputs[0].shape[:2])
    kind = inputs[0].device.type
    autocast = torch.autocast(kind, options.autocast, enabled=options.autocast is not None, cache_enabled=False)
    with without_modes(), autocast, torch.set_grad_enabled(options.train):
        blanks = [blank_row(leaf, leaf.shape[2:]) for leaf in inputs]
        state_nest = _pytree.pack_as(cell.state_size, list(range(len(state))))
        blank_state = _pytree.map_leaves(lambda i: blank_row(state[i], state[i].shape[1:]), state_nest)
        nest = _pytree.pack_as(_template(options.structure), blanks)
        step = CheckedCell(cell, blank_state, options.dtype)
        choice = choose(step, nest, blanks, blank_state, keep_states=options.all_states, differentiate=options.train)
        own = {id(tensor): options.names.index(name) for name, tensor in _named_tensors(cell)}
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
    return _BoundOp(cell, choice.executable, Padded(batch, time, options.time_major), places)


def _bound_op(ticket: Tensor, inputs: Sequence[Tensor], options: _Options) -> _BoundOp:
    """The site of the forward pass that has given this ticket."""
    executable, places = resolve(ticket)
    time, batch = inputs[0].shape[:2] if options.time_major else reversed(inputs[0].shape[:2])
    return _BoundOp(known_cell(options.number), executable, Padded(batch, time, options.time_major), list(places))


@contextlib.contextmanager
def without_modes() -> Iterator[None]:
    """Nobody looks on: neither modes of torch nor what it notes of them for each thread.

    Inside of an operator torch passes over the kernels that lie behind. A step that is traced there would not get back
    to them: on a GPU its gradients are computed in other threads, which know nothing of the operator.
    """
    with disable_current_modes(), ForceDispatchKeyGuard(*_keys_of_a_thread()):
        yield


@functools.cache
def _keys_of_a_thread() -> tuple[Any, Any]:
    """The kernels that torch calls, and passes over, in a thread that has done nothing yet."""
    found: list[tuple[Any, Any]] = []

    def look() -> None:
        found.append(dispatch_keys_of_thread())

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    return found[0]


def blank_row(leaf: Tensor, dims: Sequence[int], rows: Sequence[int] = (1,)) -> Tensor:
    """One row like those of a tensor: features have one size, even where torch leaves it open."""
    return torch.zeros(*map(int, (*rows, *dims)), dtype=leaf.dtype, device=leaf.device)


def _template(structure: str) -> Any:
    """A nest of the structure that `_nest.describe` has put into words."""
    return ast.literal_eval(structure.replace("*", "None"))


def _named_tensors(cell: Any) -> list[tuple[str, Tensor]]:
    return [*cell.named_parameters(), *cell.named_buffers()]


def _schedule(site: _BoundOp, lengths: Tensor | None, options: _Options) -> Schedule:
    checked = check_lengths(lengths, site.form.batch_size)
    blocks = options.parallel_iterations is not None
    return make_schedule(site.form, checked, reverse=options.reverse, blocks=blocks)


def _forward(
    first: Tensor,
    tensors: list[Tensor],
    inputs: list[Tensor],
    state: list[Tensor],
    lengths: Tensor | None,
    *rest: Any,
) -> list[Tensor]:
    """Outputs, all states if wanted, the final state, a ticket, and what is kept for the backward pass."""
    options = _Options(*rest)
    site = _site(inputs, state, options)
    schedule = _schedule(site, lengths, options)
    if not schedule.active:
        return _no_steps(site, inputs, state, options.all_states)
    begin_sequence(site.cell)
    rows = [schedule.rows(leaf) for leaf in inputs]
    site.cell.check_values(_pytree.pack_as(_template(options.structure), rows))
    noise = RngState(site.cell, rows[0].device, is_random=False)
    executable = site.executable
    steps = schedule.steps
    drawn = draw(executable, steps, noise)
    chunk = options.parallel_iterations
    call = UnrollCall(executable, steps, noise, drawn, chunk)
    env = environment(call, site.in_order(tensors), rows)
    outputs, final, kept = executable.forward(env, schedule.sort(list(state)), steps, noise.generator, chunk)
    final = schedule.unsort(final)
    ticket = handle_of(site.executable, site.places)
    # States are among the outputs, after those of the cell, and past their end they are copied through.
    count = len(outputs) - (len(final) if options.all_states else 0)
    restored = [schedule.restore(leaf) for leaf in outputs[:count]]
    restored += [schedule.restore(leaf, fill=last) for leaf, last in zip(outputs[count:], final, strict=False)]
    own = apart([*restored, *final, *(kept[value] for value in site.kept)], [*tensors, *inputs, *state])
    split = len(restored) + len(final)
    return [*own[:split], ticket, *own[split:]]


def _no_steps(site: _BoundOp, inputs: list[Tensor], state: list[Tensor], all_states: bool) -> list[Tensor]:
    """Every length is 0: outputs of zeros, and states as they came."""
    results = [blank.zero_() for blank in _blank_results(site, inputs, state, 0)]
    count = len(site.executable.program.outputs)
    results[count + len(state)] = handle_of(site.executable, site.places)
    first = count - len(state) if all_states else count
    for result, leaf in zip(results[first:count], state, strict=False):
        result.copy_(leaf.unsqueeze(site.form.time_axis).expand_as(result))
    for result, leaf in zip(results[count : count + len(state)], state, strict=True):
        result.copy_(leaf)
    return results


def _blank_results(site: _BoundOp, inputs: Sequence[Tensor], state: Sequence[Tensor], rows: Any) -> list[Tensor]:
    """Tensors of the shapes of the results; what is kept has `rows` rows."""
    leading = list(inputs[0].shape[:2])
    program = site.executable.program
    results = [inputs[0].new_empty([*leading, *value.row_shape], dtype=value.dtype) for value in program.outputs]
    results += [leaf.new_empty(leaf.shape) for leaf in state]
    results.append(torch.empty((), dtype=torch.int64, device="cpu"))
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
    site = _site(inputs, state, _Options(*rest))
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
    """The gradients that are wanted, of tensors, inputs and state in this order.

    `kept` begins with the ticket and ends with the outputs.
    """
    *asked, (ticket, *kept), gradients, wanted = rest
    options = _Options(*asked)
    site = _bound_op(ticket, inputs, options)
    schedule = _schedule(site, lengths, options)
    leaves = [*tensors, *inputs, *state]
    if not schedule.active:
        passed = _passed_through(site, state, gradients, options.all_states)
        found: list[Tensor | None] = [*[None] * (len(tensors) + len(inputs)), *passed]
    else:
        found = _found(site, schedule, tensors, inputs, state, kept, gradients, wanted, options)
    results = [
        torch.zeros_like(leaf) if gradient is None else gradient
        for leaf, gradient, want in zip(leaves, found, wanted, strict=True)
        if want
    ]
    return apart(results, [*leaves, *kept, *(gradient for gradient in gradients if gradient is not None)])


def _passed_through(
    site: _BoundOp, state: list[Tensor], gradients: list[Tensor | None], all_states: bool
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


def _found(
    site: _BoundOp,
    schedule: Schedule,
    tensors: list[Tensor],
    inputs: list[Tensor],
    state: list[Tensor],
    kept: list[Tensor],
    gradients: list[Tensor | None],
    wanted: list[bool],
    options: _Options,
) -> list[Tensor | None]:
    executable, program = site.executable, site.executable.program
    rows = [schedule.rows(leaf) for leaf in inputs]
    chunk = options.parallel_iterations
    call = UnrollCall(executable, schedule.steps, RngState(site.cell, rows[0].device, is_random=False), {}, chunk)
    env = environment(call, site.in_order(tensors), rows)
    extra = len(site.kept)
    env.update(zip(site.kept, kept[:extra], strict=True))
    env.update((value, schedule.rows(leaf)) for value, leaf in zip(program.outputs, kept[extra:], strict=True))
    count = len(program.outputs)
    output_gradients = [None if leaf is None else schedule.rows(leaf) for leaf in gradients[:count]]
    final = gradients[count : count + len(state)]
    every = gradients[count - len(state) : count] if options.all_states else [None] * len(state)
    state_gradients = [
        _of_final_state(schedule, site.form.time_major, *pair) for pair in zip(final, every, strict=True)
    ]
    first, second = len(tensors), len(tensors) + len(inputs)
    needed = (*(wanted[place] for place in site.places), *wanted[first:second])
    assert executable.backward is not None
    found, states = executable.backward.run(
        env,
        schedule.sort(list(state)),
        output_gradients,
        state_gradients,
        schedule.steps,
        needed,
        chunk,
    )
    by_tensor: list[Tensor | None] = [None] * len(tensors)
    for place, gradient in zip(site.places, found[: len(site.places)], strict=True):
        by_tensor[place] = gradient
    back = [None if leaf is None else _padded(schedule, leaf) for leaf in found[len(site.places) :]]
    start = [None if leaf is None else schedule.unsort(leaf) for leaf in states]
    return [*by_tensor, *back, *start]


def _padded(schedule: Schedule, rows: Tensor) -> Tensor:
    restored: Tensor = schedule.restore(rows)
    return restored


def _of_final_state(schedule: Schedule, time_major: bool, final: Tensor | None, every: Tensor | None) -> Tensor | None:
    """The gradient of a final state in the order of the loop; past the end, every step's state is the final one."""
    if every is not None and not isinstance(schedule, Dense):
        idle = every - _padded(schedule, schedule.rows(every))
        copied = idle.sum(0 if time_major else 1)
        final = copied if final is None else final + copied
    return None if final is None else schedule.sort(final)


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
        site = _site(steps, state, _Options(*rest))
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
    # An empty list, of names where there are no parameters, is one of tensors to torch.
    nothing: list[Any] = [[] if option == [] else None for option in ctx.options]
    return (None, found[:first], found[first:second], found[second:], None, *nothing)


def _no_second_gradient(ctx: Any, gradients: list[Tensor | None]) -> Any:
    what = "torch.compile takes no gradients of gradients of an unroll"
    fix = "Leave the unroll uncompiled where you differentiate twice."
    raise RuntimeError(problem(what, got="create_graph=True", expected="first gradients", fix=fix))


# Where torch.compile has given up on a part of a model, it would look for something to compile in here.
_library.impl("unroll", disable_dynamo(_forward), "CompositeExplicitAutograd")
_library.impl("unroll_backward", disable_dynamo(_backward), "CompositeExplicitAutograd")
torch.library.register_autograd("throughtime::unroll_backward", _no_second_gradient, lib=_library)
torch.library.register_fake("throughtime::unroll", _fake_forward, lib=_library)
torch.library.register_fake("throughtime::unroll_backward", _fake_backward, lib=_library)
_context = disable_dynamo(_setup_context)
torch.library.register_autograd("throughtime::unroll", _autograd, setup_context=_context, lib=_library)

OPERATOR = torch.ops.throughtime.unroll.default
