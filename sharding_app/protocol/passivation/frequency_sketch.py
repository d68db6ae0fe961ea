"""A count-min sketch that forgets: how often keys were seen recently, in fixed space."""

from array import array
from zlib import crc32

MOST_COUNTERS = 1 << 22
"""Of a row. A limit of a billion entities must not cost memory for as many."""
_TYPES = ((8, "B"), (16, "H"), (32, "I"), (64, "Q"))
_ALL = (1 << 64) - 1
_MIX = 0x9E3779B97F4A7C15
_MIX_AGAIN = 0xD6E8FEB86659FD93
_HALVED = bytes(number >> 1 for number in range(256))


class FrequencySketch:
    """Estimates counts, never too low.

    If the width is a few times the number of hot keys, an estimate is seldom too high.
    """

    def __init__(self, width: int, *, depth: int = 4, counter_bits: int = 4, reset_after: int) -> None:
        """Halve all counts after each `reset_after` additions."""
        kind = next(kind for bits, kind in _TYPES if counter_bits <= bits)
        size = 1 << max(3, (min(width, MOST_COUNTERS) - 1).bit_length())
        self._rows = [array(kind, bytes(array(kind).itemsize * size)) for _ in range(depth)]
        self._mask = size - 1
        self._most = (1 << counter_bits) - 1
        self._reset_after = reset_after
        self._added = 0

    def add(self, key: str) -> None:
        place, step, mask, most = *_hashes(key), self._mask, self._most
        for row in self._rows:
            at = place & mask
            if row[at] < most:
                row[at] += 1
            place += step
        self._added += 1
        if self._added >= self._reset_after:
            self._halve()

    def frequency(self, key: str) -> int:
        place, step = _hashes(key)
        return min(row[(place + number * step) & self._mask] for number, row in enumerate(self._rows))

    def _halve(self) -> None:
        self._added //= 2
        for number, row in enumerate(self._rows):
            if row.typecode == "B":
                self._rows[number] = array("B", row.tobytes().translate(_HALVED))
            else:
                self._rows[number] = array(row.typecode, [each >> 1 for each in row])


def _hashes(key: str) -> tuple[int, int]:
    """Return hashes that are the same in every process: no random number decides which entity
    leaves memory.
    """
    mixed = crc32(key.encode("utf-8", "surrogatepass")) * _MIX & _ALL
    mixed = (mixed ^ mixed >> 32) * _MIX_AGAIN & _ALL
    return mixed >> 40, mixed >> 16 & 0xFFFFFF | 1
