"""One run of a step and of its gradient on tensors that record, as a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import _engine_run_backward, saved_tensors_hooks

from throughtime import _pytree
from throughtime.cells._cell_types import CellLike
from throughtime.cells._rng import drawing
from throughtime.compiler.errors import Uncompilable
from throughtime.compiler.guards.fingerprint import CellFingerprint, attribute_fingerprints, changed_attribute
from throughtime.compiler.ir.graph import Graph, Value
from throughtime.compiler.trace.batched_matmul import RowAxes
from throughtime.compiler.trace.foreign_rng import foreign_randomness, unseeded
from throughtime.compiler.trace.recorder import Recorder
from throughtime.compiler.trace.side_effects import OutsideState, side_effects_undone
from throughtime.compiler.trace.stand_in import with_tensors
from throughtime.compiler.trace.trace import Source, StepCall, StepSignature, Trace, TracedTensor


class StepRun:
    """How a step is run: the cell, its fingerprint, the signature of its call, and whether to differentiate it.

    `outside` is restored after each run: what the step can change beside its results.
    """

    def __init__(
        self,
        cell: CellLike,
        fingerprint: CellFingerprint,
        signature: StepSignature,
        call: StepCall,
        outside: OutsideState,
        *,
        differentiate: bool,
    ) -> None:
        self._cell, self._fingerprint, self._signature, self._call = cell, fingerprint, signature, call
        self._outside, self._differentiate = outside, differentiate

    def trace(self, rows: int, axes: RowAxes) -> Trace:
        """Run the step on `rows` rows, and its gradient if it is wanted, and record both."""
        axes.begin(rows)
        devices = {leaf.device for leaf in self._signature.input_leaves if leaf.device.type == "cuda"}
        # Autocast would cast weights once and cache them for later steps; each step must record its own casts.
        cache = torch.is_autocast_cache_enabled()
        torch.set_autocast_cache_enabled(False)
        # Hooks of the user on saved tensors are for real tensors; only the innermost hooks are called.
        hidden = saved_tensors_hooks(_with_version, _unchanged)
        try:
            with (
                side_effects_undone(self._cell),
                self._outside.watched(),
                foreign_randomness(self._fingerprint.referenced),
                torch.random.fork_rng(list(devices)),
                torch.inference_mode(False),
                torch.set_grad_enabled(self._differentiate),
                hidden,
            ):
                return self._run(Recorder(axes, differentiate=self._differentiate), rows)
        except Uncompilable:
            raise
        except NotImplementedError as error:
            raise Uncompilable(f"it cannot be traced ({_first_line(error)})") from error
        except RuntimeError as error:
            raise Uncompilable(_reason(error)) from error
        finally:
            torch.set_autocast_cache_enabled(cache)

    def _run(self, recorder: Recorder, rows: int) -> Trace:
        fingerprint, signature = self._fingerprint, self._signature
        made: dict[int, TracedTensor] = {}

        def replace(tensor: Tensor) -> TracedTensor:
            if id(tensor) not in made:
                path = fingerprint.paths[next(i for i, one in enumerate(fingerprint.tensors) if one is tensor)]
                made[id(tensor)] = recorder.wrap(
                    tensor.detach(), path, requires_grad=tensor.requires_grad and self._differentiate, of_cell=True
                )
            return made[id(tensor)]

        stand_in = with_tensors(self._cell, replace, fingerprint.named)
        tensors = [replace(tensor) for tensor in fingerprint.tensors]
        _begin_sequence(stand_in, recorder)
        before = attribute_fingerprints(stand_in)
        inputs, state = (
            [recorder.wrap(leaf.zeros(rows), leaf.name, requires_grad=self._tracks(leaf.dtype)) for leaf in leaves]
            for leaves in (signature.input_leaves, signature.state_leaves)
        )
        begun = [[leaf.value for leaf in leaves] for leaves in (tensors, inputs, state)]
        outputs, new_state = self._call_step(recorder, stand_in, tensors, inputs, state)
        changed = changed_attribute(stand_in, before)
        if changed is not None:
            raise Uncompilable(f"a step changes the cell itself (its attribute `{changed}`)")
        start, recorder.is_forward = len(recorder.nodes), False
        results = [*outputs, *new_state]
        cotangents = [_cotangent(recorder, leaf) for leaf in results]
        gradients = _gradients(recorder, results, cotangents, [*tensors, *inputs, *state])
        cotangent_values = [None if cotangent is None else cotangent.value for cotangent in cotangents]
        first, second = len(tensors), len(tensors) + len(inputs)
        return Trace(
            graph=Graph(recorder.nodes),
            tensors=begun[0],
            inputs=begun[1],
            state=begun[2],
            outputs=[leaf.value for leaf in outputs],
            new_state=[leaf.value for leaf in new_state],
            once=_values_for_sequence(stand_in),
            output_cotangents=cotangent_values[: len(outputs)],
            state_cotangents=cotangent_values[len(outputs) :],
            backward_start=start,
            tensor_gradients=gradients[:first],
            input_gradients=gradients[first:second],
            state_gradients=gradients[second:],
            literals=recorder.literals,
            device=signature.input_leaves[0].device,
            rows=rows,
            calls=recorder.calls.made,
            is_plain=recorder.is_plain,
        )

    def _call_step(
        self,
        recorder: Recorder,
        stand_in: CellLike,
        tensors: list[TracedTensor],
        inputs: list[TracedTensor],
        state: list[TracedTensor],
    ) -> tuple[list[TracedTensor], list[TracedTensor]]:
        """Call the step, and log the calls that it makes."""
        calls, signature = recorder.calls, self._signature
        calls.note("begin", None, None, [*tensors, *inputs, *state])
        with recorder, calls, unseeded():
            result = _by_the_cell(
                self._call, stand_in, _pytree.pack_as(signature.inputs, inputs), _pytree.pack_as(signature.state, state)
            )
            outputs, new_state = (list(map(recorder.adopt, part)) for part in result)
        if calls.failure is not None:
            # The step has caught the error, and taken another branch than it would with values.
            raise calls.failure
        results = [*outputs, *new_state]
        calls.note("return", calls.described(results), None, results)
        return outputs, new_state

    def _tracks(self, dtype: torch.dtype) -> bool:
        return self._differentiate and dtype.is_floating_point


def _begin_sequence(stand_in: CellLike, recorder: Recorder) -> None:
    """Begin a sequence; generators are copies, so that nothing is drawn from those of the cell."""
    for path, module in drawing(stand_in):
        module.begin_sequence()
        module.set_noise_state(module.noise_state())
        for device in {torch.device("cpu"), *recorder.devices}:
            generator = module.generator(device)
            if generator is not None:
                recorder.know(generator, Source(path, device))


def _cotangent(recorder: Recorder, leaf: TracedTensor) -> TracedTensor | None:
    if not leaf.requires_grad:
        return None
    return recorder.wrap(torch.zeros_like(leaf.held), f"d_{leaf.value.name}")


def _gradients(
    recorder: Recorder, results: list[TracedTensor], cotangents: list[TracedTensor | None], sources: list[TracedTensor]
) -> list[Value | None]:
    pairs = [
        (result, cotangent) for result, cotangent in zip(results, cotangents, strict=True) if cotangent is not None
    ]
    wanted = [source for source in sources if source.requires_grad]
    if not pairs or not wanted:
        return [None] * len(sources)
    # Autograd calls torch only, except in functions that define their own gradient.
    recorder.calls.inside = True
    # With create_graph, autograd does not accumulate gradients in place.
    with recorder, recorder.calls:
        # As `torch.autograd.grad`, without its check of shapes, which imports sympy.
        found: Sequence[Tensor | None] = _engine_run_backward(
            tuple(result for result, _ in pairs),
            tuple(cotangent for _, cotangent in pairs),
            True,
            True,
            tuple(wanted),
            True,
            accumulate_grad=False,
        )
        adopted = [None if gradient is None else recorder.adopt(gradient).value for gradient in found]
    by_source = dict(zip(map(id, wanted), adopted, strict=True))
    return [by_source.get(id(source)) for source in sources]


def _with_version(tensor: Tensor) -> tuple[Tensor, int]:
    return tensor, tensor._version


def _unchanged(saved: tuple[Tensor, int]) -> Tensor:
    """A tensor that was saved for a gradient. Raises if it was overwritten: torch does not check that with hooks."""
    tensor, version = saved
    if tensor._version != version:
        raise RuntimeError("a tensor that a gradient needs has been modified by an inplace operation")
    return tensor


def _by_the_cell(call: Any, *args: Any) -> Any:
    """Call the cell. Errors of the cell itself are raised again by the reference, in their place."""
    try:
        return call(*args)
    except (Uncompilable, NotImplementedError, RuntimeError):
        raise
    except Exception as error:
        raise Uncompilable(f"it cannot be traced ({type(error).__name__}: {_first_line(error)})") from error


def _reason(error: RuntimeError) -> str:
    """The reason for a refusal that an error of torch in a step gives."""
    if "tensor subclass" in str(error):
        return f"what it does depends on the values of tensors ({_first_line(error)})"
    if "leaf Variable that requires grad" in str(error):
        return "it changes a tensor in place that has a gradient of its own, such as a parameter"
    return f"it cannot be traced ({_first_line(error)})"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:160]


def _values_for_sequence(stand_in: object) -> list[Value]:
    """The random values that modules hold for the rest of the sequence."""
    states = [module.noise_state() for _, module in drawing(stand_in)]
    return [
        tensor.value
        for state in states
        for tensor in CellFingerprint(state).tensors
        if isinstance(tensor, TracedTensor)
    ]
