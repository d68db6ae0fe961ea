"""`Personal` values: what is typed, shown, written and read."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest

from sharding_app import (
    EventSourced,
    NotSerializable,
    Personal,
    UnreadableEvent,
    WrongContext,
    applies,
    command,
    event,
    upcasts,
)
from sharding_app.entities.codecs import values
from sharding_app.entities.personal import holds_personal
from sharding_app.protocol import personal
from sharding_app.testing import given


@event
class Moved:
    to: Personal[str]


@event(version=2)
class Born:
    day: Personal[dt.date]


@upcasts(Born, from_version=1)
def with_subject(fields: dict[str, Any]) -> dict[str, Any]:
    born = fields["born"]
    return {"day": born if isinstance(born, Personal) else Personal(born, fields["person"])}


class Resident(EventSourced, name="personal.Resident"):
    homes: list[Personal[str]]
    day: Personal[dt.date] | None

    def __init__(self) -> None:
        self.homes = []
        self.day = None

    @command
    def move(self, to: Personal[str]) -> Personal[str]:
        self.persist(Moved(to))
        return to

    @applies(Moved)
    def on_moved(self, happened: Moved) -> None:
        self.homes.append(happened.to)

    @applies(Born)
    def on_born(self, happened: Born) -> None:
        self.day = happened.day


TYPE: Any = Resident._sharding_type


def test_a_value_is_never_in_its_text() -> None:
    held = Personal("Ann Smith", "ann")
    assert (held.value, held.subject, held.is_erased, held.or_else("?")) == (
        "Ann Smith",
        "ann",
        False,
        "Ann Smith",
    )
    assert "Ann" not in f"{held} {held!r}"
    gone: Personal[str] = Personal.erased()
    assert (gone.value, gone.subject, gone.is_erased, gone.or_else("?")) == (None, "", True, "?")
    assert Personal("a", 7) == Personal("a", "7") != Personal("a", 8)
    assert len({held, Personal("Ann Smith", "ann"), gone}) == 2


def test_it_travels_and_is_recovered_in_every_place() -> None:
    handler = TYPE.commands["move"]
    (read,) = handler.decode(handler.encode((Personal("Elm 5", "ann"),), {}))
    assert read == Personal("Elm 5", "ann")
    resident = TYPE.new("r")
    rows = [
        (1, *TYPE.event_codec.encode(Moved(read))),
        (2, *TYPE.event_codec.encode(Moved(Personal.erased()))),
    ]
    TYPE.replay(resident, rows)
    again = TYPE.new("r")
    TYPE.load_state(again, TYPE.dump_state(resident))
    assert again.homes == [read, Personal.erased()]
    given(Moved(Personal.erased())).when(Resident.move, read).then(
        events=[Moved(read)], reply=read, state={"homes": [Personal.erased(), read], "day": None}
    )


def test_a_digest_of_arguments_tells_nothing_of_a_personal_value() -> None:
    handler = TYPE.commands["move"]
    digests = {handler.digest(handler.encode((Personal(text, "ann"),), {})) for text in ("Elm 5", "Elm 6")}
    assert len(digests) == 1


def test_a_record_that_is_older_than_the_annotation_stays_readable_and_has_no_subject() -> None:
    old = TYPE.event_codec.decode("Moved", 1, b'{"to": "Elm 5"}')
    assert (old.to.value, old.to.subject) == ("Elm 5", "")
    assert TYPE.event_codec.encode(old)[2] == b'{"to":"Elm 5"}', "as it was"
    born = TYPE.event_codec.decode("Born", 1, b'{"born": "1970-01-02", "person": "ann"}')
    assert (born.day.value, born.day.subject) == (dt.date(1970, 1, 2), "ann")


def test_an_upcaster_gets_personal_values_as_such() -> None:
    token = personal.in_json(personal.plain_token(personal.Plain("ann", values.pack("1970-01-02"))))
    born = TYPE.event_codec.decode("Born", 1, b'{"born": %s, "person": "x"}' % token)
    assert (born.day.value, born.day.subject) == (dt.date(1970, 1, 2), "ann")


def test_a_value_of_another_type_is_refused_and_a_changed_ciphertext_is_not_read() -> None:
    wrong: Any = 5
    with pytest.raises(NotSerializable, match="event Moved: Expected `str`"):
        TYPE.event_codec.encode(Moved(Personal(wrong, "ann")))
    with pytest.raises(UnreadableEvent):
        TYPE.event_codec.decode("Moved", 1, b'{"to": %s}' % personal.in_json(personal.Token("broken")))


def test_a_value_that_was_not_opened_does_not_read_as_erased() -> None:
    sealed = TYPE.event_codec.decode(
        "Moved", 1, b'{"to": %s}' % personal.in_json(personal.Token("sealed", b"x"))
    )
    assert not sealed.to.is_erased
    with pytest.raises(WrongContext):
        sealed.to.value  # noqa: B018
    assert b"sealed" in TYPE.event_codec.encode(sealed)[2]


def test_no_text_of_a_user_is_taken_for_a_token() -> None:
    evil = personal.in_json(personal.Token("sealed", b"x")).decode()
    for text in (evil, evil.strip('"'), "?sealed:eA", "\\u003fsealed:eA"):
        document = values.json_text({"text": text, text: 1})
        assert personal.rewritten(document, lambda *_: pytest.fail("taken for a token")) == document
        packed = values.pack({"text": text, "bytes": b"?sharding:sealed:x"})
        assert personal.repacked(packed, lambda *_: pytest.fail("taken for a token")) == packed


def test_all_but_tokens_is_left_as_it_is() -> None:
    token = personal.plain_token(personal.Plain("ann", b"\xa1x"))
    document = b'{"n": 123456789012345678901234567890, "x": 1.10, "p": %s }' % personal.in_json(token)
    assert personal.rewritten(document, lambda _, each: each) == document
    stamp = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)
    rest = {"at": stamp, 3: [b"b", 1.5, None], "other": msgspec.msgpack.Ext(7, b"z")}
    packed = values.pack({**rest, "p": personal.in_msgpack(token)})
    changed = personal.repacked(packed, lambda _, each: personal.ERASED_TOKEN)
    found = msgspec.msgpack.decode(changed)
    assert personal.token_of(found.pop("p")) == personal.ERASED_TOKEN
    assert found == msgspec.msgpack.decode(values.pack(rest))


def test_types_that_mention_it_are_known() -> None:
    assert holds_personal(dict[str, list[Personal[int] | None]])
    assert holds_personal(Moved)
    assert not holds_personal(dict[str, list[int]])
