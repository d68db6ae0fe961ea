"""`receive` as a handler: what the message API runs in the place of a declared command."""

from typing import Any

import msgspec

from sharding_app.core.words import MESSAGE
from sharding_app.errors import BadCall
from sharding_app.model.extractor import Passivate
from sharding_app.model.message import decode_message, encode_reply
from sharding_app.model.types import EntityType
from sharding_app.quoting import told_reading

_decoder = msgspec.msgpack.Decoder(tuple[str, bytes])


class MessageHandler:
    """Stands where a `model.handler.Handler` does; every type that has its own `receive` gets one."""

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
            raise BadCall(f"not a message: {told_reading(error)}") from error
        return (decode_message(name, data),)

    @staticmethod
    def digest(raw: bytes) -> str:
        """Messages carry no id of the caller's: there is nothing to tell apart."""
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
