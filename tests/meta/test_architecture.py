"""The rules of the code base: imports go down, nothing foreign comes in, everything public is documented."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import throughtime as tt

pytestmark = pytest.mark.covers("architecture")

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "throughtime"
SOURCES = sorted(PACKAGE.rglob("*.py"))
EVERY_FILE = [
    path for folder in ("src", "tests", "tools", "benchmarks", "examples") for path in ROOT.glob(f"{folder}/**/*.py")
]

FACADE = "throughtime/__init__.py"
LAYERS = (
    {"__main__"},
    {"cli"},
    {FACADE},
    {"tf1"},
    {"train"},
    {"decode", "interop", "nn"},
    {"unroll"},
    {"runtime"},
    {"backends"},
    {"layout"},
    {"native"},
    {"compiler"},
    {"cells"},
    {"_cross_entropy", "_json_files", "_pytree", "_tensors"},
    {"_active_modes", "_lru"},
    {
        "_atomic_files",
        "_errors",
        "_file_limits",
        "_fork_safety",
        "_html",
        "_object_registry",
        "_other_names",
        "_setting",
        "_text",
        "_torch_internals",
    },
)
DEPTH = {part: depth for depth, layer in enumerate(LAYERS) for part in layer}
# The embedded data serves the command; the library itself never reaches for it.
DATA, MAY_READ_DATA = "data", {"cli", "data"}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def every(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("path", paths, ids=relative)


def part_of(path: Path) -> str:
    """The part of the package that a file belongs to: its folder or, at the top, its module."""
    inside = path.relative_to(PACKAGE)
    return FACADE if inside.name == "__init__.py" and len(inside.parts) == 1 else inside.parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST, package: str) -> Iterator[tuple[str, ast.stmt]]:
    """Every dotted name that is imported, with its statement; `package` is what relative imports start from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package.rsplit(".", node.level - 1)[0] + "." if node.level else ""
            base = f"{start}{node.module or ''}".rstrip(".")
            # `from throughtime import cells` names a part only in its alias.
            yield from ((f"{base}.{alias.name}" if base == "throughtime" else base, node) for alias in node.names)


def imported_parts(tree: ast.AST, package: str) -> set[str]:
    """The parts of the package that a file imports."""
    own = [name.split(".") for name, _ in imported_modules(tree, package) if name.split(".")[0] == "throughtime"]
    known = {*DEPTH, DATA}
    return {names[1] if len(names) > 1 and (names[1] in known or names[1].startswith("_")) else FACADE for names in own}


def wrong_imports(part: str, imported: set[str]) -> set[str]:
    """Those of the imported parts that `part` may not import."""
    if part == DATA:
        return imported - {DATA, "_errors"}
    below = {other for other in DEPTH if DEPTH[other] > DEPTH[part]}
    data = {DATA} if part in MAY_READ_DATA else set()
    return imported - below - data - {part}


def package_of(path: Path) -> str:
    return ".".join(path.parent.relative_to(PACKAGE.parent).parts)


@every(SOURCES)
def test_imports_go_down(path: Path) -> None:
    part = part_of(path)
    assert part in {*DEPTH, DATA}, f"give {part!r} a place in LAYERS"
    assert not wrong_imports(part, imported_parts(ast.parse(path.read_text()), package_of(path)))


@pytest.mark.parametrize(
    ("part", "package", "source", "wrong"),
    [
        ("cells", "throughtime.cells", "from throughtime.unroll import dynamic", {"unroll"}),
        ("cells", "throughtime.cells", "from throughtime import _pytree, backends", {"backends"}),
        ("cells", "throughtime.cells", "def f():\n    from ..unroll._dynamic import dynamic_rnn", {"unroll"}),
        ("unroll", "throughtime.unroll", "import throughtime as tt", {FACADE}),
        ("unroll", "throughtime.unroll", "from throughtime import dynamic_rnn", {FACADE}),
        ("interop", "throughtime.interop", "from throughtime import decode", {"decode"}),
        ("unroll", "throughtime.unroll", "from throughtime.data import japanese_vowels", {"data"}),
        ("_errors", "throughtime", "from throughtime import _pytree", {"_pytree"}),
        (
            "cells",
            "throughtime.cells",
            "import torch\nfrom ._base import RNNCell\nfrom .._pytree import flatten",
            set(),
        ),
        ("cli", "throughtime.cli", "import throughtime as tt\nfrom throughtime import data", set()),
    ],
)
def test_wrong_imports_are_noticed(part: str, package: str, source: str, wrong: set[str]) -> None:
    assert wrong_imports(part, imported_parts(ast.parse(source), package)) == wrong


def users_of(library: str) -> list[tuple[str, ast.stmt]]:
    """Files of the package that import `library`, with the statement."""
    trees = [(relative(path), ast.parse(path.read_text()), package_of(path)) for path in SOURCES]
    found = [(file, name, node) for file, tree, package in trees for name, node in imported_modules(tree, package)]
    return [(file, node) for file, name, node in found if name.split(".")[0] == library]


@pytest.mark.parametrize("library", ["tensorflow", "tf_keras", "keras"])
def test_tensorflow_stays_outside(library: str) -> None:
    assert not users_of(library)


@pytest.mark.parametrize("library", ["numba", "triton"])
def test_compilers_are_imported_late_and_in_one_place(library: str) -> None:
    users = users_of(library)
    assert len({file for file, _ in users}) <= 1
    # A statement at the left margin runs when its module is imported.
    assert all(node.col_offset > 0 for _, node in users)


def test_the_cpu_backend_is_behind_its_interface() -> None:
    """Of runtime and unroll only the compile cache names it; direct kernel calls go through `LoopBackend.bind`."""
    above = [path for path in SOURCES if part_of(path) in {"runtime", "unroll"}]
    users = {path.name for path in above if "throughtime.backends.cpu" in path.read_text()}
    assert users == {"compile_cache.py"}


PRIVATE_TORCH = re.compile(r"\btorch(\.\w+)*\._[a-zA-Z]")


def test_private_names_of_torch_are_in_one_module() -> None:
    # The patch of Dynamo is a place of its own, and `graph_break` is documented.
    allowed = {"_torch_internals.py", "_dynamo_patch.py", "_graph_break.py"}
    users = {relative(path): PRIVATE_TORCH.findall(path.read_text()) for path in SOURCES if path.name not in allowed}
    assert [file for file, names in users.items() if names] == []
    assert PRIVATE_TORCH.search("torch._C._functorch")
    assert PRIVATE_TORCH.search("from torch.utils._pytree import x")


def is_reexport(node: ast.stmt) -> bool:
    """Whether a statement of an `__init__` file is a docstring, an import, `__all__` or `__version__`."""
    if isinstance(node, ast.Assign):
        return [ast.unparse(target) for target in node.targets] in (["__all__"], ["__version__"])
    docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return docstring or isinstance(node, ast.Import | ast.ImportFrom)


# The façade imports what it re-exports at the first use of a name.
@every([path for path in SOURCES if path.name == "__init__.py" and part_of(path) != FACADE])
def test_init_files_only_reexport(path: Path) -> None:
    assert [ast.unparse(node) for node in ast.parse(path.read_text()).body if not is_reexport(node)] == []


def test_files_stay_short() -> None:
    lines = {relative(path): len(path.read_text().splitlines()) for path in EVERY_FILE}
    assert {file: count for file, count in lines.items() if count > 500} == {}, "two ideas would rather live apart"


def test_names_say_something() -> None:
    words = {file: set(re.split(r"[/._]", file)) for file in map(relative, EVERY_FILE)}
    assert [file for file, parts in words.items() if parts & {"utils", "common", "misc"}] == []


def public() -> list[str]:
    return sorted(name for name in tt.__all__ if not name.startswith("__"))


def is_exception(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def own_docstring(value: object) -> str:
    """The docstring written for this very object: neither inherited nor made up by `NamedTuple`."""
    text = value.__doc__ or ""
    return "" if isinstance(value, type) and text.startswith(f"{value.__name__}(") else text


@pytest.mark.parametrize("name", public())
def test_public_names_are_documented(name: str) -> None:
    assert own_docstring(getattr(tt, name)).strip()


@pytest.mark.parametrize(
    "name",
    [name for name in public() if not inspect.ismodule(getattr(tt, name)) and not is_exception(getattr(tt, name))],
)
def test_public_names_show_an_example(name: str) -> None:
    assert ">>> " in own_docstring(getattr(tt, name)), "one example that runs as a doctest"


def test_public_names_are_in_the_reference() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    objects = [name for name in public() if not inspect.ismodule(getattr(tt, name))]
    assert [name for name in objects if f"::: throughtime.{name}\n" not in pages] == []


def pages_in(nav: object) -> Iterator[str]:
    """The pages that a part of the navigation leads to."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_in(part)


def test_every_page_is_in_the_navigation() -> None:
    nav = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]["nav"]
    assert sorted(pages_in(nav)) == sorted(
        path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")
    )
