"""`tf.app.run`: parse the flags, call `main`, leave with its result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from throughtime.tf1.app._flag_types import FlagsError
from throughtime.tf1.app._flags import FLAGS


def run(main: Callable[[list[str]], Any] | None = None, argv: list[str] | None = None) -> None:
    """Parse the command line, call `main` with the words that are left, and exit.

    Flags that are not defined stay among those words. Without `main`, the function `main` of the program is called.
    `--help` shows the flags.
    """
    words = sys.argv if argv is None else argv
    if {"--help", "-help", "-h", "--helpfull"} & set(words[1:]) and not {"help", "h"} & set(FLAGS):
        sys.stdout.write(_usage())
        sys.exit(1)
    try:
        left = FLAGS(words, known_only=True)
        _check_required()
    except FlagsError as error:
        sys.stderr.write(f"FATAL Flags parsing error: {error}\nPass --help to see help on flags.\n")
        sys.exit(1)
    sys.exit((main or sys.modules["__main__"].main)(left))


def _check_required() -> None:
    for name in FLAGS:
        if FLAGS[name].is_required and FLAGS[name].value is None:
            raise FlagsError(f"Flag --{name} must have a value other than None: got None, expected {FLAGS[name].kind}.")


def _usage() -> str:
    program = sys.modules["__main__"].__doc__ or ""
    return f"{program.strip()}\n\nflags:\n\n{FLAGS.get_help()}\n"
