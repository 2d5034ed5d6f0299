"""A compiled cell at work for a long time: nothing is compiled twice, nothing piles up, everything stays right."""

from __future__ import annotations

import gc
import os
import random
import tracemalloc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import throughtime as tt
from backends import check_on, compiled_backends
from descriptors import BY_NAME, Case, random_inputs
from throughtime._lru import LruCache
from throughtime.native import caching_allocator
from throughtime.native.caching_allocator import REUSE
from throughtime.runtime import compile_cache
from user_cells import LayerNormLSTM, TorchGRU

pytestmark = pytest.mark.covers("compiler")


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The classes of the cells that have been compiled since the test began."""
    seen: list[str] = []

    def compile_step(cell: Any, *args: Any, **options: Any) -> Any:
        seen.append(type(cell).__name__)
        return original(cell, *args, **options)

    original = compile_cache.compile_step
    monkeypatch.setattr(compile_cache, "compile_step", compile_step)
    return seen


def one_step(case: Case, batch: int, time: int, lengths: Any) -> Tensor:
    """A step of training: outputs and gradients, added up."""
    inputs = random_inputs(3, batch, time, case.dtype)
    outputs, _ = tt.dynamic_rnn(case.cell, inputs, lengths, dtype=case.dtype)
    return outputs.sum() + sum(g.sum() for g in torch.autograd.grad(outputs.sum(), list(case.cell.parameters())))


def shapes(count: int) -> list[tuple[int, int, Any]]:
    """Batches, times and lengths; every fifth batch is dense."""
    draw = random.Random(5)
    drawn = []
    for index in range(count):
        batch, time = draw.choice([1, 2, 3, 8, 17, 40]), draw.randint(1, 50)
        lengths = [time, *(draw.randint(0, time) for _ in range(batch - 1))]
        drawn.append((batch, time, None if index % 5 == 0 else draw.sample(lengths, batch)))
    return drawn


def resident_bytes() -> int:
    """The memory of this process, by the system's account."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@compiled_backends
def test_two_hundred_shapes(backend: str, compilations: list[str]) -> None:
    case = BY_NAME["LSTM"].case(2, 3, torch.float32, units=23)
    many = shapes(200)
    with tt.backend(backend):
        one_step(case, *many[1])
        known = len(compile_cache._CACHE)
        compilations.clear()
        for batch, time, lengths in many[:100]:
            one_step(case, batch, time, lengths)
        gc.collect()
        # Streams that are kept to be used again are the subject of another test.
        REUSE.clear()
        tracemalloc.start()
        before, resident = tracemalloc.get_traced_memory()[0], resident_bytes()
        for batch, time, lengths in many[100:]:
            one_step(case, batch, time, lengths)
        gc.collect()
        REUSE.clear()
        grown, more_resident = tracemalloc.get_traced_memory()[0] - before, resident_bytes() - resident
        tracemalloc.stop()
    assert compilations == []
    assert len(compile_cache._CACHE) == known
    assert grown < 500_000
    if Path("/proc/self/statm").exists():
        assert more_resident < 32_000_000


def test_memory_kept_for_streams_is_bounded_by_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hundred shapes keep a few times what the largest needs, not the sum of all."""
    monkeypatch.setattr(caching_allocator, "SMALLEST_BYTES", 1 << 16)
    case = BY_NAME["LSTM"].case(2, 3, torch.float32, units=40)
    REUSE.clear()
    one_step(case, 40, 50, None)
    gc.collect()
    largest = REUSE.free_bytes
    assert largest > 0, "large enough to be kept at all"
    for batch, time, lengths in shapes(200):
        one_step(case, batch, time, lengths)
    gc.collect()
    assert REUSE.free_bytes < 6 * largest


def test_streams_are_not_given_away_while_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs, views of them and arrays on them keep what they show, whatever runs in between."""
    monkeypatch.setattr(caching_allocator, "SMALLEST_BYTES", 1 << 16)
    case = BY_NAME["LSTM"].case(40, 50, torch.float32, units=40)
    run = lambda: tt.dynamic_rnn(case.cell, case.inputs, None, case.state, case.dtype)  # noqa: E731
    with torch.no_grad():
        outputs, final = run()
        view, array = run()[0][3, 4], run()[0][5].numpy()
    want = [outputs.clone(), final.h.clone(), view.clone(), array.copy()]
    for batch, time, lengths in shapes(40):
        one_step(case, batch, time, lengths)
    assert torch.equal(outputs, want[0])
    assert torch.equal(final.h, want[1])
    assert torch.equal(view, want[2])
    assert (array == want[3]).all()


def test_two_hundred_shapes_are_right() -> None:
    """A failure of all at once would not say which one: each is compared with the reference by itself."""
    cell = LayerNormLSTM(7, modules=False)
    for parameter in cell.parameters():
        nn.init.normal_(parameter, std=0.4)
    for batch, time, lengths in shapes(200)[::4]:
        check_on("auto", Case(cell, random_inputs(3, batch, time, torch.float32), None, torch.float32), lengths)


def test_many_cells_of_one_structure_are_compiled_once(compilations: list[str]) -> None:
    def run(units: int) -> None:
        cell = TorchGRU(units)
        tt.dynamic_rnn(cell, torch.randn(3, 4, 3), dtype=torch.float32)

    run(9)
    compilations.clear()
    for _ in range(20):
        run(9)
    assert compilations == []
    run(11)
    assert compilations == ["TorchGRU"]


def test_every_way_of_asking_is_compiled_once(compilations: list[str]) -> None:
    """Layouts, lengths and batches are no reasons; gradients and dtypes are."""
    cell, inputs = TorchGRU(13), torch.randn(4, 5, 3)
    asked: list[Callable[[], Any]] = [
        lambda: tt.dynamic_rnn(cell, inputs, dtype=torch.float32),
        lambda: tt.dynamic_rnn(cell, inputs, [1, 5, 0, 2], dtype=torch.float32),
        lambda: tt.dynamic_rnn(cell, inputs, dtype=torch.float32, time_major=True),
        lambda: tt.dynamic_rnn(cell, inputs[:1], None, torch.randn(1, 13)),
        lambda: tt.dynamic_rnn(cell, inputs, [1, 5, 0, 2], dtype=torch.float32, checkpoint_every=2),
        lambda: tt.dynamic_rnn(cell, inputs, dtype=torch.float32, parallel_iterations=2),
        lambda: tt.bidirectional_dynamic_rnn(cell, cell, inputs, [1, 5, 0, 2], dtype=torch.float32),
        lambda: tt.static_rnn(cell, inputs.unbind(1), dtype=torch.float32),
        lambda: tt.explain(cell, inputs),
    ]
    for ask in asked * 2:
        ask()
    assert len(compilations) == 1
    with torch.no_grad():
        for ask in asked * 2:
            ask()
    assert len(compilations) == 2
    tt.dynamic_rnn(cell, inputs, dtype=torch.float32, all_states=True)
    assert len(compilations) == 3


@pytest.mark.parametrize("time", [10, 100_000])
def test_the_first_call_does_not_depend_on_the_time(time: int, compilations: list[str]) -> None:
    """One step is traced, however many there are: a long sequence compiles to the same program as a short one."""
    cell = TorchGRU(6)
    plan = tt.explain(cell, torch.zeros(1, 1, 3).expand(1, time, 3))
    assert compilations in (["TorchGRU"], [])
    assert len(plan.program.loop.nodes) == len(tt.explain(cell, torch.zeros(1, 2, 3)).program.loop.nodes)


@pytest.mark.parametrize("backend", ["reference", "aten", "cpu"])
@pytest.mark.parametrize("make", [lambda: tt.LSTMCell(6, input_size=3), lambda: TorchGRU(17)], ids=["own", "user's"])
def test_a_cell_that_is_gone_is_gone(make: Callable[[], Any], backend: str) -> None:
    """What the engine remembers of a structure keeps no weights alive."""
    gone = weakrefs_of(make(), backend)
    gc.collect()
    assert [ref() for ref in gone] == [None] * len(gone)


def weakrefs_of(cell: Any, backend: str) -> list[Any]:
    with tt.backend(backend):
        for lengths in (None, None, [2, 1]):
            outputs, _ = tt.dynamic_rnn(cell, torch.randn(2, 3, 3), lengths, dtype=torch.float32)
            outputs.sum().backward()
    return [weakref.ref(cell), *map(weakref.ref, cell.parameters())]


def test_the_engine_remembers_a_bounded_number_of_structures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten, and compiled again when it comes back."""
    monkeypatch.setattr(compile_cache, "_CACHE", LruCache(3))
    inputs = torch.randn(2, 3, 3)
    with tt.backend("aten"):
        for units in (3, 4, 5, 6, 3):
            cell = TorchGRU(units)
            tt.dynamic_rnn(cell, inputs, dtype=torch.float32)
            assert len(compile_cache._CACHE) <= 3


def test_graphs_that_are_gone_leave_nothing() -> None:
    """What was saved for a backward pass that never came is freed with its outputs."""
    cell = tt.LSTMCell(64, input_size=3)
    inputs = torch.randn(8, 40, 3)
    seen = weakref.ref(inputs)
    outputs = tt.dynamic_rnn(cell, inputs, dtype=torch.float32)[0]
    del inputs
    assert seen() is not None or outputs.requires_grad
    del outputs
    gc.collect()
    assert seen() is None
