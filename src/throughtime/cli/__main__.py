"""`python -m throughtime.cli`: the same as `python -m throughtime`."""

from throughtime.cli import main

main()
