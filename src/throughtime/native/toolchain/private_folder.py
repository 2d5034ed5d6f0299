"""A folder that other users cannot write to, and files in it that this user alone has written.

Machine code is loaded from it, so the whole path counts: a user who may rename one of the folders above, or replace a
symbolic link in the path, decides what is found at its end. The check is like OpenSSH's of key files (`StrictModes`),
with two additions: links are resolved one by one, and a sticky folder such as /tmp is accepted above, since other users
cannot rename our entries in it. Windows protects profiles by access control lists: there nothing is checked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import grp
    import pwd

_GROUP_OR_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_LINKS = 40
# A link is not followed, a FIFO does not block, a child process does not inherit; 0 where a system has no such flag.
_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")


class NotPrivateError(Exception):
    """Other users can write to a folder, or to one above it; the message says which."""


@dataclass(frozen=True)
class Account:
    """A user, as the system knows it; the number is None on a system without owners of files."""

    number: int | None
    user_of: Callable[[int], pwd.struct_passwd] | None = None
    group_of: Callable[[int], grp.struct_group] | None = None

    def is_alone_in(self, group: int) -> bool:
        """Whether a group is the one that many systems make for each user, under which folders have mode 0775."""
        if self.number is None or self.user_of is None or self.group_of is None:
            return False
        try:
            user, found = self.user_of(self.number), self.group_of(group)
        except KeyError:
            return False
        same = user.pw_uid != 0 and user.pw_gid == group and user.pw_name == found.gr_name
        return same and not {*found.gr_mem} - {user.pw_name}

    def lets_others_write(self, state: os.stat_result) -> bool:
        """Whether users other than this one, and root, can write to a file or folder."""
        writable = state.st_mode & _GROUP_OR_OTHERS
        return bool(writable) and not (writable == stat.S_IWGRP and self.is_alone_in(state.st_gid))


def current_account() -> Account:
    """The user of this process."""
    if not hasattr(os, "geteuid"):
        return Account(None)
    import grp  # noqa: PLC0415 - Windows has neither
    import pwd  # noqa: PLC0415

    return Account(os.geteuid(), pwd.getpwuid, grp.getgrgid)


def private_folder(path: Path, account: Account) -> Path:
    """The folder without symbolic links in its path, made with mode 0700 where it is missing.

    Raises:
        NotPrivateError: Other users own it, can write to it, or can replace a part of its path.
        OSError: It cannot be made or looked at.
    """
    if account.number is None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path
    folder = _resolved(path.absolute(), account)
    state = folder.lstat()
    if state.st_uid != account.number:
        raise NotPrivateError(f"{folder} belongs to {_user(state.st_uid)}")
    if account.lets_others_write(state):
        raise NotPrivateError(f"{folder} can be written by other users")
    return folder


def read_own_file(path: Path, most: int, account: Account) -> bytes | None:
    """The content of a regular file of at most `most` bytes that this user alone can write; None for any other."""
    flags = os.O_RDONLY
    for name in _FLAGS:
        flags |= getattr(os, name, 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        # The open file is checked, not its name, which may refer to another file by now.
        state = os.fstat(file.fileno())
        is_private = state.st_uid == account.number and state.st_mode & _GROUP_OR_OTHERS == 0
        own = account.number is None or is_private
        return file.read(most) if own and stat.S_ISREG(state.st_mode) and state.st_size <= most else None


def _resolved(path: Path, account: Account) -> Path:
    """Follow a path from the root on, and raise at the first part that other users can replace."""
    place, links = Path(path.anchor), 0
    _check_above(place, place.lstat(), account)
    pending = [*reversed(path.parts[1:])]
    while pending:
        name = pending.pop()
        if name == "..":
            place = place.parent
            continue
        found = place / name
        state = _made(found)
        _check_owner(found, state, account)
        if stat.S_ISLNK(state.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = found.readlink()
            place = Path(target.anchor) if target.is_absolute() else place
            pending += reversed(target.parts[1:] if target.is_absolute() else target.parts)
            continue
        if not stat.S_ISDIR(state.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(found))
        if pending:
            _check_above(found, state, account)
        place = found
    return place


def _made(path: Path) -> os.stat_result:
    """What lies at a path; a new folder of our own if nothing does."""
    try:
        return path.lstat()
    except FileNotFoundError:
        path.mkdir(mode=0o700, exist_ok=True)
        return path.lstat()


def _check_above(folder: Path, state: os.stat_result, account: Account) -> None:
    """Raise if other users can rename or remove our entries in a folder above."""
    _check_owner(folder, state, account)
    if account.lets_others_write(state) and not state.st_mode & stat.S_ISVTX:
        raise NotPrivateError(f"{folder} can be written by other users")


def _check_owner(path: Path, state: os.stat_result, account: Account) -> None:
    # The owner of the root can replace everything; in a user namespace that is not user 0.
    if state.st_uid not in {account.number, 0, os.lstat(path.anchor).st_uid}:
        raise NotPrivateError(f"{path} belongs to {_user(state.st_uid)}")


def _user(number: int) -> str:
    return "root" if number == 0 else f"user {number}"
