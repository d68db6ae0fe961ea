"""Slices: the fixed division of all entities, by a hash of the id. A part of a projection is a
range of them, so an entity is in one part, and the number of parts may change.
"""

from hashlib import sha256

SLICES = 128
"""The trigger that writes changes computes slices too (`0001_fence.sql`)."""


def slice_of(entity_id: str) -> int:
    """Return the slice of an entity."""
    return sha256(entity_id.encode()).digest()[0] & (SLICES - 1)


def slices_of(part: int, parts: int) -> tuple[int, int]:
    """Return the first and the last slice of a part."""
    return -(-part * SLICES // parts), -(-(part + 1) * SLICES // parts) - 1


def part_of(slice_: int, parts: int) -> int:
    """Return the part of a slice."""
    return slice_ * parts // SLICES
