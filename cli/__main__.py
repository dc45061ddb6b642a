"""`python -m weir.cli`: the `weir` command without a PATH."""

from weir.cli.main import main

main()
