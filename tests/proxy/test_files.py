"""Files that Weir reads: regular ones only, up to a size, in UTF-8."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from weir.proxy.files import FileRefusedError, read_bytes, read_text


def refusal(path: Path, *, bytes_max: int = 100, pipes: bool = False) -> str:
    with pytest.raises(FileRefusedError) as caught:
        read_text(path, bytes_max, pipes=pipes)
    assert caught.value.filename == str(path)
    return str(caught.value.strerror)


@pytest.mark.parametrize("pipes", [False, True])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, pipes: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
        assert refusal(tmp_path / "socket", pipes=pipes) == "it is a socket: give a regular file"
    assert "pipe" in refusal(tmp_path / "pipe", pipes=pipes)
    assert refusal(tmp_path, pipes=pipes) == "it is a directory: give a regular file"
    assert refusal(Path("/dev/zero"), pipes=pipes) == "it is a device: give a regular file"


def test_a_file_of_any_size_is_read_up_to_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100)
    assert read_bytes(file, 100) == b"x" * 100
    assert refusal(file, bytes_max=99) == "it is larger than 99 bytes"
    os.truncate(file, 1 << 40)
    assert refusal(file) == "it is larger than 100 bytes"


def test_a_file_of_proc_has_no_size_and_is_read() -> None:
    assert read_bytes(Path("/proc/self/stat"), 10_000).startswith(str(os.getpid()).encode())


@pytest.mark.parametrize("late", [False, True])
def test_a_pipe_with_a_writer_is_read_for_commands_only(late: bool) -> None:
    reading, writing = os.pipe()
    path = Path(f"/dev/fd/{reading}")
    assert "pipe" in refusal(path)

    def write() -> None:
        os.write(writing, b"text")
        os.close(writing)

    writer = threading.Timer(0.05, write) if late else threading.Thread(target=write)
    writer.start()
    if not late:
        writer.join()
    assert read_text(path, 100, pipes=True) == "text"
    writer.join()
    assert "no program writes" in refusal(path, pipes=True)
    os.close(reading)


def test_a_missing_file_and_a_path_with_a_nul_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bytes(tmp_path / "none", 100)
    assert refusal(Path("a\0b")) == "its path has a NUL character"


def test_a_byte_order_mark_of_utf_8_is_skipped_and_utf_16_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    for encoding, text in (("utf-8-sig", "é"), ("utf-8", "é"), ("utf-8", "")):
        file.write_text(text, encoding)
        assert read_text(file, 100) == text
    for content in (b"\xff\xfea\x00", b"\xfe\xff\x00a"):
        file.write_bytes(content)
        assert refusal(file) == "it is UTF-16, by its byte order mark: save it as UTF-8"
    file.write_bytes(b"a\xff")
    assert refusal(file) == "it is not UTF-8, at byte 1: save it as UTF-8"
