"""`python -m throughtime`: the command, also where it is not installed."""

from throughtime.cli import main

main()
