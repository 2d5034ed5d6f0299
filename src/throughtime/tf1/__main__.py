"""`python -m throughtime.tf1 PROGRAM [ARGUMENTS]`: run a TensorFlow 1 program as it stands."""

from __future__ import annotations

import sys

from throughtime.tf1._run_program import WRONG_USAGE, ProgramError, run_program


def main(arguments: list[str]) -> int:
    """Run the program that the first argument names."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        sys.stderr.write(f"{__doc__}\n")
        return 0 if arguments else WRONG_USAGE
    try:
        return run_program(arguments[0], arguments[1:])
    except ProgramError as error:
        sys.stderr.write(f"Error: {error}\n")
        return WRONG_USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
