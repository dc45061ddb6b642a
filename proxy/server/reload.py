"""Put changed settings in force without a restart: at SIGHUP, and when the configuration file has changed.

Only the settings in `RELOADED` can change while Weir runs. The log names the others, which need a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import structlog
import trio

from weir.proxy import logs
from weir.proxy.config.config import Config, ConfigError
from weir.proxy.file_watch import FileWatch
from weir.proxy.outage import Outage
from weir.proxy.server.server import Server

log = structlog.get_logger("weir")

RELOADED: Final = frozenset(
    {
        "buffered_bytes_max",
        "connection_age_max_s",
        "connections_max",
        "drain_timeout_s",
        "frame_bytes_max",
        "log_level",
        "login_timeout_s",
        "max_connection_creation_rate",
        "max_connections_per_ip",
        "quota_mode",
        "throttle_ms_max",
    }
)
"""Settings that can change while Weir runs. Limits of a connection apply to new connections."""


class Reload:
    """Reads the configuration again, and puts its changes in force."""

    def __init__(
        self, server: Server, load: Callable[[], Config], set_mode: Callable[[bool], Awaitable[None]]
    ) -> None:
        """Begin with the server's configuration in force. `load` reads the configuration as at the start, and
        raises ConfigError; `set_mode` puts all quotas in shadow mode (True), or each in its own (False).
        """
        self._server = server
        self._load = load
        self._set_mode = set_mode
        file = server.config.file
        self._watch = FileWatch([] if file is None else [file])
        self._watch.read = self._watch.stamps()
        self._turn = trio.Lock()
        self._restart: frozenset[str] = frozenset()
        """Settings that were last logged as in need of a restart."""
        self._outage = Outage(
            log, "configuration not loaded, the old one stays in force", "configuration can be read again"
        )

    async def look(self) -> None:
        """Reload the configuration if its file has changed."""
        if await self._watch.look():
            await self.reload()

    async def reload(self) -> None:
        """Read the configuration and put its changes in force. Logs a mistake in it. Never raises: a mistake
        or a bug must not end the task that reads it. Calls run one after another, so that the newest content
        of the file stays in force.
        """
        async with self._turn:
            try:
                await self._reload()
            except ConfigError as error:
                self._outage.failed(reason=str(error))
            except Exception:
                log.exception("internal error while the configuration was read, the old one stays in force")

    async def _reload(self) -> None:
        """Read the configuration and put its changes in force. Raises ConfigError."""
        self._watch.read = await trio.to_thread.run_sync(self._watch.stamps)
        config = await trio.to_thread.run_sync(self._load)
        self._outage.over()
        old, new = self._server.config.settings, config.settings
        changed = {key for key in old.__struct_fields__ if getattr(old, key) != getattr(new, key)}
        await self._use(config, changed & RELOADED)
        restart = frozenset(changed - RELOADED)
        if restart - self._restart:
            log.warning("changed settings need a restart", settings=sorted(restart))
        self._restart = restart

    async def _use(self, config: Config, changed: set[str]) -> None:
        if not changed:
            return
        settings = msgspec.structs.replace(
            self._server.config.settings, **{key: getattr(config.settings, key) for key in changed}
        )
        self._server.use(
            msgspec.structs.replace(
                self._server.config, settings=settings, connections_per_ip=config.connections_per_ip
            )
        )
        if "log_level" in changed:
            logs.configure(settings.log_level)
        if "quota_mode" in changed:
            await self._set_mode(settings.quota_mode == "shadow")
        log.info("configuration loaded", **{key: getattr(settings, key) for key in sorted(changed)})
