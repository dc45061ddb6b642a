"""Read znodes from a dump on disk, for `weir quotas import --dump`.

DIR holds the tree below Kafka's chroot, so DIR/config/users, DIR/config/clients and DIR/config/ips; or it is
that `config` itself. A znode is

- a file with its name, or, if all files of the dump have this suffix, with its name and `.json`;
- or a directory with its name, containing a file `_znode` or `data` with the znode's content.

guano writes the first form with `_znode` (a file for a leaf, a directory for a node with children).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from weir.quotas.table.zookeeper_layout import CLIENTS, IPS, OF_A_USER, USERS, ZooKeeperQuotas

OWN: Final = ("_znode", "data")
"""Names of the files that hold the content of a znode that is a directory in the dump."""
SUFFIX: Final = ".json"
NODE_BYTES_MAX: Final = 1 << 20
"""Maximum size (bytes) of a node, ZooKeeper's own limit (jute.maxbuffer)."""


class DumpError(Exception):
    """Raised if the directory has no quotas to import; the text is one line."""


class Dump:
    """The znodes of quotas in a dump's directory."""

    def __init__(self, directory: Path) -> None:
        """Find Kafka's directory `config` in the dump. Raises DumpError if the directory has no quotas."""
        self._config = directory / "config" if (directory / "config").is_dir() else directory
        roots = [self._place(root) for root in (USERS, CLIENTS, IPS)]
        if not any(root.is_dir() for root in roots):
            raise DumpError(
                f"{directory}: no dump of Kafka's nodes: there is no {directory / 'config/users'}, "
                "nor clients or ips beside it"
            )
        files = [file for root in roots for file in _files(root)]
        self._suffixed = bool(files) and all(file.name.endswith(SUFFIX) for file in files)

    def read(self, quotas: ZooKeeperQuotas) -> None:
        """Add the content of each znode in the dump to `quotas`; skip files that cannot be read."""
        for user in self._nodes(USERS, quotas):
            self._nodes(f"{user}/{OF_A_USER}", quotas)
        self._nodes(CLIENTS, quotas)
        self._nodes(IPS, quotas)

    def _place(self, path: str) -> Path:
        return self._config / path.removeprefix("/config/")

    def _nodes(self, container: str, quotas: ZooKeeperQuotas) -> list[str]:
        """Read the children of the znode `container` from the dump, and add their content to `quotas`. Return
        the paths of the children that are directories: these may have children of their own.
        """
        directories: list[str] = []
        for entry in _entries(self._place(container)):
            if entry.is_dir():
                directories.append(f"{container}/{entry.name}")
                for own in OWN:
                    _read(f"{container}/{entry.name}", entry / own, quotas)
            elif entry.name != OWN[0]:
                name = entry.name.removesuffix(SUFFIX) if self._suffixed else entry.name
                _read(f"{container}/{name}", entry, quotas)
        return directories


def _entries(directory: Path) -> Iterable[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else ()


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file() and path.name not in OWN)


def _read(path: str, file: Path, quotas: ZooKeeperQuotas) -> None:
    if not file.is_file():
        return
    try:
        with file.open("rb") as opened:
            content = opened.read(NODE_BYTES_MAX + 1)
    except OSError as error:
        quotas.skip(path, None, f"cannot read {file}: {error.strerror}")
        return
    if len(content) > NODE_BYTES_MAX:
        quotas.skip(path, None, f"{file} is larger than a znode can be")
    else:
        quotas.read(path, content)
