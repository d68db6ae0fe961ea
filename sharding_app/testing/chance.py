"""What virtual clusters have in place of chance, so that a history can be repeated."""

from zlib import crc32

from sharding_app.protocol.ids import Incarnation


def by_name(incarnation: Incarnation, session: int, failures: int) -> float:
    """Return a number from 0 to 1 for an attempt of a lifeline to open a session."""
    return crc32(f"{incarnation}/{session}/{failures}".encode()) / 2**32
