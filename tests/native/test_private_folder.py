"""Kernels on disk are machine code: none is loaded that another user may have written."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from throughtime.native.toolchain import object_cache, private_folder

pytestmark = [
    pytest.mark.covers("kernels"),
    pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no owners and modes here"),
]
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files to another user"
)
# A user and a group that are not ours.
OTHER = 54321


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_cache, "_refused", set())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the cache, with one entry of ours."""
    use(monkeypatch, tmp_path / "cache")
    assert object_cache.cached(("code",), lambda: b"ours") == b"ours"
    return tmp_path / "cache"


def use(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("THROUGHTIME_CACHE_DIR", str(folder))


def read() -> bytes:
    """What is loaded for the code; "made again" if nothing on disk is trusted."""
    return object_cache.cached(("code",), lambda: b"made again")


def refused(match: str) -> bytes:
    with pytest.warns(RuntimeWarning, match=match):
        return read()


def entry(folder: Path) -> Path:
    (file,) = folder.glob("*.kernel")
    return file


def test_everything_made_is_for_the_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, tmp_path / "above" / "cache")
    before = os.umask(0o002)
    try:
        read()
    finally:
        os.umask(before)
    for made, mode in (("above", 0o700), ("above/cache", 0o700)):
        assert stat.S_IMODE((tmp_path / made).stat().st_mode) == mode
    assert stat.S_IMODE(entry(tmp_path / "above" / "cache").stat().st_mode) == 0o600


def test_an_entry_behind_a_link_is_not_loaded(folder: Path, tmp_path: Path) -> None:
    file = entry(folder)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert read() == b"made again"
    assert not file.is_symlink()
    assert (tmp_path / "elsewhere").exists()


def test_a_fifo_in_the_place_of_an_entry_does_not_block(folder: Path) -> None:
    file = entry(folder)
    file.unlink()
    os.mkfifo(file)
    assert read() == b"made again"
    assert stat.S_ISREG(file.lstat().st_mode)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_can_write_is_not_loaded(folder: Path, mode: int) -> None:
    entry(folder).chmod(mode)
    assert read() == b"made again"
    assert stat.S_IMODE(entry(folder).stat().st_mode) == 0o600


def test_an_entry_larger_than_the_cache_may_be_is_not_read(folder: Path) -> None:
    os.truncate(entry(folder), object_cache.MAX_BYTES + 1)
    assert read() == b"made again"


@as_root
def test_an_entry_of_another_user_is_not_loaded(folder: Path) -> None:
    os.chown(entry(folder), OTHER, OTHER)
    assert read() == b"made again"
    assert entry(folder).stat().st_uid == os.geteuid()


@as_root
def test_roots_files_are_not_ours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(folder, OTHER, OTHER)
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    # The folder is ours now, the entry in it is root's.
    assert read() == b"made again"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    if mode == 0o770 and not private_folder._others_write(folder.stat()):
        pytest.skip("the group has no other member")
    assert refused("cache can be written by other users") == b"made again"
    before = sorted(folder.iterdir())
    assert object_cache.cached(("another",), lambda: b"not kept") == b"not kept"
    assert sorted(folder.iterdir()) == before


@as_root
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, OTHER, OTHER)
    assert refused(f"cache belongs to user {OTHER}") == b"made again"


@as_root
def test_a_folder_of_roots_is_refused_to_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    assert refused("cache belongs to root") == b"made again"


def test_a_folder_below_one_that_others_can_write_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    assert refused(f"{tmp_path.name} can be written by other users") == b"made again"
    # In a sticky folder, as /tmp is, nothing of ours can be renamed by others.
    tmp_path.chmod(0o1777)
    assert read() == b"ours"
    tmp_path.chmod(0o700)


@as_root
def test_a_folder_that_another_user_made_first_in_a_sticky_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", OTHER, OTHER)
    use(monkeypatch, tmp_path / "theirs" / "cache")
    assert refused(f"theirs belongs to user {OTHER}") == b"made again"
    assert not (tmp_path / "theirs" / "cache").exists()


def test_own_links_are_followed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir(0o700)
    (tmp_path / "inner" / "link").symlink_to("../cache")
    (tmp_path / "outer").symlink_to(tmp_path / "inner")
    use(monkeypatch, tmp_path / "outer" / "link")
    assert read() == b"ours"


@as_root
def test_links_of_others_are_not_followed(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    os.lchown(link, OTHER, OTHER)
    use(monkeypatch, link)
    assert refused(f"link belongs to user {OTHER}") == b"made again"


def test_a_link_through_a_folder_that_others_can_write_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "shared" / "second").symlink_to(folder)
    (tmp_path / "first").symlink_to(tmp_path / "shared" / "second")
    use(monkeypatch, tmp_path / "first")
    assert refused("shared can be written by other users") == b"made again"


def test_links_in_a_circle_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    use(monkeypatch, tmp_path / "one")
    assert read() == b"made again"


def test_it_is_said_once(folder: Path) -> None:
    folder.chmod(0o777)
    message = (
        f"throughtime keeps no compiled kernels in {folder}: got {folder} can be written by other users, expected a "
        "folder whose whole path only you and root can change. Set THROUGHTIME_CACHE_DIR to such a folder, or remove "
        "the rights of others (`chmod go-w`)."
    )
    with pytest.warns(RuntimeWarning) as said:
        read()
    assert [str(one.message) for one in said] == [message]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read()


def test_a_group_of_one_user_is_no_other_user(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.chmod(0o770)
    monkeypatch.setattr(private_folder, "_is_private_group", lambda group: group == folder.stat().st_gid)
    assert read() == b"ours"


@pytest.fixture
def user_database(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A user `me` of number and group OTHER; the list has the members of that group."""
    import grp
    import pwd

    members: list[str] = []
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: pwd.struct_passwd(("me", "", OTHER, OTHER, "", "", "")))
    monkeypatch.setattr(grp, "getgrgid", lambda group: grp.struct_group(("me", "", group, members)))
    return members


def test_whose_group_it_is(user_database: list[str]) -> None:
    assert private_folder._is_private_group(OTHER)
    assert not private_folder._is_private_group(OTHER + 1)
    user_database.append("another")
    assert not private_folder._is_private_group(OTHER)


def test_without_owners_and_flags_there_is_a_cache_still(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("geteuid", "getuid", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
        monkeypatch.delattr(os, name)
    assert read() == b"ours"
    use(monkeypatch, tmp_path / "another" / "cache")
    assert read() == b"made again"
    assert entry(tmp_path / "another" / "cache").is_file()


@as_root
def test_the_attack_as_it_was_made(folder: Path, tmp_path: Path) -> None:
    """Another user puts an entry of his own in a folder that all can write: its code is not run."""
    folder.chmod(0o777)
    file, content = entry(folder), entry(folder).read_bytes()
    key = file.name.removesuffix(".kernel")
    assert content.endswith(b"ours")
    file.unlink()
    file.write_bytes(object_cache._MAGIC + object_cache._checksum(key, b"theirs") + b"theirs")
    os.chown(file, OTHER, OTHER)
    script = (
        "from throughtime.native.toolchain.object_cache import cached; print(cached(('code',), lambda: b'made again'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "b'made again'"
    assert "can be written by other users" in done.stderr
