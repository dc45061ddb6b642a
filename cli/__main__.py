"""Run the `weir` command as `python -m weir.cli`, for shells whose PATH lacks the program `weir`."""

from weir.cli.main import main

main()
