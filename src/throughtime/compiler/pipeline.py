"""The pipeline: every pass of every backend by name, in order, each verified.

`pipeline` is the list; the functions below it run its stages. `compile_step` goes from a cell to its program; backends
call the others for their own stages. If `THROUGHTIME_VERIFY` is 1, as in the tests, every pass is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from throughtime.cells._cell_types import CellLike
from throughtime.compiler.errors import Uncompilable, VerificationError
from throughtime.compiler.guards.fingerprint import CellFingerprint, hooked_module, norm_over_rows
from throughtime.compiler.ir.graph import Graph, Node, Value
from throughtime.compiler.ir.loop_ir import LoopProgram
from throughtime.compiler.ir.program import Program
from throughtime.compiler.ir.sections import Loop, Section
from throughtime.compiler.ir.verify import is_enabled, verify_graph, verify_program, verify_section
from throughtime.compiler.passes.adjoint import add_adjoint
from throughtime.compiler.passes.batch_independence import check_batch_independence, check_random
from throughtime.compiler.passes.broadcast_scalar_state import broadcast_scalar_state
from throughtime.compiler.passes.concat import concat_padded_slices, flatten_concats
from throughtime.compiler.passes.cse import eliminate_common_subexpressions
from throughtime.compiler.passes.forward_first import order_forward_first
from throughtime.compiler.passes.fuse_pointwise import FusedStep, Limits, fuse_pointwise, verify_fused
from throughtime.compiler.passes.hoist import hoist_step
from throughtime.compiler.passes.identities import drop_identities, split_output_masks
from throughtime.compiler.passes.index_to_gather import index_to_gather
from throughtime.compiler.passes.loop_body import LoopBody, accumulate_into_products, sink_slices, verify_body
from throughtime.compiler.passes.matmul_rewrites import (
    accumulate_matmuls,
    flatten_sums,
    fuse_bias,
    merge_weight_gradients,
    sum_before_concat,
)
from throughtime.compiler.passes.merge_matmuls import (
    MergedMatmuls,
    merge_parallel_matmuls,
    merge_summed_matmuls,
    split_deep_matmuls,
    unmerged,
    verify_merged,
)
from throughtime.compiler.passes.name_values import name_values
from throughtime.compiler.passes.native_gemms import (
    use_input_gradient_gemm,
    use_single_weight_gradient_gemm,
    use_weight_gradient_gemm,
)
from throughtime.compiler.passes.pack_saved_values import pack_saved_values
from throughtime.compiler.passes.regroup_sums import regroup_sums
from throughtime.compiler.passes.rewriter import Rewriter
from throughtime.compiler.passes.section_order import order_section
from throughtime.compiler.passes.sink_into_backward_loop import sink_into_backward_loop
from throughtime.compiler.passes.slices import merge_slices
from throughtime.compiler.passes.split_matmul import split_grouped_matmuls, split_matmuls
from throughtime.compiler.passes.transpose_matmul import transpose_matmuls
from throughtime.compiler.passes.unfold_batch import unfold_rows
from throughtime.compiler.trace.batched_matmul import MOST_SLOTS
from throughtime.compiler.trace.trace import CheckedCall, StepSignature, Trace
from throughtime.compiler.trace.tracer import Tracing

IR = TypeVar("IR")


@dataclass(frozen=True)
class Pass(Generic[IR]):
    """A pass over one representation of a step. An analysis returns it unchanged, or raises `Uncompilable`."""

    name: str
    run: Callable[[IR], IR]


class Partitioned(NamedTuple):
    """A trace, and the program that its nodes are moved into."""

    traced: Trace
    program: Program


class SectionNodes(NamedTuple):
    """Nodes that torch runs for the rows of all steps, and the values that others need of them."""

    nodes: Sequence[Node]
    gives: tuple[Value, ...]


@dataclass(frozen=True)
class Pipeline:
    """The passes of a backend by what they run on, in the order in which a step goes through them."""

    trace: tuple[Pass[Trace], ...]
    partition: tuple[Pass[Partitioned], ...]
    program: tuple[Pass[Program], ...]
    matmuls: tuple[Pass[MergedMatmuls], ...]
    """Of a step as separate kernels."""
    fusion: Callable[..., FusedStep] | None
    """From such a step to its kernels."""
    loop_body: tuple[Pass[LoopBody], ...]
    """Of a loop program, which `lowering/lower.py` makes and verifies."""
    section: tuple[Pass[SectionNodes], ...]


def pipeline(backend: str, *, on_gpu: bool = False) -> Pipeline:
    """Every pass of a backend ("cpu", "triton" or "aten"), in order."""
    kernels_on_cpu = backend == "cpu"
    separate_kernels = backend == "aten" and on_gpu
    return Pipeline(
        # The joint graph of a step and its gradient, as traced. For all backends.
        trace=(
            _on_trace(unfold_rows),
            _on_trace(_check_random),
            _on_trace(broadcast_scalar_state),
            _rewrite(index_to_gather),
            _rewrite(split_grouped_matmuls, lambda traced: [_most_groups(traced)]),
            _rewrite(split_output_masks),
            _rewrite(drop_identities),
            _rewrite(transpose_matmuls),
            _rewrite(merge_slices),
            _rewrite(concat_padded_slices),
            _rewrite(flatten_concats),
            _rewrite(split_matmuls, lambda traced: [traced.cotangents, traced.recurring_cotangents]),
            _rewrite(merge_slices),
            _rewrite(eliminate_common_subexpressions),
            _rewrite(regroup_sums, lambda traced: [traced.state]),
            _on_trace(name_values),
            _on_trace(order_forward_first),
            _on_trace(_check_batch_independence),
        ),
        # From the trace to a program: before the loop, loop, after the loop; forward, then backward.
        partition=(
            _partition(hoist_step),
            _partition(add_adjoint),
        ),
        # The program as CPU kernels want it.
        program=(
            _named(sink_into_backward_loop),
            _named(pack_saved_values),
        )
        if kernels_on_cpu
        else (),
        # The loop as separate kernels on a GPU.
        matmuls=(
            _named(merge_summed_matmuls),
            _named(merge_parallel_matmuls),
            _named(split_deep_matmuls),
        )
        if separate_kernels
        else (),
        fusion=fuse_pointwise if separate_kernels else None,
        # The loop program of a CPU kernel.
        loop_body=(
            _named(accumulate_into_products),
            _named(sink_slices),
        )
        if kernels_on_cpu
        else (),
        # What torch runs outside of the loop. On a GPU each operation is a launch, so fewer are better.
        section=(
            *([_on_nodes(flatten_sums), _on_nodes(use_weight_gradient_gemm)] if kernels_on_cpu else []),
            _on_nodes(merge_weight_gradients),
            _on_nodes(sum_before_concat),
            _on_nodes(fuse_bias),
            *([_on_nodes(accumulate_matmuls), _on_nodes(flatten_sums)] if on_gpu else []),
            *(
                [_on_nodes(use_single_weight_gradient_gemm), _on_nodes(use_input_gradient_gemm)]
                if kernels_on_cpu
                else []
            ),
            Pass("order_section", lambda section: section._replace(nodes=order_section(*section))),
        ),
    )


def compile_step(
    cell: CellLike,
    fingerprint: CellFingerprint,
    signature: StepSignature,
    call: CheckedCall,
    *,
    differentiate: bool,
    keep_states: bool,
) -> Program:
    """Trace, simplify, hoist and differentiate one step; `Uncompilable` says why that is not possible.

    With `keep_states` the new states are outputs as well, after those of the cell.
    """
    _check_cell(cell, fingerprint)
    tracing = Tracing(cell, fingerprint, signature, call, differentiate=differentiate, keep_states=keep_states)
    traced = tracing.merged()
    _check_devices(fingerprint, signature)
    passes = pipeline("aten")
    traced = _run(passes.trace, traced, _verify_trace)
    if traced.objection is not None:
        raise Uncompilable(traced.objection)
    # Last: what is wrong with many rows says more about the cell.
    tracing.check_single_row()
    start = Partitioned(traced, _unpartitioned(traced, type(cell).__name__))
    program = _run(passes.partition, start, lambda found: verify_program(found.program)).program
    program.replay = None if traced.is_plain else tracing.replay
    return program


def optimize_for_cpu(program: Program, *, without: Iterable[str] = ()) -> Program:
    """The program for CPU kernels, `without` the passes of these names."""
    passes = [one for one in pipeline("cpu").program if one.name not in set(without)]
    return _run(passes, program, verify_program)


def optimize_loop_body(program: LoopProgram) -> LoopBody:
    """The operations of a loop program for a CPU kernel."""
    return _run(pipeline("cpu").loop_body, LoopBody.of(program), verify_body)


def merge_matmuls(loop: Loop) -> MergedMatmuls:
    """A loop on a GPU with few, large products that are not deep."""
    return _run(pipeline("aten", on_gpu=True).matmuls, unmerged(loop), partial(verify_merged, loop))


def fuse_step(products: MergedMatmuls, limits: Limits, *, masked: bool) -> FusedStep:
    """A step on a GPU as few kernels; if `masked`, rows that have ended keep their state."""
    fuse = pipeline("aten", on_gpu=True).fusion
    assert fuse is not None
    step = fuse(products, limits, masked=masked)
    _verify(fuse.__name__, step, partial(verify_fused, products))
    return step


def optimize_section(
    nodes: Sequence[Node], gives: Iterable[Value], *, on_gpu: bool = False, by_kernels: bool = False
) -> list[Node]:
    """The same values from fewer and faster operations; beside CPU kernels, `by_kernels`, from native GEMMs too.

    Random numbers are drawn in the order of the cell, so such sections keep their order.
    """
    native = by_kernels and not any(node.is_random for node in nodes)
    passes = pipeline("cpu" if native else "aten", on_gpu=on_gpu).section
    section = SectionNodes(nodes, tuple(gives))
    return list(_run(passes, section, lambda found: verify_section(nodes, *found)).nodes)


def accumulate_in_place(nodes: Sequence[Node], gives: Iterable[Value]) -> list[Node]:
    """Sums of matmuls that accumulate into the first, for a chunk of steps that is recomputed."""
    section = SectionNodes(nodes, tuple(gives))
    return list(_run([_on_nodes(accumulate_matmuls)], section, lambda found: verify_section(nodes, *found)).nodes)


def _run(passes: Iterable[Pass[IR]], ir: IR, verify: Callable[[IR], None]) -> IR:
    """Run passes one after another, and verify the result of each."""
    for one in passes:
        ir = one.run(ir)
        _verify(one.name, ir, verify)
    return ir


def _verify(name: str, ir: IR, verify: Callable[[IR], None]) -> None:
    """Verify the result of the pass of this name, if verification is enabled."""
    if is_enabled():
        try:
            verify(ir)
        except VerificationError as error:
            raise VerificationError(f"after {name}, {error}") from error


def _named(function: Callable[[IR], IR]) -> Pass[IR]:
    return Pass(function.__name__, function)


def _on_trace(change: Callable[[Trace], None]) -> Pass[Trace]:
    """A pass that changes a trace in place, or an analysis of it."""

    def run(traced: Trace) -> Trace:
        change(traced)
        return traced

    return Pass(change.__name__.lstrip("_"), run)


def _rewrite(
    rewrite: Callable[..., Rewriter], arguments: Callable[[Trace], Sequence[object]] = lambda _: ()
) -> Pass[Trace]:
    """A pass that builds a new graph; nodes that no result needs are dropped."""

    def run(traced: Trace) -> Trace:
        rewriter = rewrite(Graph(traced.graph.nodes, frozenset(traced.results)), *arguments(traced))
        traced.resolve(rewriter.resolve)
        traced.graph = Graph(Graph(rewriter.nodes).needed_for(traced.results), frozenset(traced.results))
        return traced

    return Pass(rewrite.__name__, run)


def _partition(change: Callable[[Trace, Program], Program]) -> Pass[Partitioned]:
    return Pass(change.__name__, lambda found: found._replace(program=change(*found)))


def _on_nodes(change: Callable[[Sequence[Node], set[Value]], list[Node]]) -> Pass[SectionNodes]:
    """A pass over a section; nodes that no result needs are dropped."""

    def run(section: SectionNodes) -> SectionNodes:
        nodes = Graph(change(section.nodes, set(section.gives))).needed_for(section.gives)
        return section._replace(nodes=nodes)

    return Pass(change.__name__, run)


def _verify_trace(traced: Trace) -> None:
    verify_graph(traced.graph, traced.given, traced.results)


def _check_random(traced: Trace) -> None:
    check_random(traced.graph, traced.once)


def _check_batch_independence(traced: Trace) -> None:
    gradients = [value for value in traced.tensor_gradients if value is not None]
    check_batch_independence(traced.graph, traced.backward_start, gradients)


def _most_groups(traced: Trace) -> int:
    """Grouped matmuls of up to this many groups are split: torch on a CPU is faster with several groups at once."""
    return MOST_SLOTS if traced.device.type == "cpu" else 1


def _unpartitioned(traced: Trace, name: str) -> Program:
    """A program that runs the whole forward part in its loop."""
    nodes = traced.graph.nodes[: traced.backward_start]
    program = Program(
        name=name,
        tensors=traced.tensors,
        inputs=traced.inputs,
        state=traced.state,
        outputs=traced.outputs,
        new_state=traced.new_state,
        literals=traced.literals,
        random=Section("random", []),
        invariant=Section("invariant", []),
        before=Section("before", []),
        loop=Loop.of(name, nodes, traced.state, traced.new_state, reverse=False),
        after=Section("after", []),
        adjoint=None,
    )
    program.loop.store(traced.outputs)
    return program


def _check_cell(cell: CellLike, fingerprint: CellFingerprint) -> None:
    """Raise `Uncompilable` for what no trace would show."""
    subclass = fingerprint.tensor_subclass
    if subclass is not None:
        raise Uncompilable(f"a tensor inside it is of a class of its own ({subclass})")
    if fingerprint.opaque is not None:
        raise Uncompilable(f"it holds {fingerprint.opaque}, whose changes cannot be seen")
    hooked = hooked_module(cell)
    if hooked is not None:
        raise Uncompilable(f"a {hooked} in it has hooks, which are to see every step")
    norm = norm_over_rows(cell)
    if norm is not None:
        raise Uncompilable(f"the rows of a batch are not independent: a {norm} in it takes its statistics of them")


def _check_devices(fingerprint: CellFingerprint, signature: StepSignature) -> None:
    devices = {leaf.device for leaf in (*signature.input_leaves, *signature.state_leaves)}
    devices |= {tensor.device for tensor in fingerprint.tensors if tensor.ndim}
    if len(devices) > 1:
        raise Uncompilable(f"its tensors are on several devices ({', '.join(sorted(map(str, devices)))})")
