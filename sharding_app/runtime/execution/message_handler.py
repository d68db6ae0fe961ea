"""`receive` as a handler: the message API runs it in the place of a declared command."""

from typing import Any

import msgspec

from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.extractors import Passivate
from sharding_app.entities.messages import decode_message, encode_reply
from sharding_app.errors import InvalidCall
from sharding_app.protocol.builtin_commands import MESSAGE
from sharding_app.redaction import told_reading

_decoder = msgspec.msgpack.Decoder(tuple[str, bytes])


class MessageHandler:
    """Takes the place of a `entities.handler.Handler`.

    Every type with a `receive` of its own gets one.
    """

    is_query = False
    thread = False
    fenced = False
    is_async = True
    name = MESSAGE

    def __init__(self, entity_type: EntityType) -> None:
        self._is_async = entity_type.receive_is_async

    def decode(self, raw: bytes) -> tuple[object]:
        try:
            name, data = _decoder.decode(raw)
        except (
            msgspec.MsgspecError,
            ValueError,
            RecursionError,
        ) as error:  # a ValueError: text that is not UTF-8
            raise InvalidCall(f"not a message: {told_reading(error)}") from error
        return (decode_message(name, data),)

    @staticmethod
    def digest(raw: bytes) -> str:
        """Return nothing: messages carry no id of the caller's."""
        return ""

    async def function(self, entity: Any, message: object) -> object:
        result = await entity.receive(message) if self._is_async else entity.receive(message)
        if isinstance(result, Passivate):
            entity.context.passivate(result.stop_message)
            return None
        return result

    @staticmethod
    def encode_result(value: object) -> bytes:
        return encode_reply(value)
