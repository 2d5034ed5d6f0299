"""What draws random numbers inside of a step, in the form that the engine can draw ahead, and draw again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from throughtime._errors import check_positive_int, problem
from throughtime._torch_internals import current_graph_task_id


class RandomModule:
    """A module that draws: from torch's own generator, or with a seed from one of its own on each device."""

    training: bool

    def seed_with(self, seed: int | None, name: str = "seed") -> None:
        """Say where random numbers come from; called once, by the constructor, with the name of its argument."""
        self.seed = None if seed is None else check_positive_int(name, seed, minimum=0)
        if self.seed is not None and self.seed >= 2**64:
            fix = "Pass a smaller one."
            raise ValueError(problem(f"`{name}` is too large", got=seed, expected="an int below 2**64", fix=fix))
        self._generators: dict[torch.device, torch.Generator] = {}

    def generator(self, device: torch.device) -> torch.Generator | None:
        """Where numbers on a device are drawn from, made when first asked for; None is torch's own generator."""
        if self.seed is None:
            return None
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self._generators[device]

    def uniform(self, shape: torch.Size, like: Tensor) -> Tensor:
        """Numbers from 0 to 1 on the device of `like`, in its dtype; half precision is too coarse near 1."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        generator = self.generator(like.device)
        if generator is None:
            # Without being asked for one, torch also takes shapes that torch.export leaves open.
            return torch.rand(shape, dtype=dtype, device=like.device)
        return torch.rand(shape, dtype=dtype, device=like.device, generator=generator)

    def begin_sequence(self) -> None:
        """An unroll begins.

        One within a backward pass computes something again, and its masks must be those of the first time.
        """
        if self._generators and self.training and current_graph_task_id() != -1:
            what = "a cell with a `seed` of its own cannot draw the same numbers again in a backward pass"
            fix = "Leave `seed` out, so that torch restores its own generator, or use `checkpoint_every`."
            got = f"{type(self).__name__}, unrolled again as torch.utils.checkpoint does"
            raise RuntimeError(problem(what, got=got, expected="torch's own generator", fix=fix))

    def noise_state(self) -> Any:
        """What the coming numbers depend on; `set_noise_state` goes back to it, to compute a step again."""
        return {}, {device: generator.get_state() for device, generator in self._generators.items()}

    def set_noise_state(self, noise_state: Any) -> None:
        """Go back to an earlier `noise_state`."""
        _, states = noise_state
        # A generator that did not exist then starts from its seed again.
        self._generators = {device: torch.Generator(device) for device in states}
        for device, state in states.items():
            self._generators[device].set_state(state)


def drawing(cell: Any) -> list[tuple[str, RandomModule]]:
    """The modules inside a cell that draw, by their paths."""
    named = cell.named_modules() if isinstance(cell, nn.Module) else ()
    return [(path, module) for path, module in named if isinstance(module, RandomModule)]


def noise_of(cell: Any) -> dict[str, Any]:
    """The state of every source of randomness inside a cell, by its path; torch's own generators are not among them."""
    return {path: module.noise_state() for path, module in drawing(cell)}


def set_noise(cell: Any, states: dict[str, Any]) -> None:
    """Go back to what `noise_of` has seen."""
    for path, module in drawing(cell):
        module.set_noise_state(states[path])
