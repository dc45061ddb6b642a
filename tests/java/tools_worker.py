"""Kafka's command-line tools in one Java process: a job and then a call per line of stdin.

What a call and its outcome hold is in `tools_process.py`; before them comes Java's process id. The Java
process ends with this one. Needs py4j.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from py4j.protocol import Py4JJavaError

from tests.java.process import started


class Exit:
    """What Kafka's tools call to end their process: here it ends the call."""

    def __init__(self) -> None:
        self.status: int | None = None

    def execute(self, status: int, _message: str | None) -> None:
        """Take note; whatever else the tool does comes after its end. The first one counts."""
        if self.status is None:
            self.status = status
        raise SystemExitCalled

    class Java:
        implements: tuple[str, ...] = ()


class SystemExitCalled(Exception):  # noqa: N818  # as it is called
    """The tool would have ended here."""


class Tools:
    def __init__(self, gateway: Any) -> None:
        java = gateway.jvm
        self._exit = Exit()
        utils, package = java.org.apache.kafka.common.utils, "org.apache.kafka.common.utils"
        try:
            java.java.lang.Class.forName(f"{package}.Exit")
        except Py4JJavaError:  # since 4.4
            utils, package = utils.internals, f"{package}.internals"
        Exit.Java.implements = (f"{package}.Exit$Procedure",)
        utils.Exit.setExitProcedure(self._exit)
        utils.Exit.setHaltProcedure(self._exit)
        self._streams = [java.java.io.ByteArrayOutputStream() for _ in range(2)]
        out, err = (java.java.io.PrintStream(stream, True, "UTF-8") for stream in self._streams)
        java.java.lang.System.setOut(out)
        java.java.lang.System.setErr(err)
        self._gateway = gateway

    def run(self, main_class: str, arguments: list[str]) -> dict[str, Any]:
        for stream in self._streams:
            stream.reset()
        self._exit.status = None
        array = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(arguments))
        for index, argument in enumerate(arguments):
            array[index] = argument
        trace = ""
        try:
            self._gateway.jvm.java.lang.Class.forName(main_class)  # otherwise py4j takes it for a package
            getattr(self._gateway.jvm, main_class).main(array)
        except Py4JJavaError as error:
            if self._exit.status is None:  # as Java ends when `main` raises
                self._exit.status, trace = 1, str(error)
        out, err = (stream.toString("UTF-8") for stream in self._streams)
        err = err.partition("An exception was raised by the Python Proxy.")[
            0
        ]  # a tool that prints its own end
        return {"status": self._exit.status or 0, "out": out, "err": err + trace}


def main() -> None:
    job = json.loads(sys.stdin.readline())
    gateway = started(job, "256m", calls_back=True)
    server = gateway.java_gateway_server
    server.resetCallbackClient(
        server.getCallbackClient().getAddress(), gateway.get_callback_server().get_listening_port()
    )
    tools = Tools(gateway)
    print(gateway.jvm.java.lang.ProcessHandle.current().pid(), flush=True)
    for line in sys.stdin:
        print(json.dumps(tools.run(*json.loads(line))), flush=True)
    gateway.shutdown()


if __name__ == "__main__":
    main()
