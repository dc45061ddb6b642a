"""No byte is wrong behind a real `weir run`: small sizes of `python -m tests.fuzz.hashing`."""

from __future__ import annotations

import pytest

from tests.fuzz.hashing import MB, ROOT, run


@pytest.mark.slow
@pytest.mark.parametrize(("tls", "total_mb"), [(False, 200), (True, 50)], ids=["plain", "tls"])
def test_frames_pass_unchanged_while_quotas_throttle_and_reload(
    monkeypatch: pytest.MonkeyPatch, tls: bool, total_mb: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert run(total_mb, tls=tls).bytes >= total_mb * MB
