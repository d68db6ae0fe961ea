"""A text that prints as stars."""

from __future__ import annotations


class Secret(str):
    """A text that is itself for all who use it, and stars for all who print what holds it
    (`diffsettings`, debug pages).
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """Return stars."""
        return "'********'"
