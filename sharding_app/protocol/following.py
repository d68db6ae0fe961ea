"""The question of a follower to an entity's home, and its answer.

A follower asks for the events after the number that it has. The home answers when there are some,
or with none when the follower's patience is over. The follower is known by nothing but its
question, so moves, failovers and lost messages concern a question alone: it is asked again.

Two lives of one entity may have the same numbers, before and after it was erased. So a question
also says when its last event was stored (`stamp`), and the home compares. So may they where the
server has lost its last events.
"""

from typing import Literal

import msgspec

MAX_EVENTS = 200
"""Most events of one answer."""
MAX_WAIT_SECONDS = 60.0
MAX_QUESTION_BYTES = 64
WAIT_SECONDS = 20.0
"""How long a follower's question waits for an event."""
MARGIN_SECONDS = 10.0
"""Seconds beside its wait after which a question has timed out."""


class Question(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Which events after a number there are."""

    after: int
    "Number of the last event that the follower has; -1: it wants no events, and knows no number."
    stamp: int = 0
    "When that event was stored, in microseconds; 0: not known, so not compared."
    limit: int = 0
    "Most events that it wants; 0: the number of the last event is enough."
    wait: float = 0.0
    "Seconds that the question may wait for an event; 0: it is answered at once."


class FollowedEvent(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A committed event as the journal has it."""

    seq: int
    name: str
    version: int
    payload: bytes
    "JSON text."
    at: int
    "The time of the server when its transaction began, in microseconds since 1970."


State = Literal["", "erased", "trimmed"]


class News(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The answer: events in order and without a gap, the first one right after `Question.after`."""

    last: int
    """Number of the last event that the follower has now, or of the last one that is committed if
    it wants none. For an in-memory entity another number after each change."""
    events: list[FollowedEvent] = []
    state: State = ""
    """"erased": the entity's history is not the one that the follower has read. "trimmed": events
    after its number are deleted; those in `events` are the first that are left."""
    stamp: int = 0
    "When the event `last` was stored, for one who wants no events; 0: not known."


_question = msgspec.msgpack.Decoder(Question)
_news = msgspec.msgpack.Decoder(News)
encode = msgspec.msgpack.Encoder().encode


def decode_question(data: bytes | memoryview) -> Question:
    """Decode a question of any process. Raises ValueError."""
    if len(data) > MAX_QUESTION_BYTES:
        raise ValueError(f"a question has {MAX_QUESTION_BYTES} bytes at most, this one has {len(data)}")
    asked = _question.decode(data)
    if not (-1 <= asked.after < 2**63 and asked.limit >= 0 and asked.wait >= 0):
        raise ValueError("a question has no negative numbers")
    return asked


def decode_news(data: bytes | memoryview) -> News:
    """Decode an answer."""
    return _news.decode(data)
