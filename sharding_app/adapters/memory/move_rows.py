"""A shard's move to another journal, as a row."""

from typing import Literal, NamedTuple

MoveStep = Literal["copying", "closed", "moved"]


class MoveRow(NamedTuple):
    source: str
    target: str
    step: MoveStep = "copying"
    closed_until: float | None = None
    "By the server's clock."
