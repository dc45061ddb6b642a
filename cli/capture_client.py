"""`weir capture -- CLIENT`: the client whose connections are captured."""

from __future__ import annotations

import os
import signal
import subprocess
from typing import TYPE_CHECKING, Final

import click
import trio

from weir.cli.exits import CommandError
from weir.demo.proxy_process import free_ports
from weir.proxy.config.ports import BROKER_PORTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weir.proxy.addresses import Address

CLIENT: Final = "weir.capture.client"
"""Key of the client's words in `click.Context.meta`."""
BOOTSTRAP: Final = "KAFKA_BOOTSTRAP_SERVERS"
PLACEHOLDER: Final = "{bootstrap}"
FREE: Final = ":0"
LOOPBACK: Final = "127.0.0.1"


class CaptureCommand(click.Command):
    """The command `weir capture`, whose words behind `--` are a client's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the client's words aside, and parse those before `--`."""
        before = args[: args.index("--")] if "--" in args else args
        if len(before) < len(args):
            ctx.meta[CLIENT] = args[len(before) + 1 :]
            args = before
            if not ctx.meta[CLIENT]:
                raise click.UsageError("There is no CLIENT behind --", ctx)
        return super().parse_args(ctx, args)


def with_free_ports(options: Mapping[str, object], program: Sequence[str]) -> dict[str, object]:
    """Return options of settings in which `listen` names free ports, if its port is 0, or if there is a
    client and no `listen`.
    """
    listen = options.get("listen") or (LOOPBACK + FREE if program else None)
    if not isinstance(listen, str) or not listen.endswith(FREE):
        return dict(options)
    port, _ = free_ports(list(range(BROKER_PORTS)))
    return {**options, "listen": f"{listen.removesuffix(FREE)}:{port}"}


class CapturedClient:
    """A program that is run while its connections are captured."""

    def __init__(self, program: Sequence[str], listen: Address, for_s: float | None) -> None:
        """`for_s`: time (s) after which the program is ended; None for no limit."""
        self.address = f"{listen.host or LOOPBACK}:{listen.port}"
        self.words = [word.replace(PLACEHOLDER, self.address) for word in program]
        self.for_s = float("inf") if for_s is None else for_s
        self.complaint = "the client was ended before it had finished"
        """Sentence about a client that failed; empty if it ended with 0, or when its time had passed."""

    async def run(self) -> None:
        """Run the program to its end. A cancellation ends the program. Raises CommandError."""
        variables = {**os.environ, BOOTSTRAP: self.address}
        with trio.move_on_after(self.for_s) as scope:
            try:
                done = await trio.run_process(self.words, stdin=None, check=False, env=variables)
            except OSError as error:
                raise CommandError(f"{self.words[0]}: cannot be run: {error.strerror}") from None
            self.complaint = _complaint(done)
        if scope.cancelled_caught:
            self.complaint = ""


def _complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode < 0:
        number = -done.returncode
        named = number in set(signal.Signals)  # most of the real-time signals have no name
        return f"the client was ended by {signal.Signals(number).name if named else f'signal {number}'}"
    return f"the client ended with exit code {done.returncode}" if done.returncode else ""
