"""A process that speaks as another release would: chosen by ACCEPTANCE_RELEASE in its environment.

There is one wire so far, so its neighbours in time are made here, by the rule that
`protocol/versions.py` states. `present` has learnt to read version 2 and goes on writing 1; `next`
writes it; `former` knows of 1 alone and is too far from `next`. What each writes goes through the
real transports: the version in every frame, messages of `next` with fields at their end that no
release here knows, and those of the other two without the newest field there is.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from sharding_app.protocol.messages import ShardStopped
from sharding_app.protocol.versions import Wire

Body = list[list[object]]
SHARD_STOPPED = ShardStopped.__struct_config__.tag
logger = logging.getLogger("sharding.acceptance")


def with_fields_from_the_future(body: Body) -> Body:
    return [[*message, "from the future", {"also": [1, 2, 3]}] for message in body]


def without_the_newest_field(body: Body) -> Body:
    return [message[:4] if message[0] == SHARD_STOPPED else message for message in body]


RELEASES: dict[str, tuple[Wire, Callable[[Body], Body]]] = {
    "former": (Wire(1, 1, 1), without_the_newest_field),
    "present": (Wire(1, 2, 1), without_the_newest_field),
    "next": (Wire(1, 2, 2), with_fields_from_the_future),
}

BODY = 8
"""Its place in a frame."""


def become(name: str) -> None:
    """Speak as that release from now on."""
    from sharding_app.adapters.channels.transport import ChannelsTransport
    from sharding_app.adapters.direct.transport import DirectTransport
    from sharding_app.settings.schema import Settings

    wire, translate = RELEASES[name]
    node = Settings.node
    said: set[int] = set()

    def with_its_wire(self: Settings, **options: Any) -> Any:
        return dataclasses.replace(node(self, **options), wire=wire)

    def translating(send: Callable[[Any, str, bytes], Awaitable[None]]) -> Any:
        async def in_its_words(self: object, channel: str, data: bytes) -> None:
            frame = msgspec.msgpack.decode(data)
            frame[BODY] = translate(frame[BODY])
            if frame[0] not in said:
                said.add(frame[0])
                logger.info("release %s sends frames of wire version %d", name, frame[0])
            await send(self, channel, msgspec.msgpack.encode(frame))

        return in_its_words

    setattr(Settings, "node", with_its_wire)  # noqa: B010  (mypy allows no assignment to a method)
    # A frame that cannot go directly is handed to the other one as it was: each translates it once.
    for transport in (ChannelsTransport, DirectTransport):
        setattr(transport, "send", translating(transport.send))  # noqa: B010
