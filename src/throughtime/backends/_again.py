"""Steps computed once more, all at once.

Where the state before every step is known, no step has to wait for another. What a loop has computed in as many small
products as there are steps follows from the states in a few large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from throughtime.backends._moves import shifted
from throughtime.backends._rephrase import add_products
from throughtime.backends._steps import Steps
from throughtime.backends._torch_code import Env, TorchFunction
from throughtime.compiler import Graph, Node, Program, Value


class Again:
    """What computes the steps of a block once more.

    `states` are the states that it needs as they were before each step, by their place; `gives` is what it finds.
    """

    def __init__(self, program: Program, function: TorchFunction) -> None:
        self.gives = set(function.gives)
        self.states = [index for index, value in enumerate(program.state) if value in set(function.takes)]
        self._program, self._function = program, function
        wanted = [value for value in program.invariant.gives if value in set(function.takes)]
        nodes = Graph(program.invariant.nodes).needed_for(wanted)
        self._invariant = TorchFunction(program.invariant.name, nodes, wanted)

    @classmethod
    def of(
        cls, program: Program, kept: Sequence[Value], there: set[Value], wanted: Sequence[Value], lagged: Sequence[int]
    ) -> Again | None:
        """As many as possible of the `wanted` values, from those that are `there` and from states; None if none are.

        A state can be found again if the one after it is among the values that are `kept`.
        """
        starts = set(lagged)
        while True:
            states = {*program.state, *(program.new_state[index] for index in starts)} & {*program.state, *kept}
            rest = [value for value in wanted if value not in states]
            nodes = leading_to(program, rest, there | states)
            again = cls(program, TorchFunction("again", Graph(add_products(nodes, rest)).needed_for(rest), rest, ()))
            if starts.issuperset(again.states):
                break
            starts.update(again.states)
        found = all(program.new_state[index] in {*kept, *program.inputs} for index in again.states)
        return again if rest and found else None

    def run_invariant(self, env: Env) -> None:
        """Add what depends on the cell's tensors alone."""
        self._invariant.run(0, env)

    def run(self, env: Env, starts: Mapping[int, Tensor], steps: Steps) -> None:
        """Add what the steps of a block had computed, and the states before each step."""
        for index in self.states:
            old, new = self._program.states[index]
            env[old] = previous(steps, env[new], starts[index])
        self._function.run(steps.total, env)


def leading_to(program: Program, wanted: Sequence[Value], there: set[Value]) -> list[Node]:
    """The nodes of a step that lead from what is there to what is wanted."""
    return Graph([node for node in _steps_of(program) if not there.issuperset(node.results)]).needed_for(wanted)


def _steps_of(program: Program) -> list[Node]:
    return [*program.before.nodes, *program.loop.nodes, *program.after.nodes]


def light_ones(program: Program, values: Sequence[Value], there: set[Value]) -> set[Value]:
    """Those of the values that the others lead to without a product: finding them costs next to nothing."""
    order = {value: place for place, node in enumerate(_steps_of(program)) for value in node.results}
    light: set[Value] = set()
    # From the last to the first, so that what comes first is left to find the others from.
    for value in sorted(values, key=lambda value: order.get(value, -1), reverse=True):
        others = there | (set(values) - light - {value})
        nodes = leading_to(program, [value], others)
        if nodes and all(node.is_pointwise or node.name in _LIGHT for node in nodes):
            light.add(value)
    return light


_LIGHT = frozenset(
    "slice cat view t expand select unsqueeze squeeze permute transpose clone split split_with_sizes unbind "
    "_to_copy sum mean amax var_mean native_layer_norm _softmax".split()
)


def previous(steps: Steps, stream: Tensor, initial: Tensor) -> Tensor:
    """For every row of every step the row of the step before it."""
    found = shifted(stream, initial, steps.active, steps.offset) if steps.is_ragged else None
    return steps.previous(stream, initial) if found is None else found
