"""The problems, each with the sentences that are to tell it."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from tests.hostile.stage import ask
from tests.kafka.settings import HOST
from tests.night.scene import METADATA, START_S, Scene
from tests.night.watch import Channels, Expected, Told, Watch
from tests.proxy.certificates import authority, write_pair
from tests.wire.messages import produce

PATIENCE_S: Final = 20.0
"""Time (s) after which a sentence that was not told counts as missing."""
WATCHDOG_S: Final = 30.0
"""WatchdogSec of deploy/weir.service."""
QUOTA: Final = '[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = 1000\n'


def _watched(watch: Watch, plant: Callable[[], object], patience_s: float = PATIENCE_S) -> Channels:
    watch.plant(plant)
    return watch.until(patience_s)


def _throttled(expected: Expected) -> Channels:
    with Scene({"quotas": "quotas.toml"}) as scene:
        (scene.directory / "quotas.toml").write_text(QUOTA)
        scene.start_brokers()
        scene.start_weir()
        return _watched(scene.watch(expected), lambda: scene.send(produce(length=40_000), 0))


def _full_disk(expected: Expected) -> Channels:
    """A file system of 64 kB in a mount namespace of Weir's own, so that nobody needs to be root."""
    with Scene({"usage": "usage", "usage_interval_ms": 1000}) as scene:
        usage = scene.directory / "usage"
        usage.mkdir()
        mount = f'mount -t tmpfs -o size=64k tmpfs {usage} && exec "$@"'
        scene.prefix = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh"]
        scene.start_brokers()
        scene.start_weir()
        client = scene.client(0)
        ask(client, produce(length=5_000))
        # Their records do not fit into the block that the file has already, even compressed.
        names = [random.Random(number).randbytes(32).hex().encode() for number in range(300)]

        def fill() -> None:
            filler = f"{usage}/filler"
            scene.run(["dd", "if=/dev/zero", f"of=/proc/{scene.pid}/root{filler}", "bs=4k"])
            for name in names:
                ask(client, produce(length=500, client_id=name))

        return _watched(scene.watch(expected), fill)


def _dead_broker(expected: Expected) -> Channels:
    with Scene({}) as scene:
        scene.start_brokers()
        scene.start_weir()
        ask(scene.client(1), METADATA)

        def kill() -> None:
            scene.kill_broker(1)
            scene.try_to(lambda: scene.send(METADATA, 1))

        return _watched(scene.watch(expected), kill)


def _expired_certificate(expected: Expected) -> Channels:
    """A certificate that expires 8 s after the start."""
    with Scene({"tls_cert": "tls.crt,tls.key"}) as scene:
        ends = datetime.now(UTC) + timedelta(seconds=12)
        leaf = authority().issue_cert(HOST, not_after=ends)
        (scene.directory / "tls.crt").write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        (scene.directory / "tls.key").write_bytes(leaf.private_key_pem.bytes())
        scene.start_brokers()
        scene.start_weir()
        watch = scene.watch(expected)
        return _watched(watch, lambda: time.sleep(max((ends - datetime.now(UTC)).total_seconds(), 0)))


def _refused_certificate(expected: Expected) -> Channels:
    with Scene({"tls_cert": "tls.crt,tls.key"}) as scene:
        write_pair(scene.directory, HOST)
        scene.start_brokers()
        scene.start_weir()
        return _watched(scene.watch(expected), lambda: (scene.directory / "tls.crt").write_text("no PEM"))


def _broken_quota_file(expected: Expected) -> Channels:
    with Scene({"quotas": "quotas.toml"}) as scene:
        file = scene.directory / "quotas.toml"
        file.write_text(QUOTA)
        scene.start_brokers()
        scene.start_weir()
        return _watched(scene.watch(expected), lambda: file.write_text(QUOTA + "producer_byte_rate = oops\n"))


def _unreachable_store(expected: Expected) -> Channels:
    """The brokers' own quotas are the store, and all brokers die."""
    with Scene({"quotas": "broker"}) as scene:
        scene.start_brokers()
        scene.start_weir()
        return _watched(scene.watch(expected), scene.kill_brokers, 2 * PATIENCE_S)


def _stopped(expected: Expected) -> Channels:
    with Scene({}) as scene:
        return _hung(scene, expected, signal.SIGSTOP)


def _hung_reactor(expected: Expected) -> Channels:
    with Scene({}) as scene:
        scene.prefix = [sys.executable, "-m", "tests.night.hanging"]
        return _hung(scene, expected, signal.SIGUSR1)


def _hung(scene: Scene, expected: Expected, hang: signal.Signals) -> Channels:
    """Send the signal to Weir. This process stands in for systemd: it counts the time without a message of
    the watchdog.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(scene.directory / "notify"))
        scene.environment = {
            "NOTIFY_SOCKET": str(scene.directory / "notify"),
            "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6)),
        }
        scene.start_brokers()
        scene.start_weir()
        while systemd.recv(100) != b"WATCHDOG=1":
            pass
        last_s = time.monotonic()
        watch = scene.watch(expected)
        os.kill(scene.pid, hang)
        began_s = time.monotonic()
        systemd.settimeout(WATCHDOG_S)
        try:
            systemd.recv(100)
        except TimeoutError:
            watch.found.event = Told("systemd: watchdog time is over", WATCHDOG_S - (began_s - last_s))
        answered = Told("no answer of /healthz", 2.0) if not scene.answers() else None
        watch.found.readyz = answered
        os.kill(scene.pid, signal.SIGCONT)
        return watch.until(WATCHDOG_S + PATIENCE_S)


def _lost_worker(number: signal.Signals) -> Callable[[Expected], Channels]:
    def run(expected: Expected) -> Channels:
        with Scene({"workers": 2}) as scene:
            scene.start_brokers()
            scene.start_weir()
            for node in range(scene.brokers):
                client = scene.client(node)
                client.settimeout(START_S)  # the listeners are open before the workers have started
                ask(client, METADATA)
            pid = scene.serving_worker_pid()
            return _watched(scene.watch(expected), lambda: os.kill(pid, number))

    return run


def _left_out_broker(expected: Expected) -> Channels:
    with Scene({}) as scene:
        scene.start_brokers()
        scene.start_weir()
        scene.kill_brokers()

        def grow() -> None:
            scene.start_brokers(listed=3)
            scene.send(METADATA)

        return _watched(scene.watch(expected), grow, 2 * PATIENCE_S)


def _connections_max(expected: Expected) -> Channels:
    with Scene({"connections_max": 3}) as scene:
        scene.start_brokers()
        scene.start_weir()
        return _watched(scene.watch(expected), lambda: [scene.send(METADATA, 0) for _ in range(5)])


def _emptied_token(expected: Expected) -> Channels:
    with Scene({"admin_token_file": "token"}) as scene:
        file = scene.directory / "token"
        file.write_text("0123456789abcdef0123456789abcdef\n")
        scene.start_brokers()
        scene.start_weir()
        return _watched(scene.watch(expected), lambda: file.write_text(""))


def _hung_broker(nodes: tuple[int, ...], workers: int = 1) -> Callable[[Expected], Channels]:
    def run(expected: Expected) -> Channels:
        with Scene({"workers": workers}) as scene:
            scene.start_brokers()
            scene.start_weir()
            client = scene.client(1)
            ask(client, METADATA)

            def stop() -> None:
                for node in nodes:
                    os.kill(scene.broker_pid(node), signal.SIGSTOP)
                client.sendall(METADATA)
                scene.send(METADATA, 1)

            return _watched(scene.watch(expected), stop, 2 * PATIENCE_S)

    return run


LOGIN: Final = {
    "upstream_sasl_mechanism": "PLAIN",
    "upstream_sasl_username": "weir",
    "upstream_sasl_password_file": "password",
}


def _changed_password(expected: Expected) -> Channels:
    """The brokers come back with another password for Weir."""
    with Scene(LOGIN, kind="accepting") as scene:
        (scene.directory / "password").write_text("right")
        scene.start_brokers()
        scene.start_weir()

        def change() -> None:
            scene.kill_brokers()
            scene.kind = "refusing"
            scene.start_brokers()

        return _watched(scene.watch(expected), change, 2 * PATIENCE_S)


def _wrong_password(expected: Expected) -> Channels:
    with Scene(LOGIN, kind="refusing") as scene:
        (scene.directory / "password").write_text("wrong")
        scene.start_brokers()
        return _watched(scene.watch(expected), lambda: scene.start_weir(ready=False))


PROBLEMS: Final[dict[str, tuple[Callable[[Expected], Channels], Expected]]] = {
    "throttled": (
        _throttled,
        Expected(
            '"event": "throttl',
            "is at .* of producer_byte_rate",
            '"throttling"',
            r"^weir_entity_throttle_seconds_total\{.*[1-9]",
        ),
    ),
    "full-disk": (
        _full_disk,
        Expected(
            "usage", "Usage cannot be written", "usage_not_written", r"^weir_usage_available(\{.*\})? 0"
        ),
    ),
    "dead-broker": (
        _dead_broker,
        Expected("broker", "Broker 1 is down", '"broker_down"', r'^weir_broker_up\{.*"1".*\} 0'),
    ),
    "expired-certificate": (
        _expired_certificate,
        Expected(
            "has expired",
            "has expired",
            "certificate_expired",
            r"^weir_tls_certificate_expiry_timestamp_seconds",
        ),
    ),
    "refused-certificate": (
        _refused_certificate,
        Expected(
            "TLS files refused",
            "are refused",
            "tls_files_refused",
            r"^weir_tls_files_last_reload_successful\{.*\} 0",
        ),
    ),
    "broken-quota-file": (
        _broken_quota_file,
        Expected(
            "quotas not loaded",
            "quota store",
            '"store_failing"',
            r"^weir_quota_file_last_reload_successful(\{.*\})? 0",
        ),
    ),
    "unreachable-store": (
        _unreachable_store,
        Expected(
            "quotas not loaded",
            "quota store",
            '"store_failing"',
            r"^weir_quota_store_available(\{.*\})? 0",
            "not ready",
        ),
    ),
    "stopped": (_stopped, Expected("process stood still")),
    "hung-reactor": (_hung_reactor, Expected("process stood still")),
    "killed-worker": (
        _lost_worker(signal.SIGKILL),
        Expected(
            "worker lost, starting another",
            "Workers were lost",
            '"worker_lost"',
            r'^weir_worker_restarts_total\{reason="died"\} [1-9]',
        ),
    ),
    "hung-worker": (
        _lost_worker(signal.SIGSTOP),
        Expected(
            "worker lost, starting another",
            "Workers were lost",
            '"worker_lost"',
            r'^weir_worker_restarts_total\{reason="stuck"\} [1-9]',
        ),
    ),
    "left-out-broker": (
        _left_out_broker,
        Expected(
            "broker removed|no port",
            "Broker 2 has no listener",
            "brokers_without_listener",
            r"^weir_ready(\{.*\})? 0",
            "no listener",
        ),
    ),
    "connections-max": (
        _connections_max,
        Expected(
            "connection_limit|connections_max",
            "connections_max",
            '"connections_max"',
            r"^weir_sessions_closed_total\{.*connection_limit.*\} [1-9]",
        ),
    ),
    "emptied-token": (
        _emptied_token,
        Expected(
            "admin token refused",
            "admin_token_file is refused",
            "admin_token_refused",
            r'^weir_problem\{problem="admin_token_refused"\} 1',
        ),
    ),
    "hung-broker": (
        _hung_broker((1,)),
        Expected(
            "Broker 1 has sent nothing",
            "Broker 1 has sent nothing",
            "broker_silent 1",
            r'^weir_problem\{problem="broker_silent 1"\} 1',
        ),
    ),
    "hung-broker-of-a-worker": (
        _hung_broker((1,), workers=2),
        Expected(
            "Broker 1 has sent nothing",
            "Broker 1 has sent nothing",
            "broker_silent 1",
            r'^weir_problem\{problem="broker_silent 1"\} 1',
        ),
    ),
    "hung-cluster": (
        _hung_broker((0, 1)),
        Expected("broker|sent nothing", "Not ready", "not_ready", r"^weir_ready(\{.*\})? 0", "not ready"),
    ),
    "wrong-password": (_wrong_password, Expected("Authentication failed")),
    "changed-password": (
        _changed_password,
        Expected(
            "Authentication failed",
            "refuse Weir's own login",
            '"login_refused"',
            r'^weir_problem\{problem="login_refused"\} 1',
        ),
    ),
}
"""Name → what plants the problem, and the sentences that tell it."""
