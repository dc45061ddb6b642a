"""`python -m cli`: the `weir` command without a PATH."""

from cli.main import main

main()
