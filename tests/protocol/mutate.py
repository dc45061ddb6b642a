"""Bytes made wrong, by chance, where lengths and counts are likely to be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


def mutate(data: bytes, source: random.Random) -> bytes:
    """`data` with one to four bytes flipped, inserted, removed or set to what lengths are afraid of."""
    changed = bytearray(data)
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(changed) + 1)
        match source.randrange(4):
            case 0 if at < len(changed):
                changed[at] ^= 1 << source.randrange(8)
            case 1:
                changed[at:at] = source.randbytes(source.randint(1, 4))
            case 2:
                del changed[at : at + source.randint(1, 4)]
            case _:
                alarming = source.choice(
                    (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x80\x80\x80\x80", b"\0")
                )
                changed[at : at + len(alarming)] = alarming
    return bytes(changed)
