"""Keys for frames: a process without one can neither write a frame that is accepted nor, with
encryption, read one.
"""

from typing import Protocol


class SealBroken(Exception):
    """These bytes were not sealed with one of our keys."""


class Sealing(Protocol):
    def seal(self, data: bytes) -> bytes:
        """Return the sealed frame."""
        ...

    def open(self, sealed: bytes) -> bytes:
        """Return the frame. Raises SealBroken."""
        ...
