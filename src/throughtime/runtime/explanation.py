"""The plan of an unroll, human-readable."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from throughtime import _html
from throughtime._text import plural
from throughtime.backends.loop_backend import LoopBackend
from throughtime.compiler import Loop, Node, Program, Section, Value
from throughtime.compiler.ir.costs import node_flops
from throughtime.layout.step_layout import StepLayout
from throughtime.runtime.forward import Executable
from throughtime.runtime.offload.transfers import is_apart
from throughtime.runtime.select import Choice
from throughtime.runtime.threads import threads


@dataclass(frozen=True)
class Explanation:
    """How an unroll would run: `print(plan)` shows it.

    `backend` runs it, and `reasons` say of each better backend why it does not. `program` is the compiled step (None
    on the reference), `source` the generated kernels, `memory` what is swapped if anything should be, `threads` which
    threads run the kernels on CPU if there are several (see `tt.threads`).
    """

    backend: str
    reasons: dict[str, str]
    program: Program | None
    source: str
    title: str = field(repr=False, default="")
    executable: Executable | None = field(repr=False, default=None)
    memory: str = ""
    threads: str = ""

    def __str__(self) -> str:
        lines = [self.title, f"runs on: {self.backend}"]
        lines += [f"not on {name}: {reason}" for name, reason in self.reasons.items()]
        lines += [f"threads: {self.threads}"] if self.threads else []
        lines += [f"memory: {self.memory}"] if self.memory else []
        if self.program is not None:
            lines += ["", *_program_lines(self.program, self.executable)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """In a notebook: the backend and the reasons; the program and its kernels folded."""
        facts = [("runs on", self.backend), *((f"not on {name}:", reason) for name, reason in self.reasons.items())]
        facts += [("memory:", self.memory)] if self.memory else []
        parts = [_html.lines(facts)]
        if self.program is not None:
            parts.append(_html.folded("the compiled step", "\n".join(_program_lines(self.program, self.executable))))
        if self.source:
            parts.append(_html.folded(f"kernels, {plural(len(self.source.splitlines()), 'line')}", self.source))
        return _html.card(self.title, *parts)


def explain_choice(choice: Choice, title: str, memory: str = "") -> Explanation:
    """The plan behind a choice."""
    loops = [] if choice.executable is None else choice.executable.loops
    source = "\n\n".join(loop.source for loop in loops)
    workers = threads()
    several = str(workers) if choice.backend == "cpu" and workers.count > 1 else ""
    return Explanation(
        choice.backend, choice.reasons, choice.program, source, title, choice.executable, memory, several
    )


def swapped_memory(choice: Choice, steps: StepLayout, device: torch.device) -> str:
    """What of the memory of a call waits on the host, if it should."""
    if not is_apart(device):
        return f"not swapped, since the tensors are on {device}"
    if choice.executable is None:
        return "what each step saves waits on the host"
    if choice.executable.backward is None:
        return "nothing waits on the host, since nothing is differentiated"
    kept = choice.executable.keeping.plan(steps, None, device)
    return "nothing waits on the host, so little is kept for the backward pass" if kept is None else str(kept)


def _program_lines(program: Program, executable: Executable | None) -> Iterator[str]:
    if program.random.nodes:
        yield from _section_lines("drawn at random, for all steps at once", program.random.nodes)
    yield from _section_lines("once, from parameters", program.invariant.nodes)
    backward = None if executable is None else executable.backward
    yield from _before_lines("", program.before, [] if executable is None else executable.in_kernel)
    yield from _section_lines("in the loop, at every step", program.loop.nodes)
    yield from _section_lines("after the loop, for all steps at once", program.after.nodes)
    loops = [None, None] if executable is None else [*executable.loops, None]
    yield from _cost_lines("forward", program.loop, [program.before, program.after], _streams(program.loop, loops[0]))
    adjoint = program.adjoint
    if adjoint is None:
        return
    yield ""
    yield from _section_lines("backward: once, from parameters", adjoint.invariant.nodes)
    yield from _before_lines("backward: ", adjoint.before, [] if backward is None else backward.in_kernel)
    yield from _section_lines("backward: in the loop, at every step", adjoint.loop.nodes)
    yield from _section_lines("backward: after the loop, for all steps at once", adjoint.after.nodes)
    read = [*_streams(adjoint.loop, loops[1]), *(value for value in adjoint.loop.reads if value in adjoint.lagged)]
    yield from _cost_lines("backward", adjoint.loop, [adjoint.before, adjoint.after], list(dict.fromkeys(read)))
    made = {*program.before.gives, *program.loop.gives, *program.after.gives}
    lagged = [new for old, new in program.states if old in set(adjoint.lagged)]
    saved = [value for value in dict.fromkeys([*adjoint.saved, *lagged]) if value in made]
    # Packed saved values are shown by their parts.
    parts = {node.result: node.values for node in program.loop.nodes if node.name == "cat"}
    names = ", ".join(part.name for value in saved for part in parts.get(value, [value]))
    yield f"saved for the backward pass: {_bytes(saved)} a step and row ({names})"
    overwritten = [] if backward is None else [value for value in backward.overwritten if value is not None]
    if overwritten:
        yield f"    of them the backward pass writes over {_size(overwritten):,}, unless the graph is kept"
    if program.replay is not None:
        yield "gradients of gradients: the cell itself, step by step; it detaches something or has gradients of its own"


def _before_lines(prefix: str, before: Section, inside: list[Node]) -> Iterator[str]:
    """The nodes before a loop: for all steps together, or `inside` of its kernel."""
    outside = [node for node in before.nodes if node not in inside]
    if outside or not inside:
        yield from _section_lines(f"{prefix}before the loop, for all steps at once", outside)
    if inside:
        yield from _section_lines(f"{prefix}ahead of the loop, in its kernel, for a few steps at a time", inside)


def _section_lines(title: str, nodes: list[Node]) -> Iterator[str]:
    yield f"{title}:" if nodes else f"{title}: nothing"
    for node in nodes:
        yield from textwrap.wrap(str(node), 116, initial_indent="    ", subsequent_indent="        ")


def _streams(loop: Loop, compiled: LoopBackend | None) -> list[Value]:
    """What a loop reads for each row; a kernel that does some of the work ahead of it reads less."""
    return [value for value in (loop.reads if compiled is None else compiled.takes) if value.has_rows]


def _cost_lines(name: str, loop: Loop, others: list[Section], streams: list[Value]) -> Iterator[str]:
    inside = sum(map(node_flops, loop.nodes))
    outside = sum(node_flops(node) for section in others for node in section.nodes)
    constants = [value for value in loop.reads if not value.has_rows]
    yield (
        f"{name}, a step and row: {plural(inside, 'FLOP')} in the loop, {outside:,} outside of it; "
        f"{_bytes(streams)} read, {_size(loop.stored):,} written; "
        f"{_bytes(constants)} of weights a step"
    )


def _bytes(values: list[Value]) -> str:
    return plural(_size(values), "byte")


def _size(values: list[Value]) -> int:
    return sum(value.row_bytes for value in values)
