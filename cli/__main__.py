"""`python -m cli`: the `weir` command where it is not on the PATH."""

from cli.main import main

main()
