"""Kernels on disk are machine code: none is loaded that another user may have written."""

from __future__ import annotations

import dataclasses
import os
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from throughtime.native.toolchain import object_cache
from throughtime.native.toolchain.object_cache import ObjectCache
from throughtime.native.toolchain.private_folder import Account, current_account

pytestmark = [
    pytest.mark.covers("kernels"),
    pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no owners and modes here"),
]
as_root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files to another user"
)
# A user and a group that are not ours.
OTHER = 54321


def other_user(**fields: Any) -> Account:
    """A user who does not run this process."""
    return dataclasses.replace(current_account(), number=OTHER, **fields)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the cache, with one entry of ours."""
    folder = tmp_path / "cache"
    assert ObjectCache(folder).get(("code",), lambda: b"ours") == b"ours"
    return folder


def read(folder: Path, account: Callable[[], Account] = current_account) -> bytes:
    """What is loaded for the code; "made again" if nothing on disk is trusted."""
    return ObjectCache(folder, account=account).get(("code",), lambda: b"made again")


def refused(folder: Path, match: str, account: Callable[[], Account] = current_account) -> bytes:
    with pytest.warns(RuntimeWarning, match=match):
        return read(folder, account)


def entry(folder: Path) -> Path:
    (file,) = folder.glob("*.kernel")
    return file


def test_everything_made_is_for_the_user_alone(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        read(tmp_path / "above" / "cache")
    finally:
        os.umask(before)
    for made, mode in (("above", 0o700), ("above/cache", 0o700)):
        assert stat.S_IMODE((tmp_path / made).stat().st_mode) == mode
    assert stat.S_IMODE(entry(tmp_path / "above" / "cache").stat().st_mode) == 0o600


def test_an_entry_behind_a_link_is_not_loaded(folder: Path, tmp_path: Path) -> None:
    file = entry(folder)
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert read(folder) == b"made again"
    assert not file.is_symlink()
    assert (tmp_path / "elsewhere").exists()


def test_a_fifo_in_the_place_of_an_entry_does_not_block(folder: Path) -> None:
    file = entry(folder)
    file.unlink()
    os.mkfifo(file)
    assert read(folder) == b"made again"
    assert stat.S_ISREG(file.lstat().st_mode)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_can_write_is_not_loaded(folder: Path, mode: int) -> None:
    entry(folder).chmod(mode)
    assert read(folder) == b"made again"
    assert stat.S_IMODE(entry(folder).stat().st_mode) == 0o600


def test_an_entry_larger_than_the_cache_may_be_is_not_read(folder: Path) -> None:
    os.truncate(entry(folder), object_cache.MAX_BYTES + 1)
    assert read(folder) == b"made again"


@as_root
def test_an_entry_of_another_user_is_not_loaded(folder: Path) -> None:
    os.chown(entry(folder), OTHER, OTHER)
    assert read(folder) == b"made again"
    assert entry(folder).stat().st_uid == os.geteuid()


@as_root
def test_roots_files_are_not_ours(folder: Path) -> None:
    os.chown(folder, OTHER, OTHER)
    # The folder is the user's, the entry in it is root's.
    assert read(folder, other_user) == b"made again"


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_folder_that_others_can_write_is_refused(folder: Path, mode: int) -> None:
    folder.chmod(mode)
    if mode == 0o770 and not current_account().lets_others_write(folder.stat()):
        pytest.skip("the group has no other member")
    assert refused(folder, "cache can be written by other users") == b"made again"
    before = sorted(folder.iterdir())
    assert ObjectCache(folder).get(("another",), lambda: b"not stored") == b"not stored"
    assert sorted(folder.iterdir()) == before


@as_root
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, OTHER, OTHER)
    assert refused(folder, f"cache belongs to user {OTHER}") == b"made again"


@as_root
def test_a_folder_of_roots_is_refused_to_others(folder: Path) -> None:
    assert refused(folder, "cache belongs to root", other_user) == b"made again"


def test_a_folder_below_one_that_others_can_write_is_refused(folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert refused(folder, f"{tmp_path.name} can be written by other users") == b"made again"
    # In a sticky folder, as /tmp is, nothing of ours can be renamed by others.
    tmp_path.chmod(0o1777)
    assert read(folder) == b"ours"
    tmp_path.chmod(0o700)


@as_root
def test_a_folder_that_another_user_made_first_in_a_sticky_one_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", OTHER, OTHER)
    assert refused(tmp_path / "theirs" / "cache", f"theirs belongs to user {OTHER}") == b"made again"
    assert not (tmp_path / "theirs" / "cache").exists()


def test_own_links_are_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir(0o700)
    (tmp_path / "inner" / "link").symlink_to("../cache")
    (tmp_path / "outer").symlink_to(tmp_path / "inner")
    assert read(tmp_path / "outer" / "link") == b"ours"


@as_root
def test_links_of_others_are_not_followed(folder: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    os.lchown(link, OTHER, OTHER)
    assert refused(link, f"link belongs to user {OTHER}") == b"made again"


def test_a_link_through_a_folder_that_others_can_write_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "shared" / "second").symlink_to(folder)
    (tmp_path / "first").symlink_to(tmp_path / "shared" / "second")
    assert refused(tmp_path / "first", "shared can be written by other users") == b"made again"


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    assert read(tmp_path / "one") == b"made again"


def test_it_is_said_once(folder: Path) -> None:
    folder.chmod(0o777)
    message = (
        f"throughtime keeps no compiled kernels in {folder}: got {folder} can be written by other users, expected a "
        "folder whose whole path only you and root can change. Set THROUGHTIME_CACHE_DIR to such a folder, or remove "
        "the rights of others (`chmod go-w`)."
    )
    with pytest.warns(RuntimeWarning) as said:
        read(folder)
    assert [str(one.message) for one in said] == [message]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(folder)


def test_a_group_of_one_user_is_no_other_user(folder: Path) -> None:
    class Alone(Account):
        def is_alone_in(self, group: int) -> bool:
            return group == folder.stat().st_gid

    folder.chmod(0o770)
    assert read(folder, lambda: Alone(os.geteuid())) == b"ours"


def test_the_members_of_a_group() -> None:
    import grp
    import pwd

    members: list[str] = []
    account = Account(
        OTHER,
        lambda _: pwd.struct_passwd(("me", "", OTHER, OTHER, "", "", "")),
        lambda group: grp.struct_group(("me", "", group, members)),
    )
    assert account.is_alone_in(OTHER)
    assert not account.is_alone_in(OTHER + 1)
    members.append("another")
    assert not account.is_alone_in(OTHER)


def test_without_owners_and_flags_there_is_a_cache_still(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("geteuid", "getuid", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
        monkeypatch.delattr(os, name)
    assert read(folder) == b"ours"
    another = tmp_path / "another" / "cache"
    assert read(another) == b"made again"
    assert entry(another).is_file()


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
        "from pathlib import Path; from throughtime.native.toolchain.object_cache import ObjectCache;"
        f"print(ObjectCache(Path({str(folder)!r})).get(('code',), lambda: b'made again'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "b'made again'"
    assert "can be written by other users" in done.stderr
