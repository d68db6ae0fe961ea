"""`Failure`: what a sender learns of a durable message that has failed (``on_failure``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sharding_app.entities.codecs.values import ERRORS
from sharding_app.errors import Rejected, ShardingError

_read = msgspec.msgpack.Decoder().decode
CUT = " [...]"
"""The end of a text that was shortened."""


class Failure(msgspec.Struct, frozen=True):
    """A durable message that its target has refused, or has failed to handle too often."""

    type_name: str
    "Of the target."
    entity_id: str
    command: str
    arguments: dict[str, Any]
    "By name, as plain data. Defaults at the end that the sender did not give are missing."
    kind: str
    'Of the last error: "rejected" if the target has refused the message.'
    code: str
    "The code of that error; of a `Rejected` the one that the target has given it."
    message: str

    @property
    def is_rejected(self) -> bool:
        """Whether the target has refused the message, rather than failed."""
        return self.kind == Rejected.kind


def shortened(failure: Failure, over: int) -> Failure:
    """Return the failure with a text that has that many bytes less."""
    text = failure.message.encode()
    kept = text[: max(0, len(text) - over - len(CUT.encode()))].decode(errors="ignore")
    return msgspec.structs.replace(failure, message=kept + CUT)


def failure_of(
    type_name: str, entity_id: str, command: str, names: Sequence[str], args: bytes, error: ShardingError
) -> Failure:
    """Return the failure of a message whose arguments, in MessagePack, have these names."""
    try:
        values = _read(args)
    except ERRORS:
        values = ()
    given = dict(zip(names, values, strict=False)) if isinstance(values, list) else {}
    return Failure(type_name, entity_id, command, given, error.kind, error.code, error.message)
