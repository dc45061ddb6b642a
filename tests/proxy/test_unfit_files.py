"""Files of settings that are no regular files, have no end, or begin with a byte order mark: nobody waits for
them, and each is read or refused in one clear line.
"""

from __future__ import annotations

import codecs
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs

from weir.cli.main import weir
from weir.proxy.atomic_write import replace
from weir.proxy.config.admin_access import read_token
from weir.proxy.config.config import load
from weir.proxy.config.principals import _password
from weir.proxy.config.request_costs import _read as read_costs
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.state_directory import StateDirectory
from weir.proxy.control.stores.file import read_quota_file, rewrite
from weir.proxy.control.stores.store import StoreError
from weir.proxy.net.tls.contexts import KeyPair, client_context, server_context
from weir.quotas import Entity, QuotaKey, QuotaTable

QUOTAS: Final = '[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\n'
TABLE: Final = QuotaTable({(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): 1000.0})
CHANGES: Final = {(Entity("alice"), QuotaKey.PRODUCER_BYTE_RATE): 2000.0}


def of_state(path: Path) -> object:
    with capture_logs() as lines:
        assert StateDirectory(path.parent).read(path.name, 1000, str) is None
    (line,) = lines
    raise ConfigError(str(line["reason"]))


READERS: Final[dict[str, Callable[[Path], object]]] = {
    "configuration": lambda path: load(path, {}),
    "quotas": read_quota_file,
    "quotas, to change": lambda path: rewrite(path, CHANGES),
    "upstream_sasl_password_file": _password,
    "admin_token_file": read_token,
    "share_key_file": lambda path: load(
        None, {"upstream": "a:1", "usage_share_topic": "t", "share_key_file": str(path)}
    ),
    "request_costs": read_costs,
    "state_dir": of_state,
    "upstream_tls": lambda path: client_context(path, None, verify_host=True),
    "tls_cert": lambda path: server_context(KeyPair(path, path, "tls_cert"), ssl.CERT_NONE, None),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_a_setting_that_is_no_regular_file_is_one_clear_line(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, 1 << 40)
    unfit = {tmp_path / "pipe": "pipe", Path("/dev/zero"): "device", huge: "larger than"}
    unfit[tmp_path] = "directory"
    for path, saying in unfit.items():
        with pytest.raises((ConfigError, StoreError)) as caught:
            READERS[name](path)
        assert saying in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_device_or_pipe_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    """A path of a setting may lead to /dev/null in a container whose Weir is root."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(OSError, match="it is no regular file"):
        replace(path, b"content")
    assert path.is_fifo()
    assert list(tmp_path.iterdir()) == [path]


def marked(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8-sig")
    return path


def test_settings_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "file"
    assert load(marked(file, 'upstream = "kafka:9092"'), {}).settings.upstream == "kafka:9092"
    assert read_token(marked(file, "0123456789abcdef\n")) == "0123456789abcdef"
    assert _password(marked(file, "sec ret\r\n")) == "sec ret"
    assert StateDirectory(tmp_path).read(marked(file, "text").name, 1000, str) == "text"
    read_costs(marked(file, ""))


def test_a_changed_quota_file_keeps_its_byte_order_mark(tmp_path: Path) -> None:
    file = marked(tmp_path / "quotas.toml", QUOTAS)
    assert read_quota_file(file) == TABLE
    rewrite(file, CHANGES)
    assert file.read_bytes() == codecs.BOM_UTF8 + QUOTAS.replace("1000", "2000").encode()


def test_commands_read_json_and_quota_files_with_a_byte_order_mark(tmp_path: Path) -> None:
    quotas, run = tmp_path / "quotas.toml", CliRunner()
    quotas.write_text(QUOTAS)
    listed = run.invoke(weir, ["quotas", "list", "--quotas", str(quotas), "--json"])
    imported = marked(tmp_path / "quotas.json", listed.stdout)
    result = run.invoke(weir, ["quotas", "import", str(imported)])
    assert (result.exit_code, "alice" in result.stdout) == (0, True), result.output
    marked(quotas, QUOTAS)
    assert run.invoke(weir, ["check", "--upstream", "kafka:9092", "--quotas", str(quotas)]).exit_code == 0


@pytest.mark.parametrize("name", sorted(READERS.keys() - {"upstream_tls", "tls_cert"}))
def test_a_file_in_utf_16_is_one_clear_line(name: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text(QUOTAS, "utf-16")
    with pytest.raises((ConfigError, StoreError), match="byte order mark"):
        READERS[name](file)
