"""Programs: the operations that some results need, in order, as one generated Python function.

Session plans, the bodies of control flow and the steps of cells are all programs. A generated function keeps values in
local variables, so a call costs the kernels and little else; a line of it is an operation, so an error finds its
operation by the line number.
"""

from __future__ import annotations

import ast
import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch

from throughtime.tf1._errors import InvalidArgumentError, OpError
from throughtime.tf1.graph._operation import Operation, Tensor
from throughtime.tf1.graph._user_line import describe_line

_NUMBERS = itertools.count()
GRADIENTS = "Gradients"


@dataclass(frozen=True)
class Program:
    """`function(state, *inputs)` gives the outputs' values; `lines` has the operation of each line of it."""

    function: Callable[..., list[Any]]
    file: str
    lines: dict[int, Operation]
    stateful: bool
    records: bool
    source: str
    random: bool = False

    def __reduce__(self) -> Any:
        """A saved program is its source and the kernels that it names."""
        hidden = {"__builtins__", "run"}
        scope = {name: value for name, value in self.function.__globals__.items() if name not in hidden}
        rest = {name: value for name, value in vars(self).items() if name not in {"function", "file"}}
        return _rebuilt, (scope, rest)

    def __call__(self, state: Any, *inputs: Any) -> list[Any]:
        """Run; errors name the operation and the user's line."""
        try:
            return self.function(state, *inputs)
        except Exception as error:
            op = self._failing(error.__traceback__)
            if op is None:
                raise
            raise described(error, op) from error

    def _failing(self, trace: TracebackType | None) -> Operation | None:
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == self.file:
                return self.lines.get(trace.tb_lineno)
            trace = trace.tb_next
        return None


_STATEMENTS = (ast.Module, ast.FunctionDef, ast.arguments, ast.arg, ast.Assign, ast.Expr, ast.Delete, ast.Return)
_VALUES = (ast.Call, ast.Name, ast.List, ast.Tuple, ast.Load, ast.Store, ast.Del)


def _rebuilt(scope: dict[str, Any], rest: dict[str, Any]) -> Program:
    """A program that was saved; its source consists of calls of the kernels in `scope`, and of nothing else."""
    file = f"<tf1 program {next(_NUMBERS)}>"
    tree = ast.parse(rest["source"], file)
    if not all(isinstance(node, _STATEMENTS + _VALUES) for node in ast.walk(tree)):
        raise ValueError("the saved program has other statements than calls of kernels; save the graph again")
    # No built-in function is within reach.
    scope["__builtins__"] = {}
    exec(compile(tree, file, "exec"), scope)
    return Program(function=scope["run"], file=file, **rest)


def described(error: Exception, op: Operation) -> Exception:
    """A kernel's error as TensorFlow's, with the operation and the user's line."""
    if isinstance(error, OpError):
        if "(made at" not in error.message:
            error.message += describe_line(op.line)
        error.op = error.op or op
        return error
    if not isinstance(error, RuntimeError | IndexError | ValueError | TypeError) or isinstance(
        error, torch.OutOfMemoryError
    ):
        return error
    if op.attrs.get("python"):
        return error
    text = f"{op.type} (op {op.name!r}) failed: {error}{describe_line(op.line)}"
    return InvalidArgumentError(None, op, text)


def compile_program(
    outputs: Sequence[Tensor],
    inputs: Sequence[Tensor] = (),
    targets: Iterable[Operation] = (),
    device: torch.device | None = None,
) -> Program:
    """The program that computes `outputs` and runs `targets`, with the values of `inputs` given."""
    order = _in_order(outputs, inputs, targets)
    return _Writer(order, outputs, inputs, device).write()


def _in_order(outputs: Sequence[Tensor], inputs: Sequence[Tensor], targets: Iterable[Operation]) -> list[Operation]:
    """The operations that are needed, each after what it needs, else in creation order."""
    given = set(inputs)
    stack = [*(tensor.op for tensor in outputs if tensor not in given), *targets]
    needs: dict[Operation, set[Operation]] = {}
    while stack:
        op = stack.pop()
        if op not in needs:
            needs[op] = {*(tensor.op for tensor in op.inputs if tensor not in given), *_unfed(op.control_inputs, given)}
            stack.extend(needs[op])
    users: dict[Operation, list[Operation]] = {op: [] for op in needs}
    for op, needed in needs.items():
        for one in needed:
            users[one].append(op)
    waiting = {op: len(needed) for op, needed in needs.items()}
    ready = [(op.number, id(op), op) for op, count in waiting.items() if count == 0]
    heapq.heapify(ready)
    order: list[Operation] = []
    while ready:
        op = heapq.heappop(ready)[2]
        order.append(op)
        for user in users[op]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, (user.number, id(user), user))
    if len(order) < len(needs):
        raise ValueError("the graph has a cycle of control dependencies")
    return order


def variable_of(tensor: Tensor) -> Operation | None:
    """The variable that `tensor` is the value of, if it is one's storage or its `read`."""
    op = tensor.op
    if op.type == "Identity" and op.inputs and op.name.endswith("/read"):
        op = op.inputs[0].op
    return op if op.type == "VariableV2" else op.attrs.get("variable")


def written_by(op: Operation) -> list[Operation]:
    """The variables that an operation writes, itself or in its functions."""
    return [op.mutates] if op.mutates is not None else op.attrs.get("writes", [])


class _Writer:
    """Writes the function, a line for an operation."""

    def __init__(
        self, order: list[Operation], outputs: Sequence[Tensor], inputs: Sequence[Tensor], device: torch.device | None
    ):
        self.order, self.outputs, self.inputs = order, outputs, inputs
        self.device = device
        self.slots: dict[Tensor, str] = {tensor: f"a{place}" for place, tensor in enumerate(inputs)}
        self.numbers = itertools.count()
        self.scope: dict[str, Any] = {}
        self.text: list[str] = []
        self.lines: dict[int, Operation] = {}
        self.dirty: dict[Operation, set[Tensor]] = {}
        # How often each variable has been written, which of its values an operation took, and where each value is.
        self.versions: dict[Operation, int] = {}
        self.taken: dict[Operation, dict[Operation, int]] = {}
        self.values: dict[tuple[Operation, int], str] = {}
        self.gradients = [op for op in order if op.type == GRADIENTS]
        self.watched = {tensor for op in self.gradients for tensor in op.attrs["xs_of"](op)}
        self.last_use = self._last_uses()

    def write(self) -> Program:
        arguments = "".join(f", {slot}" for slot in self.slots.values())
        self.text.append(f"def run(state{arguments}):")
        for tensor in self.inputs:
            self._watch(tensor)
        for op in self.order:
            self._operation(op)
        self._refresh(self.outputs)
        results = "".join(f"{self.slots[tensor]}, " for tensor in self.outputs)
        self.text.append(f"    return [{results}]")
        return self._finish()

    def _finish(self) -> Program:
        source = "\n".join(self.text)
        file = f"<tf1 program {next(_NUMBERS)}>"
        exec(compile(source, file, "exec"), self.scope)
        stateful = any(op.stateful and not op.attrs.get("pure") for op in self.order)
        random = any(op.attrs.get("random") for op in self.order)
        return Program(self.scope["run"], file, self.lines, stateful, bool(self.gradients), source, random)

    def _last_uses(self) -> dict[Operation, list[Tensor]]:
        last = {tensor: op for op in self.order for tensor in op.inputs}
        uses: dict[Operation, list[Tensor]] = {}
        for tensor, op in last.items():
            if tensor not in self.outputs and tensor.op.type != "Const":
                uses.setdefault(op, []).append(tensor)
        return uses

    def _operation(self, op: Operation) -> None:
        if op.type == "Const" and not any(tensor in self.slots for tensor in op.outputs):
            self._constant(op)
            return
        if op.type != GRADIENTS:
            self._refresh(op.inputs)
            variables = [variable for variable in map(variable_of, op.inputs) if variable is not None]
            self.taken[op] = {variable: self.versions.get(variable, 0) for variable in variables}
        kernel = f"k{op.number}"
        while kernel in self.scope:
            kernel += "_"
        self.scope[kernel] = self._kernel(op)
        arguments = [*(["state"] if op.stateful else []), *self._arguments(op)]
        self._line(f"{self._targets(op)}{kernel}({', '.join(arguments)})", op)
        for tensor in op.outputs:
            self._watch(tensor)
        self._mark_written(written_by(op))
        dead = [self.slots[tensor] for tensor in self.last_use.get(op, ())]
        if dead:
            self.text.append(f"    del {', '.join(dead)}")

    def _mark_written(self, variables: Sequence[Operation]) -> None:
        """Note that values of variables which were read before are old now."""
        if not variables:
            return
        for variable in variables:
            version = self.versions.get(variable, 0)
            if (variable, version) not in self.values and variable.outputs[0] in self.slots:
                self.values[variable, version] = self.slots[variable.outputs[0]]
            self.versions[variable] = version + 1
            self.dirty[variable] = set()
        for tensor in self.slots:
            found = variable_of(tensor)
            if found is not None and found in self.dirty:
                self.dirty[found].add(tensor)

    def _arguments(self, op: Operation) -> list[str]:
        """What an operation takes; a gradient by a variable takes the value that its own results derive from."""
        slots = [self.slots[tensor] for tensor in op.inputs]
        if op.type != GRADIENTS or not self.versions:
            return slots
        sources = op.attrs["xs_of"](op)
        before = _before([tensor for tensor in op.inputs if tensor not in sources])
        for place, tensor in enumerate(op.inputs):
            variable = variable_of(tensor)
            if variable in self.versions and tensor in sources:
                versions = [self.taken[one][variable] for one in before if variable in self.taken.get(one, ())]
                found = self.values.get((variable, max(versions, default=self.versions[variable])))
                slots[place] = found or slots[place]
        return slots

    def _kernel(self, op: Operation) -> Callable[..., Any]:
        if op.type != GRADIENTS:
            return self._updating_kernel(op)
        place = self.gradients.index(op)
        later = self.gradients[place + 1 :]
        bound: Callable[..., Any] = op.attrs["bind"](retain=bool(later), again=_differentiated(op, later))
        return bound

    def _updating_kernel(self, op: Operation) -> Callable[..., Any]:
        """The kernel; an update writes in place unless a later gradient needs the values from before it."""
        in_place: Callable[..., Any] | None = op.attrs.get("in_place")
        if in_place is None or any(other in self.gradients for other in self.order[self.order.index(op) :]):
            return op.kernel
        return in_place

    def _constant(self, op: Operation) -> None:
        value = op.attrs["value"]
        if self.device is not None and isinstance(value, torch.Tensor):
            value = value.to(self.device)
        slot = f"c{next(self.numbers)}"
        self.scope[slot] = value
        self.slots[op.outputs[0]] = slot
        if op.outputs[0] in self.watched:
            self.slots[op.outputs[0]] = f"v{next(self.numbers)}"
            self._line(f"{self.slots[op.outputs[0]]} = {slot}", op)
            self._watch(op.outputs[0])

    def _targets(self, op: Operation) -> str:
        if not op.outputs:
            return ""
        names = []
        for tensor in op.outputs:
            if tensor in self.slots:
                names.append("_")  # it was fed
            else:
                self.slots[tensor] = f"v{next(self.numbers)}"
                names.append(self.slots[tensor])
        if len(names) == 1:
            return f"{names[0]}, = " if op.attrs.get("tuple") else f"{names[0]} = "
        return f"{', '.join(names)} = "

    def _refresh(self, tensors: Iterable[Tensor]) -> None:
        """Read variables again that were written since."""
        for tensor in tensors:
            variable = variable_of(tensor)
            if variable is None or tensor not in self.dirty.get(variable, ()):
                continue
            self.dirty[variable].discard(tensor)
            slot = f"v{next(self.numbers)}"
            self._line(f"{slot} = {self._current(variable)}", variable)
            self.slots[tensor] = slot

    def _current(self, variable: Operation) -> str:
        """Where the value of a variable is that was written last; read once, and watched if a gradient needs it."""
        key = variable, self.versions[variable]
        if key not in self.values:
            self.values[key] = f"v{next(self.numbers)}"
            reader = f"r{variable.number}"
            self.scope[reader] = variable.kernel
            self._line(f"{self.values[key]} = {reader}(state)", variable)
            if variable.outputs[0] in self.watched:
                self.scope["watch"] = _watch
                self._line(f"{self.values[key]} = watch({self.values[key]})", variable)
        return self.values[key]

    def _watch(self, tensor: Tensor) -> None:
        if tensor in self.watched:
            self.scope["watch"] = _watch
            slot = self.slots[tensor]
            self._line(f"{slot} = watch({slot})", tensor.op)

    def _line(self, text: str, op: Operation) -> None:
        self.text.append(f"    {text}")
        self.lines[len(self.text)] = op


def _watch(value: torch.Tensor) -> torch.Tensor:
    """`value` as something to differentiate by."""
    return value if value.requires_grad else value.detach().requires_grad_()


def _before(tensors: Sequence[Tensor]) -> set[Operation]:
    """All operations that tensors derive from."""
    seen: set[Operation] = set()
    stack = [tensor.op for tensor in tensors]
    while stack:
        op = stack.pop()
        if op not in seen:
            seen.add(op)
            stack.extend(tensor.op for tensor in op.inputs)
    return seen


def _differentiated(op: Operation, later: list[Operation]) -> bool:
    """Whether a later gradient differentiates the results of `op`."""
    for other in later:
        stack, seen = [tensor.op for tensor in other.inputs], set()
        while stack:
            one = stack.pop()
            if one is op:
                return True
            if one not in seen and one.number > op.number:
                seen.add(one)
                stack.extend(tensor.op for tensor in one.inputs)
    return False


def _unfed(ops: Sequence[Operation], given: Collection[Tensor]) -> list[Operation]:
    """Operations to run; one that has all its outputs fed does not run."""
    return [op for op in ops if not op.outputs or any(tensor not in given for tensor in op.outputs)]
