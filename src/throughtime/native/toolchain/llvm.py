"""The one door to llvmlite: what the host can do, assembly to object code, object code to functions."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_LIBRARY = "kernel"
CODE_VERSION = "1"
"""Part of the name of object code on disk: to be changed with the way `compile_assembly` compiles."""


@dataclass(frozen=True)
class Host:
    """The processor that kernels are made for."""

    cpu: str
    features: str
    vector_bytes: int
    tile_rows: int

    def lanes(self, size: int) -> int:
        """Elements of `size` bytes in one register."""
        return self.vector_bytes // size


@functools.cache
def is_installed() -> bool:
    """Whether there is a compiler for kernels."""
    return importlib.util.find_spec("llvmlite") is not None


class NativeModule:
    """Object code in memory, and the functions in it; the code lives as long as this object.

    Linked by JITLink, which puts all sections of an object into one allocation. MCJIT asks the system for each section:
    in a process with much memory two of them can lie more than 2 GiB apart, and LLVM then aborts the process.
    """

    def __init__(self, code: bytes) -> None:
        binding = _binding()
        # Every object has a linker of its own: a lock inside of it is not held in a forked child by another thread.
        self._linker = binding.create_lljit_compiler(_new_machine(), use_jit_link=True)
        self._code = binding.JITLibraryBuilder().add_object_img(code).link(self._linker, _LIBRARY)
        self._trackers: dict[str, Mapping[str, int]] = {}

    def address(self, name: str) -> int:
        if name not in self._trackers:
            self._trackers[name] = self._linker.lookup(_LIBRARY, name)
        return int(self._trackers[name][name])

    def function(self, name: str, *arguments: type) -> Callable[..., None]:
        """A function that returns nothing; calling it lets go of Python's lock."""
        call: Callable[..., None] = ctypes.CFUNCTYPE(None, *arguments)(self.address(name))
        call.library = self  # type: ignore[attr-defined]
        return call


def version() -> str:
    """What decides, next to the assembly and the host, which object code comes out."""
    import llvmlite  # type: ignore[import-untyped, import-not-found, unused-ignore]  # noqa: PLC0415

    return f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, _binding().llvm_version_info))}"


@functools.cache
def host() -> Host:
    """The processor of this process."""
    binding = _binding()
    features = binding.get_host_cpu_features()
    if features.get("avx512f") and features.get("avx512vl"):
        vector_bytes, tile_rows = 64, 12
    else:
        vector_bytes, tile_rows = (32, 6) if features.get("avx2") else (16, 6)
    return Host(binding.get_host_cpu_name(), features.flatten(), vector_bytes, tile_rows)


def compile_assembly(assembly: str) -> bytes:
    """LLVM assembly to object code for the host."""
    binding = _binding()
    parsed = binding.parse_assembly(assembly)
    machine = _machine()
    parsed.triple = machine.triple
    parsed.data_layout = str(machine.target_data)
    # The assembly is vectors in loops already: the rest of LLVM's optimiser takes as long again and changes no speed.
    passes = binding.create_new_function_pass_manager()
    passes.add_instruction_combine_pass()
    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=2))
    for function in parsed.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return bytes(machine.emit_object(parsed))


@functools.cache
def _binding() -> Any:
    from llvmlite import binding  # type: ignore[import-untyped, import-not-found, unused-ignore]  # noqa: PLC0415

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


@functools.cache
def _machine() -> Any:
    return _new_machine()


def _new_machine() -> Any:
    binding = _binding()
    target = binding.Target.from_default_triple()
    return target.create_target_machine(cpu=host().cpu, features=host().features, opt=2, reloc="pic", codemodel="small")
