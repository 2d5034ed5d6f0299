"""Kernels for GPUs without a GPU: in Triton's interpreter, one block of threads for each tile of the batch.

The same source runs on a card, where many blocks share a row; `tests/gpu` holds that to the same results.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import throughtime as tt
from throughtime.backends.aten.loop import AtenLoop
from throughtime.backends.triton import ElementwiseKernel
from throughtime.backends.triton import kernel as triton_kernel
from throughtime.backends.triton import launch as triton_launch
from throughtime.backends.triton.barrier_stages import stage
from throughtime.backends.triton.codegen_kernel import emit
from throughtime.backends.triton.matmul_groups import MatmulGroup, chunks, pack
from throughtime.backends.triton.row_segments import Segment, cut
from throughtime.backends.triton.target import gpu_target, jit
from throughtime.backends.triton.tiling import (
    GpuSpec,
    NoTilingError,
    StepCost,
    Tiling,
    candidates,
    choose,
    expected_seconds,
    seconds,
)
from throughtime.compiler import LoopProgram, Lowered

pytestmark = pytest.mark.covers("kernels")
HERE = Path(__file__).parents[2] / "support"
H200 = GpuSpec(132, 227 * 2**10)
CPU = torch.device("cpu")


@pytest.mark.parametrize("file", ["triton_interpreter.py", "triton_interpreter_matrix.py"])
def test_kernels_in_the_interpreter(file: str) -> None:
    """In a process of its own: Triton decides at its import whether it interprets."""
    pytest.importorskip("triton")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", file]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=HERE)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]


def test_tensors_on_the_cpu_are_refused() -> None:
    with pytest.raises(ValueError, match="it is for CUDA devices"), tt.backend("triton"):
        tt.dynamic_rnn(tt.GRUCell(4, input_size=3), torch.zeros(2, 3, 3), dtype=torch.float32)


@pytest.mark.parametrize("depth", [1, 16, 22, 150, 256, 700, 2048])
def test_chunks_cover_all_features(depth: int) -> None:
    sizes = chunks(depth, 128)
    assert sum(sizes) - 16 < depth <= sum(sizes)
    assert all(size in (16, 32, 64, 128) for size in sizes)


def group(results: int, depth: int, width: int, dtype: torch.dtype = torch.float32) -> MatmulGroup:
    pieces = tuple(Segment(f"gate{index}", width, dtype) for index in range(results))
    whole = (Segment("h", depth, dtype),)
    return MatmulGroup(whole, pieces, ("w",) * results, tuple(width * index for index in range(results)))


@pytest.mark.parametrize("results", [1, 2, 4])
def test_packed_columns_are_where_a_block_reads_them(results: int) -> None:
    blocks, tile, width, depth = 3, 4, 10, 5
    matrix = torch.randn(depth, results * width)
    packed = pack(group(results, depth, width), {"w": matrix}, 16, blocks, tile, direct=False)
    packed = packed.view(blocks, 16, results * tile)
    for block in range(blocks):
        for column in range(results * tile):
            low, high = (column % 2, column // (2 * tile)) if results == 4 else (column % results, 0)
            unit = column % (2 * tile) // 2 if results == 4 else column // results
            place = block * tile + unit
            want = matrix[:, (2 * high + low) * width + place] if place < width else torch.zeros(depth)
            assert torch.equal(packed[block, :depth, column], want)
    assert not packed[:, depth:].any()


@pytest.mark.parametrize("results", [1, 2, 4])
@pytest.mark.parametrize("tile", [4, 16])
def test_columns_for_operands_are_packed_along_their_features(results: int, tile: int) -> None:
    """Eight units of a result side by side, then those of the next result."""
    blocks, width, depth = 3, 2 * tile + 3, 5
    matrix = torch.randn(depth, results * width)
    packed = pack(group(results, depth, width), {"w": matrix}, 16, blocks, tile, direct=True)
    packed = packed.view(blocks, results * tile, 16)
    few = min(tile, 8)
    for block in range(blocks):
        for column in range(results * tile):
            unit = column // (results * few) * few + column % few
            place = block * tile + unit
            result = column // few % results
            want = matrix[:, result * width + place] if place < width else torch.zeros(depth)
            assert torch.equal(packed[block, column, :depth], want)
    assert not packed[..., depth:].any()


def test_single_columns_are_packed_for_every_block() -> None:
    matrix = torch.randn(5, 7)
    alone = MatmulGroup((Segment("h", 5, torch.float32),), (Segment("gate", 1, torch.float32),), ("w",), (6,))
    packed = pack(alone, {"w": matrix}, 16, 3, 1, direct=False).view(3, 16, 1)
    assert torch.equal(packed[:, :5, 0], matrix[:, 6].expand(3, 5))
    assert not packed[:, 5:].any()


def test_columns_of_several_matrices_and_of_transposed_ones_are_packed_alike() -> None:
    one, other = torch.randn(8, 5).T, torch.randn(5, 8)
    whole = MatmulGroup((Segment("h", 5, torch.float32),), group(2, 5, 4).results, ("one", "other"), (4, 0))
    packed = pack(whole, {"one": one, "other": other}, 5, 2, 2, direct=False).flatten(2)
    beside = torch.stack([one[:, 4:], other[:, :4]], 2)
    assert torch.equal(packed, beside.unflatten(1, (2, 2)).permute(1, 0, 2, 3).flatten(2))


@pytest.mark.parametrize("units", [8, 150, 256, 768, 1024, 2048])
@pytest.mark.parametrize("batch", [1, 16, 64, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_geometry_fits_the_card(units: int, batch: int, dtype: torch.dtype) -> None:
    load = StepCost((group(4, units, units, dtype),), 1, 1, units, 20)
    shape = choose(load, batch, H200)
    assert shape.blocks <= H200.processors
    assert shape.blocks * shape.tile(units) >= units
    columns = shape.ways * 4 * shape.tile(units) * dtype.itemsize
    held = shape.held[0] if shape.direct else 0
    assert (shape.resident[0] - held) * columns <= H200.shared_bytes
    assert held * columns <= 4 * 255 * 32 * shape.warps


def test_lengths_that_differ_favour_launches_one_after_another() -> None:
    """The longest sequences first, in smaller tiles: the launches of shorter ones end sooner."""
    load = StepCost((group(4, 2048, 2048),), 1, 1, 2048, 20)
    dense, ragged = (choose(load, 128, H200, ragged=differ) for differ in (False, True))
    assert (dense.rows, ragged.rows) == (128, 32)
    assert seconds(load, ragged, 128, H200, ragged=True) < seconds(load, dense, 128, H200, ragged=True)
    # One launch takes as long as its longest sequence, whatever the others.
    assert seconds(load, dense, 128, H200, ragged=True) == seconds(load, dense, 128, H200, ragged=False)


# Rows, units and dtype of an LSTM; µs of a forward and of a backward step on an H200.
MEASURED = [
    (16, 256, torch.float16, 1.52, 1.44),
    (32, 256, torch.float32, 1.65, 1.83),
    (64, 512, torch.float16, 2.05, 1.96),
    (64, 512, torch.float32, 3.18, 3.59),
    (16, 768, torch.float16, 1.97, 2.18),
    (16, 768, torch.float32, 2.73, 4.94),
    (64, 1024, torch.float16, 3.85, 4.01),
    (64, 1024, torch.float32, 10.15, 12.09),
    (256, 512, torch.float16, 4.49, 4.56),
    (128, 1024, torch.bfloat16, 6.94, 8.22),
]


@pytest.mark.parametrize(("batch", "units", "dtype", "forward", "backward"), MEASURED)
def test_steps_take_what_is_expected_of_them(
    batch: int, units: int, dtype: torch.dtype, forward: float, backward: float
) -> None:
    """`swap_memory` plans with it; products of float32 as TF32."""
    cell = tt.LSTMCell(units, input_size=4).to(dtype)
    with tt.backend("aten"):
        program = tt.explain(cell, torch.zeros(2, 3, 4, dtype=dtype), dtype=dtype).program
    assert program is not None
    assert program.adjoint is not None
    loops = [(program.loop, set()), (program.adjoint.loop, set(program.adjoint.lagged))]
    for (loop, lagged), measured in zip(loops, (forward, backward), strict=True):
        load = triton_kernel.LoopKernel(Lowered(loop, lagged).program)._loads[False]
        shape = choose(load, batch, H200)
        ratio = 1e6 * expected_seconds(load, shape, batch, H200) / measured
        # Backward steps whose rows pass through shared memory are still taken for longer than they are.
        assert 0.8 < ratio < (1.2 if shape.direct or loop is program.loop else 1.4), ratio


def compiled(program: LoopProgram, shape: Tiling, dtype: str) -> Any:
    """The kernel of a geometry as Triton makes it for an H100 or H200, which need not be there."""
    triton = pytest.importorskip("triton")
    compiler = pytest.importorskip("triton.backends.compiler")
    function = jit(program.name, emit(stage(cut(program)), shape).text)
    kinds = {"table": "*i64", "order": "*i64", "counters": "*i32", "next_counters": "*i32"}
    kinds |= dict.fromkeys("T B FIRST STEP_STRIDE ROW_STRIDE PADDED ORDER FIRST_TILE".split(), "i32")
    kinds |= {"RAGGED": "constexpr", "PRECISION": "constexpr"}
    names = function.arg_names
    kinds |= {name: "*fp32" for name in names if name.startswith("share_")}
    types = {name: kinds.get(name, f"*{dtype}") for name in names}
    source = triton.compiler.ASTSource(
        fn=function,
        signature=types,
        constexprs={(names.index("RAGGED"),): False, (names.index("PRECISION"),): "tf32"},
        attrs={(place,): [["tt.divisibility", 16]] for place, name in enumerate(names) if types[name][0] == "*"},
    )
    target = compiler.GPUTarget("cuda", 90, 32)
    return triton.compile(source, target=target, options=triton_launch.options(shape.warps, cooperative=True))


@pytest.mark.parametrize(("dtype", "name"), [(torch.float16, "fp16"), (torch.float32, "fp32")])
def test_compilers_see_that_rows_are_read_as_operands(dtype: torch.dtype, name: str) -> None:
    """Else they would pass through shared memory all the same, which only the time would show."""
    cell = tt.BasicLSTMCell(256, input_size=4).to(dtype)
    with tt.backend("aten"):
        program = tt.explain(cell, torch.zeros(2, 3, 4, dtype=dtype), dtype=dtype).program
    assert program is not None
    lowered = Lowered(program.loop, set()).program
    shapes = candidates(triton_kernel.LoopKernel(lowered)._loads[False], H200)
    shape = next(found for found in shapes if found.direct and (found.rows, found.blocks, found.warps) == (8, 16, 4))
    assert shape.held == shape.resident
    code = compiled(lowered, shape, name).asm["ptx"]
    assert "mma.sync" in code
    assert "ldmatrix" not in code
    # Two barriers, and one more where sums become results.
    assert code.count("bar.sync") == 3


def test_threads_that_have_the_same_sum_have_the_same_bits() -> None:
    """In the first addition of a butterfly, a square of one's own would be fused: the other's has been rounded."""
    cell = tt.cells.LayerNormGRUCell(256, input_size=4).half()
    with tt.backend("aten"):
        program = tt.explain(cell, torch.zeros(2, 3, 4, dtype=torch.half), dtype=torch.half).program
    assert program is not None
    lowered = Lowered(program.loop, set()).program
    shape = choose(triton_kernel.LoopKernel(lowered)._loads[False], 20, H200)
    assert shape.blocks > 1
    lines = compiled(lowered, shape, "fp16").asm["ptx"].splitlines()
    shuffled = {line.split()[1].rstrip(","): line.split()[2] for line in lines if "shfl.sync.bfly" in line}
    assert len(shuffled) > 20
    for theirs, own in shuffled.items():
        (taken,) = (line for line in lines if f"{theirs};" in line)
        assert taken.split()[0].startswith("add.rn."), taken
        assert own in taken


def test_fused_steps_of_rows_that_are_not_aligned_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton fails over this one if it is told that the first row begins at a multiple of 16 bytes."""
    triton = pytest.importorskip("triton")
    target = pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)
    cell = tt.cells.CoupledInputForgetGateLSTMCell(70, True, num_proj=35, proj_clip=0.5, input_size=3)
    with tt.backend("aten"):
        program = tt.explain(cell, torch.zeros(2, 3, 3), dtype=torch.float32).program
    assert program is not None
    assert program.adjoint is not None
    kernels: list[ElementwiseKernel] = []
    monkeypatch.setattr(ElementwiseKernel, "compile", lambda kernel, _: kernels.append(kernel))
    AtenLoop(program.adjoint.loop, on_gpu=True)._replays._code.fused(masked=True).compile(CPU)
    kinds = {torch.float32: "*fp32", torch.bool: "*i1"}
    for kernel in kernels:
        parameters = kernel._function.params
        types = ["*i64", *(kinds[dtype] for dtype in kernel._dtypes), "i32"]
        told = [
            not one.do_not_specialize_on_alignment and kind[0] == "*"
            for one, kind in zip(parameters, types, strict=True)
        ]
        source = triton.compiler.ASTSource(
            fn=kernel._function,
            signature=dict(zip(kernel._function.arg_names, types, strict=True)),
            constexprs={},
            attrs={(place,): [["tt.divisibility", 16]] for place, is_told in enumerate(told) if is_told},
        )
        triton.compile(source, target=target, options={"num_warps": kernel._tile.warps})
    assert len(kernels) > 1
    assert sum("do_not_specialize_on_alignment=[]" not in kernel.source for kernel in kernels) > 1


SMALL_CARD = GpuSpec(2, 20 * 2**10)


@contextmanager
def on_card(card: GpuSpec, launch: Callable[..., None]) -> Iterator[None]:
    """As if the CPU were this card; kernels are not compiled, and `launch` is called for them."""
    with gpu_target.change(
        card_of=lambda _: card, is_gpu=lambda _: True, jit=lambda *_: None, make_launcher=lambda *_, **__: launch
    ):
        yield


def never(*_: object, **__: object) -> None:
    raise AssertionError("launched")


def test_a_card_without_room_is_refused_with_a_reason() -> None:
    """When the backend is chosen, not when the kernel is launched."""
    cell, x = tt.LSTMCell(143, input_size=3), torch.zeros(2, 3, 3)
    reason = "cannot all be on the GPU at once: 2 multiprocessors with 20 KiB"
    with pytest.raises(ValueError, match=reason), tt.backend("triton"), on_card(SMALL_CARD, never):
        tt.dynamic_rnn(cell, x, dtype=torch.float32)


def test_steps_that_keep_too_much_at_hand_are_refused_with_a_reason() -> None:
    """The compiler would take minutes, and what it makes would be slow."""
    few, many = (StepCost((group(1, 24, 24),), 1, 1, 24, 100, (24,) * count) for count in (40, 320))
    assert choose(few, 6, H200).rows == 8
    with pytest.raises(NoTilingError, match="100 operations that keeps 7680 numbers of each row at hand"):
        choose(many, 6, H200)
    with pytest.raises(NoTilingError, match="a step of 300 operations"):
        choose(StepCost((group(1, 24, 24),), 1, 1, 24, 300), 6, H200)


def test_few_geometries_are_compiled_in_search_of_one_that_does_not_spill() -> None:
    tried: list[bool] = []

    def spill(*_args: object, accept_spills: bool) -> None:
        tried.append(accept_spills)
        if not accept_spills:
            raise triton_launch.SpillsError

    with tt.backend("triton"), torch.no_grad(), on_card(H200, spill):
        tt.dynamic_rnn(tt.LSTMCell(53, input_size=3), torch.zeros(2, 3, 3), dtype=torch.float32)
    assert tried == [False] * triton_kernel.MOST_ATTEMPTS + [True]


class Kernel:
    """What Triton's compiler leaves, as far as it is looked at."""

    function, metadata = 0, SimpleNamespace(num_warps=4, shared=1000)

    def __init__(self, spills: int = 0, error: Exception | None = None) -> None:
        self.n_spills, self.error = spills, error

    def _init_handles(self) -> None:
        if self.error is not None:
            raise self.error


class OutOfResources(Exception):  # noqa: N818 (the name it has in Triton)
    """Triton's."""


def test_kernels_are_looked_at_before_their_first_launch() -> None:
    def look_at(
        kernel: Kernel, blocks: int, processors: int, *, accept_spills: bool = False, resident: int = 1
    ) -> None:
        triton_launch._look_at(kernel, blocks, processors, lambda *_: resident, accept_spills=accept_spills)

    look_at(Kernel(), 132, 132)
    with pytest.raises(triton_launch.SpillsError):
        look_at(Kernel(spills=1000), 1, 132)
    look_at(Kernel(spills=1000), 1, 132, accept_spills=True)
    with pytest.raises(triton_launch.TooLargeError):
        look_at(Kernel(error=OutOfResources()), 1, 132)
    with pytest.raises(RuntimeError, match="something else"):
        look_at(Kernel(error=RuntimeError("something else")), 1, 132)
    with pytest.raises(triton_launch.TooLargeError):
        look_at(Kernel(), 132, 100)
    with pytest.raises(triton_launch.TooLargeError):
        look_at(Kernel(), 1, 132, resident=0)


def test_other_geometries_are_tried_until_none_is_left() -> None:
    """Then the call says why, and the next choice knows."""
    tried: list[int] = []

    def refuse(blocks: int, *_args: object, **_options: object) -> None:
        tried.append(blocks)
        raise triton_launch.TooLargeError

    cell, x = tt.LSTMCell(47, input_size=3), torch.zeros(2, 3, 3)
    with tt.backend("triton"), torch.no_grad(), on_card(H200, refuse):
        with pytest.raises(RuntimeError, match="the kernels of this cell do not fit this GPU"):
            tt.dynamic_rnn(cell, x, dtype=torch.float32)
        assert len(tried) > 3
        with pytest.raises(ValueError, match="cannot all be on the GPU at once"):
            tt.dynamic_rnn(cell, x, dtype=torch.float32)


def test_without_a_driver_the_number_of_resident_blocks_is_unknown() -> None:
    assert triton_launch.resident_blocks(0, 128, 0, driver_of=lambda: None) is None


def test_room_for_exchange_is_apart_and_aligned() -> None:
    exchange = triton_launch.Workspace([(5, torch.float32, False), (3, torch.float16, True), (7, torch.int32, True)])
    room = triton_launch.WorkspaceSlot(exchange, CPU)
    addresses = room.addresses()
    assert all(not (address - addresses[0]) % 256 for address in addresses)
    assert [later - sooner for sooner, later in pairwise(addresses)] == [256, 256]
    assert addresses == room.addresses()
    lengths = [(len(piece), piece.dtype) for piece in room.tensors()]
    assert lengths == [(5, torch.float32), (3, torch.float16), (7, torch.int32)]
    assert not any(piece.any() for piece in room.tensors()[1:])
    room.turn()
    assert room.addresses() == [addresses[0], addresses[2], addresses[1]]
    assert [len(piece) for piece in room.tensors()] == [5, 7, 3]
