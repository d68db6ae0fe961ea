"""Documents are sealed and opened: by the right keys, in the right places, until a subject is
erased.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sharding_app.adapters.personal.sealing import (
    Ask,
    Document,
    NoKeys,
    SubjectsErased,
    answered,
    index_key,
    opened,
    sealed,
)
from sharding_app.adapters.personal.vault import INDEX, Vault, mark_of
from sharding_app.protocol import personal
from sharding_app.protocol.personal import ERASED_TOKEN, Plain, Token

OLD, NEW = b"an old secret of the settings", b"a new secret of the settings"


@dataclasses.dataclass
class Table:
    """The rows of subjects, and what was asked."""

    rows: dict[bytes, tuple[bytes, bytes | None]] = dataclasses.field(default_factory=dict)
    "By mark: id and wrapped key."
    asked: list[str] = dataclasses.field(default_factory=list)
    before_add: Any = None

    def answer(self, ask: Ask) -> list[tuple[Any, ...]]:
        self.asked.append(ask.query)
        given = ask.params
        if ask.query == "subject_keys":
            return [row for row in self.rows.values() if row[0] in given["rows"] and row[1] is not None]
        if ask.query == "subject_find":
            return [(row, mark, key) for mark, (row, key) in self.rows.items() if mark in given["marks"]]
        if self.before_add is not None:
            hook, self.before_add = self.before_add, None
            hook()
        for row, mark, key in zip(given["rows"], given["marks"], given["keys"], strict=True):
            self.rows.setdefault(mark, (row, key))
        return []

    def seal(self, *documents: Document, vault: Vault | None = None) -> list[bytes]:
        return answered(sealed(vault or Vault([NEW]), documents), self.answer)

    def open(self, *documents: Document, vault: Vault | None = None) -> list[bytes]:
        return answered(opened(vault or Vault([NEW]), documents), self.answer)

    def erase(self, subject: str) -> None:
        mark = mark_of(answered(index_key(Vault([NEW])), self.answer), subject)
        self.rows[mark] = self.rows[mark][0], None


def of(*subjects: str, place: str = "event 1 1 a", is_state: bool = False) -> Document:
    tokens = [personal.in_json(personal.plain_token(Plain(each, b"\xa6secret"))) for each in subjects]
    return Document(b"[%s]" % b",".join(tokens), place, is_state=is_state)


def in_place(data: bytes, place: str = "event 1 1 a") -> Document:
    return Document(data, place)


def kinds(data: bytes) -> list[str]:
    found: list[str] = []

    def note(_: int, token: Token) -> Token:
        found.append(token.kind)
        return token

    personal.rewritten(data, note)
    return found


def test_all_is_opened_as_it_was_and_each_subject_has_one_key() -> None:
    table = Table()
    plain = of("ann", "bob", "ann")
    (first,) = table.seal(plain)
    (second,) = table.seal(plain)
    assert kinds(first) == ["sealed"] * 3
    assert first != second
    assert len(table.rows) == 3, "two subjects, and the index key"
    assert table.open(in_place(first), in_place(second)) == [plain.data] * 2


def test_a_document_without_personal_data_asks_nothing() -> None:
    table = Table()
    plain = Document(b'{"a": "?sealed:x"}', "event 1 1 a")
    assert table.seal(plain) == table.open(plain) == [plain.data]
    assert table.asked == []


def test_two_nodes_that_make_a_key_at_once_use_the_same_one() -> None:
    table, others = Table(), []
    answered(index_key(Vault([NEW])), table.answer)
    table.before_add = lambda: others.extend(table.seal(of("ann")))
    (ours,) = table.seal(of("ann"))
    assert len(table.rows) == 2
    assert table.open(in_place(ours), in_place(others[0])) == [of("ann").data] * 2


def test_an_erased_subject_reads_as_erased_and_gets_no_other_key() -> None:
    table = Table()
    (stored,) = table.seal(of("ann", "bob"))
    table.erase("ann")
    assert kinds(table.open(in_place(stored))[0]) == ["erased", "personal"]
    with pytest.raises(SubjectsErased) as caught:
        table.seal(of("bob"), of("bob", "ann"))
    assert caught.value.documents == [1]
    assert kinds(table.seal(of("bob", "ann", is_state=True))[0]) == ["sealed", "erased"]
    assert len(table.rows) == 3


def test_a_ciphertext_opens_in_its_own_place_alone() -> None:
    table = Table()
    (stored,) = table.seal(of("ann", "ann"))
    assert kinds(table.open(in_place(stored, "event 1 2 a"))[0]) == ["broken", "broken"]
    first, second = stored[1:-1].split(b",")
    assert kinds(table.open(in_place(b"[%s,%s]" % (second, first)))[0]) == ["broken", "broken"]


def test_a_new_secret_in_front_reads_what_the_old_one_has_wrapped() -> None:
    table = Table()
    (stored,) = table.seal(of("ann"), vault=Vault([OLD]))
    both = Vault([NEW, OLD])
    assert table.open(in_place(stored), vault=both) == [of("ann").data]
    table.seal(of("ann", "bob"), vault=both)
    assert len(table.rows) == 3, "ann is found by the same mark"


def test_without_the_secret_nothing_is_read_and_nothing_is_taken_for_erased() -> None:
    table = Table()
    (stored,) = table.seal(of("ann"), vault=Vault([OLD]))
    for vault in (Vault([NEW]), None):
        with pytest.raises(NoKeys, match="PERSONAL_KEYS"):
            answered(opened(vault, [in_place(stored)]), table.answer)
        with pytest.raises(NoKeys, match="PERSONAL_KEYS"):
            answered(sealed(vault, [of("ann")]), table.answer)


def test_a_key_that_was_put_into_another_row_does_not_unwrap() -> None:
    table = Table()
    table.seal(of("ann"))
    (stored,) = table.seal(of("bob"))
    marks = [mark for mark in table.rows if mark]
    one, two = (table.rows[mark] for mark in marks)
    table.rows[marks[0]], table.rows[marks[1]] = (one[0], two[1]), (two[0], one[1])
    with pytest.raises(NoKeys):
        table.open(in_place(stored))
    assert table.rows[b""][0] == INDEX


def test_values_of_no_subject_and_erased_ones_stay() -> None:
    table = Table()
    plain = Document(b"[%s]" % personal.in_json(ERASED_TOKEN), "event 1 1 a")
    assert table.seal(plain) == table.open(plain) == [plain.data]
    assert table.asked == []
