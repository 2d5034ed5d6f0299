"""A release could be cut: wheel and sdist are built, their metadata are valid, and the installed wheel runs."""

from __future__ import annotations

import email
import email.message
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

metadata = pytest.importorskip("packaging.metadata")
pytest.importorskip("hatchling", reason="the build backend is in the extra `test`")

pytestmark = pytest.mark.covers("architecture")

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# What a build reads; the environments and caches of a working tree are large.
TREE = (
    "src",
    "CITATION.cff",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    "Makefile",
    "constraints.txt",
    "zensical.toml",
)


def run(*command: object, **options: Any) -> str:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built from a copy of the sources without a network."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in TREE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
        ignored = {"ignore": shutil.ignore_patterns("__pycache__")} if (ROOT / name).is_dir() else {}
        copy(ROOT / name, tree / name, **ignored)
    run(sys.executable, "-m", "hatchling", "build", "-d", out, cwd=tree)
    return out


def one(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    assert len(found) == 1, found
    return found[0]


def described(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA")))


def test_the_metadata_are_valid(built: Path) -> None:
    content = described(one(built, "*.whl"))
    found = metadata.Metadata.from_email(content, validate=True)
    assert (found.name, str(found.version)) == (PROJECT["name"], PROJECT["version"])
    assert found.summary == PROJECT["description"]
    assert {requirement.name for requirement in found.requires_dist} >= {"torch", "numpy", "typer"}
    assert str(found.requires_python) == PROJECT["requires-python"]
    message: email.message.Message = email.message_from_bytes(content)
    assert message["Description-Content-Type"].startswith("text/markdown")
    assert (ROOT / "README.md").read_text() in content.decode()


def test_both_have_what_is_needed(built: Path) -> None:
    with zipfile.ZipFile(one(built, "*.whl")) as archive:
        in_wheel = set(archive.namelist())
    sources = [path for path in (ROOT / "src").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT / "src").as_posix() for path in sources} <= in_wheel
    assert not any(name.startswith(("tests/", "tools/", "docs/")) for name in in_wheel)
    with tarfile.open(one(built, "*.tar.gz")) as archive:
        in_sdist = {name.partition("/")[2] for name in archive.getnames()}
    assert {path.relative_to(ROOT).as_posix() for path in sources} <= in_sdist
    assert {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "PKG-INFO"} <= in_sdist


def test_the_wheel_runs_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    """Its dependencies are those of the running environment, by a path file; nothing is fetched."""
    home = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", home)
    python = home / "bin" / "python"
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", env=bare).strip())
    install = ["install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "--python", python, *install, one(built, "*.whl"), env=bare)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    # Dependencies come after what is installed here; an editable install of the sources is no more than one of them.
    code = "import throughtime as tt; print(tt.__version__, tt.__file__)"
    version, place = run(python, "-c", code, env=bare, cwd=tmp_path).split(maxsplit=1)
    assert version == PROJECT["version"]
    assert Path(place.strip()).is_relative_to(site)
    command = home / "bin" / "throughtime"
    told = run(command, "--help", env={**bare, "COLUMNS": "100"}, cwd=tmp_path)
    assert "train" in told
    assert "predict" in told
