"""What a person is shown of a stored document, and what of others."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sharding_app.adapters.personal.revealing import Revealing
from sharding_app.adapters.personal.sealing import Document, answered, keys_of
from sharding_app.adapters.personal.vault import KeyUnreadable, Vault
from sharding_app.protocol.personal import ERASED_TOKEN, Plain, Token, in_json, in_msgpack, plain_token
from tests.unit.adapters.personal.test_sealing import NEW, OLD, Table

pack = msgspec.msgpack.encode


def token(value: object, subject: str = "ann") -> Token:
    return plain_token(Plain(subject, pack(value)))


def revealed(document: Document, *, subject: str = "ann", own: bool = False) -> tuple[Any, int]:
    """Seal a document, and show it to a person."""
    table = Table()
    (sealed,) = table.seal(document)
    keys = answered(keys_of(Vault([NEW]), [subject], make=False), table.answer)
    revealing = Revealing(Vault([NEW]), keys.get(subject))
    shown = revealing.document(document._replace(data=sealed), own=own)
    return json.loads(shown), revealing.values


def in_list(*tokens: Token) -> Document:
    return Document(b"[" + b",".join(map(in_json, tokens)) + b"]", "event 1 1 lamp")


def test_values_of_the_person_are_shown_in_json_and_in_messagepack() -> None:
    values = ["Ann \u2603", 7, None, {"street": "Main", "numbers": [1, 2]}]
    assert revealed(in_list(*map(token, values))) == (values, 4)
    packed = pack({"names": [in_msgpack(token(each)) for each in values], "other": b"\x00"})
    shown, number = revealed(Document(packed, "reply 1 1 lamp", is_packed=True))
    assert (shown, number) == ({"names": values, "other": "AA=="}, 4)


def test_marks_stand_for_all_other_values() -> None:
    document = in_list(token("Bob", "bob"), token("Ann"), ERASED_TOKEN, Token("broken"))
    assert revealed(document) == (["(another person)", "Ann", "(erased)", "(unreadable)"], 1)
    assert revealed(document, subject="eve")[0][:2] == ["(another person)", "(another person)"]


@pytest.mark.parametrize(("own", "shown"), [(True, "old"), (False, "(no known person)")])
def test_a_value_without_a_subject_is_shown_in_the_persons_own_entity_alone(own: bool, shown: str) -> None:
    assert revealed(in_list(token("old", "")), own=own) == ([shown], int(own))


def test_a_value_that_was_copied_from_another_place_is_not_shown() -> None:
    table = Table()
    (sealed,) = table.seal(in_list(token("Ann")))
    keys = answered(keys_of(Vault([NEW]), ["ann"], make=False), table.answer)
    revealing = Revealing(Vault([NEW]), keys["ann"])
    assert json.loads(revealing.document(Document(sealed, "event 1 2 lamp"), own=False)) == ["(unreadable)"]
    assert revealing.values == 0


def test_a_key_that_is_wrapped_anew_is_the_same_under_the_first_secret() -> None:
    row = bytes(range(16))
    old = Vault([OLD]).new_key(row)
    new = Vault([NEW, OLD]).rewrapped(old, row)
    assert Vault([NEW]).unwrap(new, row) == Vault([OLD]).unwrap(old, row)
    with pytest.raises(KeyUnreadable):
        Vault([OLD]).unwrap(new, row)
    with pytest.raises(KeyUnreadable):
        Vault([NEW]).rewrapped(old, row)
