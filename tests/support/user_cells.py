"""Cells as users write them, a line for each, with the backend that must run it: the compiler has seen none of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

import throughtime as tt
from descriptors import Case, Descriptor


def weight(*shape: int) -> nn.Parameter:
    """A parameter that `settled` will fill."""
    return nn.Parameter(torch.empty(shape))


class Step(tt.RNNCell):
    """A cell with three inputs to a row, and weights of the given shapes; the step is a function of all of them.

    `dtypes` are those of the parts of the state that are not what the cell computes in.
    """

    def __init__(
        self, step: Callable[..., Any], state_size: Any, output_size: Any, *weights: nn.Parameter, dtypes: Any = None
    ) -> None:
        super().__init__()
        self.step, self.state_size, self.output_size, self.dtypes = step, state_size, output_size, dtypes
        self.weights = nn.ParameterList(weights)

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        zeros = super().zero_state(batch_size, dtype, device)
        if self.dtypes is None:
            return zeros
        return tuple(leaf.to(own or dtype) for leaf, own in zip(zeros, self.dtypes, strict=True))

    def forward(self, inputs: Any, state: Any) -> Any:
        return self.step(inputs, state, *self.weights)


class MinimalGatedUnit(tt.RNNCell):
    """One gate that both forgets and resets."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.gate, self.candidate = nn.Linear(3 + units, units), nn.Linear(3 + units, units)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        forget = torch.sigmoid(self.gate(torch.cat([inputs, state], 1)))
        candidate = torch.tanh(self.candidate(torch.cat([inputs, forget * state], 1)))
        state = (1 - forget) * state + forget * candidate
        return state, state


class LayerNormLSTM(tt.RNNCell):
    """Normalised before the gates and before the output, by modules or by functions."""

    def __init__(self, units: int, *, modules: bool) -> None:
        super().__init__()
        self.state_size, self.output_size = tt.LSTMStateTuple(units, units), units
        self.kernel = weight(3 + units, 4 * units)
        self.scale, self.shift = weight(4 * units), weight(4 * units)
        self.before = nn.LayerNorm(4 * units) if modules else None
        self.after = nn.LayerNorm(units, bias=False) if modules else None

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        gates = torch.cat([inputs, state.h], 1) @ self.kernel
        if self.before is None:
            gates = functional.layer_norm(gates, gates.shape[1:], self.scale, self.shift)
        else:
            gates = self.before(gates) * self.scale + self.shift
        entering, candidate, forget, leaving = gates.chunk(4, 1)
        c = torch.sigmoid(forget + 1) * state.c + torch.sigmoid(entering) * torch.tanh(candidate)
        seen = functional.layer_norm(c, c.shape[1:]) if self.after is None else self.after(c)
        h = torch.sigmoid(leaving) * torch.tanh(seen)
        return h, tt.LSTMStateTuple(c, h)


class FrozenHalf(tt.RNNCell):
    """Half of what two layers give, one of which learns no weights."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.from_inputs, self.from_state = nn.Linear(3, 2 * units), nn.Linear(units, 2 * units)
        self.from_inputs.weight.requires_grad_(False)

    def forward(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.tanh((self.from_inputs(x) + self.from_state(h))[:, : self.state_size])
        return h, h


class TorchGRU(tt.RNNCell):
    """torch's variant: the reset gate after the product, two biases."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size = self.output_size = units
        self.of_inputs, self.of_state = nn.Linear(3, 3 * units), nn.Linear(units, 3 * units)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        reset_x, update_x, new_x = self.of_inputs(inputs).chunk(3, -1)
        reset_h, update_h, new_h = self.of_state(state).chunk(3, -1)
        update = torch.sigmoid(update_x + update_h)
        new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
        state = new + update * (state - new)
        return state, state


class TorchCell(tt.RNNCell):
    """The plainest form in torch."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.state_size, self.output_size = {"lstm": (units, units), "gru": units}, units
        self.lstm, self.gru = nn.LSTMCell(3, units), nn.GRUCell(units, units, bias=False)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        h, c = self.lstm(inputs, state["lstm"])
        above = self.gru(h, state["gru"])
        return torch.lerp(h, above, 0.25), {"lstm": (h, c), "gru": above}


class Counter(tt.RNNCell):
    """Counts its steps in integers, in a row of any dimensions or in one scalar for the whole batch."""

    def __init__(self, units: int, dims: tuple[int, ...] | None) -> None:
        super().__init__()
        self.output_size, self.dims = units, dims
        self.state_size = {"count": torch.Size(dims or ()), "h": units}
        self.kernel = weight(3, units)

    def zero_state(self, batch_size: int, dtype: torch.dtype, device: Any = None) -> Any:
        shape = () if self.dims is None else (batch_size, *self.dims)
        return {
            "count": torch.zeros(shape, dtype=torch.int64),
            "h": torch.zeros(batch_size, self.output_size).to(dtype),
        }

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        count = state["count"] + 1
        seen = count if count.ndim == 0 else count.view(-1, 1)
        h = torch.tanh(inputs @ self.kernel / seen + torch.where(seen > 2, 0.5 * state["h"], state["h"]))
        return h * seen, {"count": count, "h": h}


class Attention(tt.RNNCell):
    """Looks things up in a memory that belongs to the cell, or in one that each row carries along."""

    def __init__(self, units: int, *, own: bool) -> None:
        super().__init__()
        self.output_size, self.own = units, own
        self.state_size = {"h": units} if own else {"h": units, "memory": torch.Size([5, units])}
        self.kernel, self.memory = weight(3 + units, units), weight(5, units)

    def forward(self, inputs: Tensor, state: Any) -> tuple[Tensor, Any]:
        query = torch.tanh(torch.cat([inputs, state["h"]], 1) @ self.kernel)
        if self.own:
            seen = torch.softmax(query @ self.memory.t(), 1) @ self.memory
            return seen, {"h": query + seen}
        scores = torch.bmm(state["memory"], query.unsqueeze(2))
        seen = torch.bmm(torch.softmax(scores, 1).transpose(1, 2), state["memory"]).squeeze(1)
        return seen, {"h": query + seen, "memory": state["memory"]}


class ConvolutionalGRU(tt.RNNCell):
    """A state that is an image [C, H, W]."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.state_size = self.output_size = torch.Size([channels, 3, 2])
        self.gates = nn.Conv2d(2 + channels, 2 * channels, 3, padding=1)
        self.candidate = nn.Conv2d(2 + channels, channels, 3, padding=1, bias=False)

    def forward(self, inputs: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        reset, update = torch.sigmoid(self.gates(torch.cat([inputs, state], 1))).chunk(2, 1)
        new = torch.tanh(self.candidate(torch.cat([inputs, reset * state], 1)))
        state = update * state + (1 - update) * new
        return state, state


class PlainTensors:
    """No module: tensors that ask for gradients, in a list and in a dict, and a helper object that holds one more."""

    def __init__(self, units: int) -> None:
        self.state_size, self.output_size = (units, units), units
        self.kernels = [torch.empty(3, units, requires_grad=True), torch.empty(units, units, requires_grad=True)]
        self.biases = {"in": torch.empty(units, requires_grad=True)}
        self.helper = Scale(units)

    @property
    def weights(self) -> list[Tensor]:
        return [*self.kernels, *self.biases.values(), self.helper.scale]

    def zero_state(self, batch_size: int, dtype: torch.dtype) -> Any:
        return tuple(torch.zeros(batch_size, size, dtype=dtype) for size in self.state_size)

    def __call__(self, inputs: Tensor, state: Any) -> Any:
        fast, slow = state
        fast = torch.tanh(inputs @ self.kernels[0] + fast @ self.kernels[1] + self.biases["in"])
        slow = slow + self.helper(fast - slow)
        return fast + slow, (fast, slow)


class Scale:
    """An object of a user's own that a step calls."""

    def __init__(self, units: int) -> None:
        self.scale = torch.empty(units, requires_grad=True)

    def __call__(self, values: Tensor) -> Tensor:
        return values * torch.sigmoid(self.scale)


class StraightThrough(torch.autograd.Function):
    """The sign, with the gradient of the identity inside of [-1, 1]."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.save_for_backward(values)
        return torch.where(values > 0, 1.0, -1.0).to(values.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (values,) = ctx.saved_tensors
        return gradient * (values.abs() < 1)


def unread_gates(x: Tensor, h: Tensor, *weights: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the second half are sums of zeros."""
    joined, (w, b, v, c) = torch.cat([x, h], 1), weights
    h = torch.tanh(torch.cat([joined @ w + b, joined @ v + c], 1).chunk(2, 1)[0])
    return h, h


def softmax_gates(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    shares = torch.softmax(torch.cat([x, h], 1) @ w, 1)
    pieces = torch.tanh(torch.cat([x, h], 1) @ u).chunk(3, 1)
    h = sum(shares[:, i : i + 1] * piece for i, piece in enumerate((h, *pieces[:2])))
    return h, h


def inner_loop(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    for _ in range(3):
        h = h + 0.3 * torch.tanh(x @ w + h @ u - h)
    return h, h


def several_products(x: Tensor, h: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Any:
    h = torch.tanh((x @ w) * (h @ u) + torch.relu(h @ v) @ u)
    return h @ v, h


def odd_operations(x: Tensor, h: Tensor, w: Tensor) -> Any:
    y = (x @ w + h).clamp(-1.5, 1.5)
    y = torch.where(y > 0, y.abs().pow(1.5), torch.relu(-y)) + torch.maximum(y, h) - torch.minimum(h, 2 * y)
    h = functional.silu(y) / (1 + y * y) + torch.exp(-y.square()) + torch.rsqrt(1 + h**2) + torch.log1p(y.abs())
    return torch.erf(h) + torch.atan2(y, 2 + h.square()) + torch.sinh(torch.sin(h)) + h.sign(), h


ACTIVATIONS = (
    "elu",
    "gelu",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "selu",
    "silu",
    "softplus",
)


def activations(x: Tensor, h: Tensor, w: Tensor) -> Any:
    """Every function that torch has to put behind a product."""
    h = x @ w + 0.5 * h
    total = sum(getattr(functional, name)(h - 0.3 * shift) for shift, name in enumerate(ACTIVATIONS))
    return functional.softsign(total), torch.tanh(total / 5)


def statistics(x: Tensor, h: Tensor, w: Tensor) -> Any:
    y = x @ w + h
    h = (y - y.mean(1, keepdim=True)) / (y.std(1, keepdim=True) + y.amax(1, keepdim=True).exp())
    return h * torch.linalg.vector_norm(y, dim=1, keepdim=True) + torch.logsumexp(h, 1, keepdim=True), h


def columns(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    """Rows as columns: `W @ h.T`."""
    h = torch.tanh(w @ x.T + u @ h.T).T
    return h, h


def linear_recurrence(x: Tensor, h: Tensor, w: Tensor, decay: Tensor) -> Any:
    h = torch.sigmoid(decay) * h + x @ w
    return h.square().sum(1), h


def attend_to_old_outputs(x: Tensor, state: Any, w: Tensor) -> Any:
    """A window of what was computed before, moved on by one place at every step."""
    window = torch.cat([state[:, 1:], torch.tanh(x @ w + state[:, -1]).unsqueeze(1)], 1)
    return (window * torch.softmax(window.sum(2, keepdim=True), 1)).sum(1), window


def empty_pieces(x: Tensor, h: Tensor, w: Tensor) -> Any:
    """What is written for any width, where the width is one."""
    h = torch.tanh(x @ w + torch.cat([h[:, 1:], h[:, :1]], 1))
    return h, h


def clockwork(x: Tensor, state: Any, w: Tensor, u: Tensor) -> Any:
    """Every third step of a row, and only then, its state moves on; whole numbers say when."""
    count, h = state
    new = torch.tanh(x @ w + h @ u)
    due = (count % 3 == 0) & (count // 2 < 9) | (count == 7)
    return new, (count + 1, torch.where(due.unsqueeze(1), new, h))


def until_done(x: Tensor, state: Any, w: Tensor) -> Any:
    """A flag for each row that stays up once it is: what comes later is not taken in."""
    done, total = state
    done = done | (total.sum(1) > 1)
    return total, (done, total + torch.tanh(x @ w) * ~done.unsqueeze(1))


def two_precisions(x: Tensor, state: Any, w: Tensor) -> Any:
    """A sum that must not lose small parts; the gradient of the other path has none of its precision."""
    fast, total = state
    fast = torch.tanh(x @ w + fast + total.detach().to(x.dtype))
    return fast, (fast, 0.9 * total + x[:, :2].double())


def rotation(x: Tensor, h: Tensor, w: Tensor, angle: Tensor) -> Any:
    """Complex numbers, two features each."""
    wide = torch.promote_types(h.dtype, torch.float32)
    turned = torch.view_as_complex(h.to(wide).view(-1, 2, 2)) * torch.exp(1j * angle.to(wide))
    h = torch.view_as_real(turned).flatten(1).to(h.dtype) + x @ w
    return h, torch.tanh(h)


def bilinear(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    h = torch.tanh(torch.einsum("bi,ijk,bj->bk", x, w, h) + h @ u)
    return h, h


def descent(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    """A step down an energy of its own, by a gradient inside of the step."""
    with torch.enable_grad():
        place = h if h.requires_grad else h.detach().requires_grad_()
        energy = (torch.tanh(place @ u) * (x @ w)).sum()
        (slope,) = torch.autograd.grad(energy, place, create_graph=True)
    h = torch.tanh(h - 0.5 * slope)
    return h, h


def heads(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    """Features in two heads, turned around, copied side by side and put together again."""
    turned = h.view(-1, 2, 2).transpose(1, 2).reshape(-1, 4) + (h @ u).view(-1, 2, 2).mT.contiguous().view(-1, 4)
    parts = x.unsqueeze(2).expand(-1, 3, 2).reshape(-1, 6)[:, 1:5]
    h = torch.tanh(turned + parts + x @ w)
    return h.repeat_interleave(2, 1)[:, 2:6], h


def all_kinds(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    """What torch can do with the features of a row."""
    y = torch.tanh(torch.einsum("bi,ij->bj", x, w) + torch.einsum("ji,bi->bj", u, h))
    z = y.roll(1, 1) + y[:, :2].repeat(1, 2) + y[:, [3, 0, 0, 1]] + y.unfold(1, 2, 1).sum((1, 2)).unsqueeze(1)
    z = z + torch.baddbmm(y.unsqueeze(1), x.unsqueeze(1), w.expand(len(x), 3, 4), alpha=0.5).squeeze(1)
    z = z + functional.prelu(y, u[0]) + functional.avg_pool1d(y.unsqueeze(1), 3, 1, 1).squeeze(1)
    pairs = [part.view(-1, 1, 2, 2) for part in (y, z, h)]
    z = 0.3 * z + functional.scaled_dot_product_attention(*pairs).flatten(1) + (y @ u[1]).unsqueeze(1)
    h = functional.group_norm(z + functional.bilinear(x, y, u[:3].expand(4, 3, 4)), 2, u[2], u[3], eps=1.0)
    return h, 0.5 * h


def functions_of_weights(x: Tensor, h: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Any:
    """Gradients that go through all kinds of functions after they have been added up."""
    scale = functional.softplus(v) + torch.softmax(v, 0) * v.clamp(-0.5, 0.5) + v.cumsum(0).flip(0) + (9 * v).round()
    h = torch.tanh(x @ functional.normalize(w, dim=1) + h @ (u.tril() + functional.gelu(u)[[1, 0, 1, 2]]) * scale.exp())
    return h / (1 + v.max()), h


def sliced_weights(x: Tensor, h: Tensor, stack: Tensor) -> Any:
    """Layers that lie in one tensor, taken apart and put together in all kinds of ways."""
    for layer in stack.unbind(0):
        h = torch.tanh(h @ layer[:4] + x @ layer.narrow(0, 4, 3) + layer[-1])
    last = stack.transpose(1, 2)[0].reshape(4, 8)[:, ::2]
    return torch.stack([h @ last.contiguous(), h], 2).flatten(1), h


def straight_through(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    h = torch.tanh(x @ w + StraightThrough.apply(h) @ u)
    return h, h


def truncated(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    h = torch.tanh(x @ w + h.detach() @ u + h)
    return h * h.detach(), h


def without_gradient(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    with torch.no_grad():
        gate = torch.sigmoid(x @ w + h @ u)
    h = gate * h + (1 - gate) * (x @ w)
    return h, h


def in_place(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Any:
    y = x @ w
    y += h @ u
    y = y.tanh_()
    joined = torch.cat([y, h], 1)
    joined *= 0.5
    return joined, y


class Listed(NamedTuple):
    """A cell, the backend that `auto` must choose for it on a CPU, and why it is not the kernels if it is not."""

    descriptor: Descriptor
    backend: str = "cpu"
    reason: str = ""

    def case(self, batch: int, time: int, dtype: torch.dtype = torch.float64) -> Case:
        """The cell built for `dtype`, and something to run it on."""
        return self.descriptor.case(batch, time, dtype)


def line(name: str, make: Callable[[int], Any], backend: str = "cpu", reason: str = "", inputs: Any = 3) -> Listed:
    """A line of the list."""
    return Listed(Descriptor(name, make, inputs), backend, reason)


def step(
    name: str, function: Any, *shapes: tuple[int, ...], state: Any = 4, output: Any = 4, dtypes: Any = None, **more: Any
) -> Listed:
    """A line whose cell is one function of inputs, state and weights of these shapes."""
    make = lambda _: Step(function, state, output, *(weight(*shape) for shape in shapes), dtypes=dtypes)  # noqa: E731
    return line(name, make, **more)


IMAGE = torch.Size([2, 3, 2])
NUMBER = torch.Size([])
USER_CELLS = [
    line("minimal gated unit", MinimalGatedUnit),
    line("layer norm, modules", lambda units: LayerNormLSTM(units, modules=True)),
    line("layer norm, functions", lambda units: LayerNormLSTM(units, modules=False)),
    line("torch's GRU", TorchGRU),
    line("counter [B]", lambda units: Counter(units, ())),
    line("counter [B, 1]", lambda units: Counter(units, (1,))),
    line("counter []", lambda units: Counter(units, None)),
    line("torch's own cell", TorchCell),
    line("attention to its own", lambda units: Attention(units, own=True)),
    line("attention to a memory", lambda units: Attention(units, own=False)),
    line("images", ConvolutionalGRU, "aten", "convolution", IMAGE),
    line("plain tensors", PlainTensors),
    step("gates that are not read", unread_gates, (7, 4), (4,), (7, 4), (4,)),
    line("half of a product, inputs frozen", FrozenHalf),
    step("softmax gates", softmax_gates, (7, 3), (7, 12)),
    step("inner loop", inner_loop, (3, 4), (4, 4)),
    step("several products", several_products, (3, 4), (4, 4), (4, 4)),
    step("odd operations", odd_operations, (3, 4)),
    step("activations", activations, (3, 4)),
    step("empty pieces", empty_pieces, (3, 1), state=1, output=1, backend="aten", reason="a row is empty"),
    step("statistics", statistics, (3, 4)),
    step("columns", columns, (4, 3), (4, 4)),
    step("a number a row", linear_recurrence, (3, 4), (4,), output=NUMBER),
    step("a row of one", lambda x, h, w: (h * x @ w, torch.sin(h + x @ w)), (3, 1), state=1, output=1),
    step("a window", attend_to_old_outputs, (3, 4), state=torch.Size([3, 4])),
    step("delay line", lambda x, h: (h, x), state=3, output=3),
    step("delayed pieces", lambda x, h, w, u: (torch.tanh(x @ w + h @ u), torch.cat([x, x[:, :1]], 1)), (3, 4), (4, 4)),
    step("two swapped", lambda x, s: (s[0] * x, (s[1], s[0] + x)), state=(3, 3), output=3),
    step("old state out", lambda x, h, w: (h, torch.tanh(x @ w + h)), (3, 4)),
    step("inputs out", lambda x, h, w: (x, torch.tanh(x @ w + h)), (3, 4), output=3),
    step("unused state", lambda x, s, w: (x @ w, (s[0], torch.tanh(s[1]))), (3, 4), state=(2, 2)),
    step("constant state", lambda x, h, w: (x @ w + h, torch.full_like(h, 0.5)), (3, 4)),
    step("weight as state", lambda x, h, w, b: (torch.tanh(x @ w + h), b.expand_as(h)), (3, 4), (4,)),
    step("twins", lambda x, s, w: (h := torch.tanh(x @ w + s[0] * s[1]), (h, h)), (3, 4), state=(4, 4)),
    step("weights out", lambda x, h, w, b: (b.expand(len(x), 4), torch.sin(h + x @ w)), (3, 4), (4,)),
    step("clockwork", clockwork, (3, 4), (4, 4), state=(NUMBER, 4), dtypes=(torch.int64, None)),
    step("until done", until_done, (3, 4), state=(NUMBER, 4), dtypes=(torch.bool, None)),
    step("two precisions", two_precisions, (3, 2), state=(2, 2), output=2, dtypes=(None, torch.float64)),
    step("complex numbers", rotation, (3, 4), (2,), backend="reference", reason="view_as_complex"),
    step("bilinear", bilinear, (3, 4, 4), (4, 4)),
    step("heads", heads, (3, 4), (4, 4)),
    step("all kinds of features", all_kinds, (3, 4), (4, 4), backend="aten", reason="vocabulary"),
    step("functions of weights", functions_of_weights, (3, 4), (4, 4), (4,)),
    step("made afresh", lambda x, s, w: (x @ w + s[0], (x @ w, torch.ones_like(s[1]))), (3, 4), state=(4, 2)),
    step("inner gradient", descent, (3, 4), (4, 4)),
    step("sliced weights", sliced_weights, (2, 8, 4), output=8),
    step("straight through", straight_through, (3, 4), (4, 4)),
    step("truncated", truncated, (3, 4), (4, 4)),
    step("without a gradient", without_gradient, (3, 4), (4, 4)),
    step("in place", in_place, (3, 4), (4, 4), output=8),
]
