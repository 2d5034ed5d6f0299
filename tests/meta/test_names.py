"""Names use the field's words: those the glossary retired stay out of modules, classes and public functions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.covers("architecture")

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "throughtime"
SOURCES = sorted(PACKAGE.rglob("*.py"))

RETIRED = {
    "again": "recompute, replay",
    "anatomy": "fingerprint",
    "arrivals": "prefetch",
    "bus": "transfer stream",
    "claim": "donation",
    "crew": "thread layout",
    "departures": "offload queue",
    "glance": "fast check",
    "lent": "functional",
    "meeting": "barrier",
    "mistake": "user error",
    "nobody": "the object",
    "numba": "cpu",
    "onlooker": "active mode",
    "redeem": "resolve",
    "relay": "ring buffer",
    "room": "buffer, workspace",
    "rooms": "slots, pool",
    "shadow": "stand-in",
    "somebody": "the caller",
    "tangent": "cotangent",
    "ticket": "handle",
    "turns": "work stealing, interleaved",
    "walk": "run, scan, iterate",
}


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def names_in(path: Path, source: str) -> Iterator[str]:
    """The module's own name, its classes, and its public functions."""
    yield path.stem
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and not node.name.startswith("_")):
            yield node.name


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_names_use_the_fields_words(path: Path) -> None:
    found = {name: words(name) & RETIRED.keys() for name in names_in(path, path.read_text())}
    assert {name: [RETIRED[word] for word in wrong] for name, wrong in found.items() if wrong} == {}


def test_retired_words_are_noticed() -> None:
    source = "class WalkKernel: ...\ndef take_turns(): ...\ndef _walk(): ..."
    found = [name for name in names_in(Path("_relay.py"), source) if words(name) & RETIRED.keys()]
    assert found == ["_relay", "WalkKernel", "take_turns"]


def test_the_glossary_lists_each_term_once() -> None:
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    terms = [line.split("|")[1].strip() for line in lines if line.startswith("| ") and not line.startswith("| term")]
    assert len(terms) > 40
    assert terms == sorted(set(terms), key=str.lower)


# The folders of a private package are in pipeline order; its README is a guide, not an inventory.
GUIDES = sorted(PACKAGE.rglob("README.md"))


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_readme_is_a_guide_of_forty_lines_that_names_what_exists(guide: Path) -> None:
    text = guide.read_text()
    assert len(text.splitlines()) <= 40
    files = {path.name for path in PACKAGE.rglob("*.py")}
    assert set(re.findall(r"`(?!tests/)(?:\w+/)*(\w+\.py)`", text)) <= files
