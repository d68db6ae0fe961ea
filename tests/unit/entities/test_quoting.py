"""What users' exceptions and values say is repeated only where that was decided: class names,
fields and places always are.
"""

from __future__ import annotations

import enum
import logging
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest
from django.test import override_settings

from sharding_app import (
    EventSourced,
    NotSerializable,
    Rejected,
    UnreadableEvent,
    applies,
    command,
    event,
    redaction,
)
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.registry import registry
from sharding_app.errors import EntityFailed, UnreadableState, to_wire
from sharding_app.runtime.base.config import NodeConfig
from sharding_app.settings.schema import Settings
from sharding_app.testing import MemoryCluster

SECRET = "4111-1111-secret"


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Checked:
    card: str

    def __post_init__(self) -> None:
        if self.card:
            raise ValueError(f"no such card: {self.card}")


with registry.isolated():

    @event
    class Painted:
        colour: Colour
        cards: list[Checked]

    @event
    class Broken:
        card: str

    class Wall(EventSourced, name="tests.Wall"):
        note: str

        def __init__(self) -> None:
            self.note = ""

        @command
        def paint(self, colour: Colour, cards: list[Checked]) -> None: ...

        @command
        def lose(self, card: str) -> None:
            self.persist(Broken(""))
            try:
                raise KeyError(card)
            except KeyError as error:
                raise LookupError(f"nobody has {card}") from error

        @command
        def refuse(self, card: str) -> None:
            raise Rejected(f"not with {card}")

        @command
        def answer(self, card: str) -> int:
            return card  # type: ignore[return-value]

        @command
        def keep(self, card: Any) -> None:
            self.note = card

        @applies(Painted)
        def on_painted(self, happened: Painted) -> None: ...

        @applies(Broken)
        def on_broken(self, happened: Broken) -> None:
            if happened.card:
                raise OSError(f"no file {happened.card}")


WALL = cast(EntityType, Wall._sharding_type)


@pytest.fixture
def discreet() -> Iterator[None]:
    with override_settings(SHARDING={"QUOTE_ERRORS": False}):
        yield


def test_who_decides() -> None:
    assert redaction.may_quote(), "in tests, unless they say otherwise"
    for said in (True, False):
        with override_settings(SHARDING={"QUOTE_ERRORS": said}, DEBUG=not said):
            assert redaction.may_quote() is said
    settings = Settings()
    assert settings.quote_errors is None
    assert settings.quotes_errors(otherwise=True)
    assert not settings.quotes_errors(otherwise=False)


def test_a_failure_is_told_by_class() -> None:
    error = LookupError(SECRET)
    assert str(WALL.failed("w", "lose", error)) == f"tests.Wall 'w': lose raised LookupError: {SECRET}"
    with override_settings(SHARDING={"QUOTE_ERRORS": False}):
        assert str(WALL.failed("w", "lose", error)) == "tests.Wall 'w': lose raised LookupError"
        ours = NotSerializable("tests.Painted: field 'x' cannot be stored")
        assert str(WALL.failed("w", "lose", ours)).endswith(
            "raised NotSerializable: tests.Painted: field 'x' cannot be stored"
        )
        assert to_wire(error).message == "LookupError"
        assert "LookupError" in str(WALL.unrecoverable("w", error))
        assert SECRET not in str(WALL.unrecoverable("w", error))


def test_what_cannot_be_read_is_told_by_place(discreet: None) -> None:
    codec = WALL.event_codec
    assert codec is not None
    said = []
    for document in ({"colour": SECRET, "cards": []}, {"colour": "red", "cards": [{"card": SECRET}]}):
        with pytest.raises(UnreadableEvent) as unreadable:
            codec.decode("Painted", 1, msgspec.json.encode(document))
        said.append(str(unreadable.value).partition("cannot be read: ")[2])
    assert said == ["Invalid enum value - at `$.colour`", "ValueError - at `$.cards[0]`"]
    with pytest.raises(UnreadableEvent, match=r"applying 'Broken' of version 1 raised OSError$"):
        codec.replay(Wall(), [(1, "Broken", 1, msgspec.json.encode({"card": SECRET}))])
    with pytest.raises(UnreadableState, match=r"Expected `str`, got `array` - at `\$.note`"):
        WALL.load_state(Wall(), msgspec.json.encode({"note": [SECRET]}))
    assert redaction.told_reading(msgspec.ValidationError(f"Object contains unknown field `{SECRET}`")) == (
        "Object contains unknown field"
    )


def test_a_log_gets_the_traceback_without_the_texts(discreet: None) -> None:
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise LookupError(SECRET) from error
    except LookupError as error:
        caught = error
    text = "".join(traceback.format_exception(redaction.traceable(caught)))
    assert SECRET not in text
    assert "KeyError" in text
    assert "LookupError (SHARDING['QUOTE_ERRORS'] shows its text)" in text
    assert "raise LookupError(SECRET) from error" in text, "where it was raised"
    assert "direct cause" in text
    with override_settings(SHARDING={"QUOTE_ERRORS": True}):
        assert redaction.traceable(caught) is caught


@pytest.mark.asyncio
async def test_no_command_makes_a_node_repeat_them(discreet: None, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "sharding")
    said: list[str] = []
    async with MemoryCluster([WALL], config=NodeConfig(passivate_after_seconds=0)) as cluster:
        with cluster.in_use():
            ref = Wall.ref("w")
            with pytest.raises(EntityFailed, match=r"^tests\.Wall 'w': lose raised LookupError$"):
                await ref.lose(SECRET)
            for call in (ref.answer(SECRET), ref.keep({1, SECRET})):
                with pytest.raises((EntityFailed, NotSerializable)) as failed:
                    await call
                said.append(str(failed.value))
            with pytest.raises(Rejected, match=f"^not with {SECRET}$"):
                await ref.refuse(SECRET)
    assert "tests.Wall.lose raised LookupError" in caplog.text
    assert SECRET not in "\n".join([caplog.text, *said])
    assert "returned str, which its annotation does not allow: Expected `int`, got `str`" in said[0]
