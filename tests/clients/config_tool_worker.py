"""Many calls of kafka-configs in one Java process: `config_tool_worker.py < job.json > outcomes.json`.

What a job and an outcome hold is in `config_tool.py`. Needs py4j.
"""

import json
import sys
from typing import Any

from py4j.java_gateway import (
    CallbackServerParameters,
    GatewayParameters,
    JavaGateway,
    launch_gateway,
)
from py4j.protocol import Py4JJavaError


class Exit:
    """What Kafka's tools call to end their process: here it ends the call."""

    def __init__(self) -> None:
        self.status = 0

    def execute(self, status: int, _message: str | None) -> None:
        """Take note; whatever else the tool does comes after its end. The first one counts."""
        self.status = self.status or status
        raise SystemExitCalled

    class Java:
        """For py4j."""

        implements = ("org.apache.kafka.common.utils.Exit$Procedure",)


class SystemExitCalled(Exception):  # noqa: N818  # as it is called
    """The tool would have ended here."""


class Tool:
    """kafka-configs, and what it prints."""

    def __init__(self, gateway: Any) -> None:
        java = gateway.jvm
        self._exit = Exit()
        java.org.apache.kafka.common.utils.Exit.setExitProcedure(self._exit)
        self._streams = [java.java.io.ByteArrayOutputStream() for _ in range(2)]
        out, err = (java.java.io.PrintStream(stream, True, "UTF-8") for stream in self._streams)
        java.java.lang.System.setOut(out)
        java.java.lang.System.setErr(err)
        self._gateway = gateway

    def run(self, arguments: list[str]) -> dict[str, Any]:
        """Call it."""
        for stream in self._streams:
            stream.reset()
        self._exit.status = 0
        array = self._gateway.new_array(self._gateway.jvm.java.lang.String, len(arguments))
        for index, argument in enumerate(arguments):
            array[index] = argument
        try:
            self._gateway.jvm.kafka.admin.ConfigCommand.main(array)
        except Py4JJavaError:
            if not self._exit.status:
                raise
        out, err = (stream.toString("UTF-8") for stream in self._streams)
        return {"status": self._exit.status, "out": out, "err": err}


def main() -> None:
    """Do the job on stdin."""
    job = json.loads(sys.stdin.readline())
    port = launch_gateway(
        classpath=job["classpath"],
        jarpath=job["jar"],
        java_path=job["java"],
        javaopts=["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *job["options"]],
        die_on_exit=True,
    )
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auto_convert=True),
        callback_server_parameters=CallbackServerParameters(port=0),
    )
    server = gateway.java_gateway_server
    server.resetCallbackClient(
        server.getCallbackClient().getAddress(), gateway.get_callback_server().get_listening_port()
    )
    tool = Tool(gateway)
    outcomes = [tool.run(arguments) for arguments in job["calls"]]
    gateway.shutdown()
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()
