"""Steps that work in place, as users write them: on their state, their inputs, on parts of both and of temporaries."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from user_cells import Listed, line, step


def added(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h += torch.tanh(x @ w)
    return h, h


def chained(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h.mul_(0.5).add_(x @ w).tanh_()
    return h, h


def inputs_changed(x: Tensor, h: Tensor, w: Tensor) -> Any:
    x.sub_(0.1).relu_()
    return x @ w + h, torch.tanh(x @ w - h)


def columns_written(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h[:, :2] = torch.tanh(x @ w)[:, 2:]
    h[:, -1] = x[:, 0]
    return h, h


def every_second(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h[:, ::2] *= 0.5
    h[:, 1::2] += (x @ w)[:, ::2]
    return 2 * h, h


def one_column(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h[:, 0].zero_()
    h[..., 1] -= x[:, 1]
    return h + x @ w, h


def reshaped(x: Tensor, h: Tensor, w: Tensor) -> Any:
    grid = h.view(-1, 2, 2)
    grid[:, 1].add_((x @ w)[:, :2])
    grid.transpose(1, 2)[:, 0].mul_(0.5)
    return grid.flatten(1), h


def transposed(x: Tensor, h: Tensor, w: Tensor) -> Any:
    turned = h.t()
    turned.mul_(0.5)
    turned[1] = x[:, 1]
    return turned.t() + x @ w, h


def unsqueezed(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h.unsqueeze(1).squeeze(1).unsqueeze(2)[:, 1:3, 0].add_((x @ w)[:, :2])
    return h, h


def halves(x: Tensor, h: Tensor, w: Tensor) -> Any:
    one, other = h[:, :2], h[:, 2:]
    one += other
    other *= 0.5
    other += 0.1 * one + (x @ w)[:, :2]
    return one, h


def view_after_write(x: Tensor, h: Tensor, w: Tensor) -> Any:
    seen = h[:, 1:]
    copied = h[:, 1:].clone()
    h += x @ w
    seen[:, 0] = 0.25
    return torch.cat([seen, copied], 1), h


def temporary(x: Tensor, h: Tensor, w: Tensor) -> Any:
    gates = x @ w + h
    gates[:, :2] = torch.sigmoid(gates[:, 2:].clone())
    gates[:, 2:].clamp_(-0.9, 0.9)
    return gates, torch.sin(gates)


def filled_up(x: Tensor, h: Tensor, w: Tensor) -> Any:
    made = torch.zeros(len(x), 5, dtype=x.dtype)
    made[:, :3] = x
    made[:, 3:] = h[:, :2]
    return made, torch.tanh(made[:, 1:] + x @ w)


def copied_over(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h.copy_(torch.tanh(x @ w + h))
    return h.clone(), h


def masked(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h[h > 0.3] = 0.3
    h.masked_fill_(h < -0.3, -0.3)
    h += x @ w
    return h, h


def rows_masked(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h[x[:, 0] > 0] = 0.0
    return h + x @ w, h + torch.tanh(x @ w)


def constant_places(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h[:, [0, 3]] = (x @ w)[:, 1:3]
    return h, h


def own_places(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h.scatter_(1, x.argmax(1, keepdim=True), 0.5)
    h.scatter_add_(1, x.argmin(1, keepdim=True), x[:, :1])
    return h + x @ w, h


def indices(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h.index_fill_(1, torch.tensor([1]), 0.5)
    h.index_copy_(1, torch.tensor([3, 0]), x[:, :2])
    h.index_add_(1, torch.tensor([2]), x[:, 2:])
    return h + x @ w, h


def of_torch(x: Tensor, h: Tensor, w: Tensor) -> Any:
    torch.nn.init.constant_(x[:, 0], 0.25)
    functional.relu(x, True)
    functional.hardtanh(h, -0.5, 0.5, inplace=True)
    made = x @ w
    functional.elu(made, 1.0, True)
    return torch.sigmoid_(h + 1), h + made


def behind_autograd(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h.data.clamp_(-0.5, 0.5)
    with torch.no_grad():
        x.mul_(0.5)
    detached = h.detach()
    detached += 0.1
    return h + detached, torch.tanh(h + x @ w)


def other_precision(x: Tensor, h: Tensor, w: Tensor) -> Any:
    h += torch.tanh(x @ w).double() * torch.ones((), dtype=torch.float64)
    h[:, 0] = x[:, 0].float()
    return h, h


def written_twice(x: Tensor, h: Tensor, w: Tensor) -> Any:
    for place in range(4):
        h[:, place] = 0.5 * h[:, (place + 1) % 4] + (x @ w)[:, place]
    return h, h


def integers(x: Tensor, state: Any, w: Tensor) -> Any:
    count, h = state
    count += 1
    count[x[:, 0] > 0] = 0
    h += x @ w / (1 + count.unsqueeze(1))
    return h, (count, h)


def nested(x: Tensor, state: Any, w: Tensor) -> Any:
    c, (h, n) = state
    h, c[:] = c + x @ w, torch.tanh(h)
    n[:] = h
    n *= 0.5
    return n, (c, (h, n))


def same_twice(x: Tensor, state: Any, w: Tensor) -> Any:
    one, other = state
    one += x @ w
    other *= 0.5
    return other, (one, one)


def inputs_kept(x: Tensor, h: Tensor) -> Any:
    h.mul_(0.5).add_(x)
    x += 1
    return x, h


class InPlaceModules(tt.RNNCell):
    """Activations of torch that change what they are given, one of them the state."""

    def __init__(self, units: int, width: int = 3) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.inner, self.outer = nn.Linear(width, units), nn.Linear(units, units)
        self.clip, self.relu = nn.Hardtanh(-0.5, 0.5, inplace=True), nn.LeakyReLU(0.1, inplace=True)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.relu(self.inner(inputs)) + self.clip(state)
        return self.outer(state), state


W = (3, 4)
IN_PLACE: list[Listed] = [
    step("state added to", added, W),
    step("chained", chained, W),
    step("inputs changed", inputs_changed, W),
    step("columns written", columns_written, W),
    step("every second column", every_second, W),
    step("one column", one_column, W),
    step("reshaped", reshaped, W),
    step("transposed", transposed, W),
    step("unsqueezed", unsqueezed, W),
    step("halves", halves, W, output=2),
    step("view after write", view_after_write, W, output=6),
    step("temporary", temporary, W),
    step("filled up", filled_up, W, output=5),
    step("copied over", copied_over, W),
    step("masked", masked, W),
    step("rows masked", rows_masked, W),
    step("constant places", constant_places, W, backend="aten", reason="vocabulary"),
    step("own places", own_places, W, backend="aten", reason="vocabulary"),
    step("indices", indices, W, backend="aten", reason="vocabulary"),
    step("functions of torch", of_torch, W),
    step("behind autograd", behind_autograd, W),
    step("other precision", other_precision, W),
    step("written twice", written_twice, W),
    step("integers", integers, W, state=(torch.Size([]), 4), dtypes=(torch.int64, None)),
    step("nested", nested, W, state=(4, (4, 4))),
    step("same twice", same_twice, W, state=(4, 4)),
    step("inputs kept", inputs_kept, state=3, output=3),
    line("modules", InPlaceModules),
]


PLACES: list[Callable[[Tensor], Tensor]] = [
    lambda whole: whole,
    lambda whole: whole[:, 1:3],
    lambda whole: whole[:, ::2],
    lambda whole: whole[:, 3],
    lambda whole: whole.view(-1, 2, 2)[:, 1],
    lambda whole: whole.view(-1, 2, 2).transpose(1, 2)[:, 0],
    lambda whole: whole.t()[2:].t(),
    lambda whole: whole.unsqueeze(1)[:, 0, -2:],
    lambda whole: whole.detach()[:, :1],
]
WRITES: list[Callable[[Tensor, Tensor], Any]] = [
    lambda part, other: part.mul_(0.5),
    lambda part, other: part.add_(other.mean(1).view(-1, *[1] * (part.ndim - 1))),
    lambda part, other: part.copy_(
        other.reshape(len(other), -1)[:, :1].view(-1, *[1] * (part.ndim - 1)).expand_as(part)
    ),
    lambda part, other: part.zero_(),
    lambda part, other: part.clamp_(-0.6, 0.6),
    lambda part, other: part.masked_fill_(part > 0.4, 0.1),
    lambda part, other: part.neg_(),
]


class Scribbling(tt.RNNCell):
    """Writes at random to views of its state, its inputs and a temporary, all of which it goes on to use."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.state_size = self.output_size = 4
        self.mix = torch.nn.Linear(4, 4)
        random = Random(seed)
        self.program = [
            (random.randrange(3), random.choice(PLACES), random.choice(WRITES), random.randrange(3))
            for _ in range(random.randint(2, 7))
        ]

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        # Of their own: torch could not differentiate a product of something that is then overwritten.
        made = self.mix(inputs.clone())
        tensors = [inputs, state, made]
        early = [place(tensor) for tensor in tensors for place in PLACES[1:5]]
        for target, place, write, other in self.program:
            with torch.set_grad_enabled(torch.is_grad_enabled() and place is not PLACES[-1]):
                write(place(tensors[target]), tensors[other].clone())
        seen = sum(part.reshape(len(part), -1).sum(1, keepdim=True) for part in early)
        return torch.tanh(made + inputs + 0.1 * seen), torch.tanh(state + made)
