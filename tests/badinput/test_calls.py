"""What a user may get wrong in a call: each time a typed error that says what to do, and nothing is
lost.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest

from sharding_app import (
    EntityFailed,
    InvalidCall,
    InvalidEntityId,
    NotSerializable,
    Rejected,
    Unavailable,
    WrongContext,
)
from sharding_app.entities import gateway
from sharding_app.protocol.call import Call
from tests.badinput.app.entities import Elsewhere, Ledger
from tests.support.live import Live

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture
def ledger() -> Ledger:
    """One with 10 booked."""
    sync = Ledger.ref(uuid4()).sync
    assert sync.book(10) == 10
    return sync


def intact(ledger: Ledger, total: int = 10) -> bool:
    """It shows what was booked before, and goes on from there."""
    return ledger.total() == total and ledger.book(5) == total + 5


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (True, "not bool"),
        (None, "not NoneType"),
        (1.5, "not float"),
        (b"alice", "not bytes"),
        ("", "must not be empty"),
        ("a\0b", "must not contain NUL"),
        ("\ud800", "lone surrogates"),
        ("x" * 513, "at most 512 bytes of UTF-8, not 513"),
        ("ü" * 257, "at most 512 bytes of UTF-8, not 514"),
    ],
    ids=ascii,
)
def test_a_bad_id_is_refused_where_it_is_given(bad: Any, says: str) -> None:
    with pytest.raises(InvalidEntityId, match=says):
        Ledger.ref(bad)


def test_the_longest_id_is_taken() -> None:
    assert Ledger.ref("ü" * 256).sync.book(1) == 1


@pytest.mark.parametrize(
    ("arguments", "named", "error", "says"),
    [
        (("ten",), {}, InvalidCall, r"badinput\.Ledger\.book: argument 'amount': Expected `int`, got `str`"),
        ((1.5,), {}, InvalidCall, "argument 'amount'"),
        ((), {}, InvalidCall, r"Ledger\.book\(amount\): missing a required argument: 'amount'"),
        ((1, 2), {}, InvalidCall, "too many positional arguments"),
        ((1,), {"currency": "EUR"}, InvalidCall, "unexpected keyword argument 'currency'"),
        ((10**30,), {}, NotSerializable, "an int outside of"),
        ((object(),), {}, NotSerializable, "argument 'amount' cannot be sent"),
    ],
)  # fmt: skip
def test_wrong_arguments_reach_no_entity(
    ledger: Ledger, arguments: Any, named: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        ledger.book(*arguments, **named)
    assert intact(ledger)


def test_arguments_that_fit_into_no_message_name_the_command(ledger: Ledger) -> None:
    with pytest.raises(
        NotSerializable, match=r"badinput\.Ledger\.note: the arguments have .* send less at a time"
    ) as caught:
        ledger.note(1, "x" * 2_000_000)
    assert caught.value.code == "arguments_too_large"
    assert intact(ledger)


def test_a_reply_that_is_too_large_to_keep_stores_nothing(ledger: Ledger) -> None:
    says = r"Ledger\.book_with_a_huge_reply: its reply has .* nothing of the command is stored\. Return less of it"
    with pytest.raises(NotSerializable, match=says) as caught:
        ledger.book_with_a_huge_reply(7)
    assert caught.value.code == "reply_too_large"
    assert intact(ledger)


def test_a_query_whose_reply_fits_into_no_message_says_so(ledger: Ledger) -> None:
    with pytest.raises(
        NotSerializable, match=r"the reply has .* of a message: return less of it at a time$"
    ) as caught:
        ledger.everything()
    assert caught.value.code == "reply_too_large"
    assert intact(ledger)


def test_a_reply_that_cannot_be_sent_stores_nothing(ledger: Ledger) -> None:
    with pytest.raises(NotSerializable, match=r"Ledger\.answer_with_an_object: its result cannot be sent"):
        ledger.answer_with_an_object(7)
    assert intact(ledger)


@pytest.mark.parametrize(
    ("command", "value", "says"),
    [
        ("measure", "nan", r"event Measured: field 'value' cannot be stored: nan is not a finite number"),
        ("measure", "inf", "inf is not a finite number"),
        ("note", "NUL", "event Noted: field 'text' cannot be stored: it contains NUL"),
        ("note", "LONE", "it contains a lone surrogate"),
    ],
)
def test_an_event_that_cannot_be_stored_takes_back_its_command_alone(
    ledger: Ledger, command: str, value: str, says: str
) -> None:
    with pytest.raises(NotSerializable, match=says):
        getattr(ledger, command)(7, value)
    assert intact(ledger)


def test_of_commands_that_are_stored_together_only_the_bad_one_fails() -> None:
    names = [f"{uuid4()}" for _ in range(40)]

    async def all_at_once() -> list[object]:
        calls = [
            Ledger.ref(name).measure(1, "nan" if place % 4 == 0 else "1.5")
            for place, name in enumerate(names)
        ]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    outcomes = asyncio.run(all_at_once())
    failed = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, NotSerializable)]
    assert failed == list(range(0, 40, 4))
    assert [outcome for outcome in outcomes if outcome == 1] == [1] * 30
    assert [Ledger.ref(name).sync.total() for name in names] == [
        0 if place in failed else 1 for place in range(40)
    ]


def test_a_handler_that_raises_names_itself_and_stores_nothing(ledger: Ledger) -> None:
    with pytest.raises(
        EntityFailed, match=r"badinput\.Ledger '.+': fail raised ZeroDivisionError: a mistake of the user's"
    ):
        ledger.fail(7)
    assert intact(ledger)


def test_a_refusal_comes_with_its_code(ledger: Ledger) -> None:
    with pytest.raises(Rejected, match="not today") as caught:
        ledger.refuse(7)
    assert caught.value.code == "closed"
    assert intact(ledger)


def test_an_unknown_command_is_told_here_with_a_hint(ledger: Ledger) -> None:
    with pytest.raises(AttributeError, match=r"Ledger has no command or query 'bok'.*'book'"):
        _ = ledger.bok  # type: ignore[attr-defined]
    assert intact(ledger)


def test_a_command_that_only_the_caller_knows_is_refused_by_the_entity(ledger: Ledger) -> None:
    with pytest.raises(InvalidCall, match=r"badinput\.Ledger has no command 'audit' \(known: book, "):
        gateway.current().ask_sync(Call("badinput.Ledger", "a", "audit", b"\x90"))
    with pytest.raises(InvalidCall, match="the arguments are not an array"):
        gateway.current().ask_sync(Call("badinput.Ledger", "a", "book", b"\xff\xff"))
    assert intact(ledger)


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(
        InvalidCall, match=r"no entity type 'shop\.Crat' is known here: is its app in INSTALLED_APPS\?"
    ):
        gateway.current().ask_sync(Call("shop.Crat", "a", "add", b"\x90"))


def test_a_type_that_no_node_may_host_says_how_to_start_one() -> None:
    with pytest.raises(
        Unavailable,
        match=r"no node hosts 'badinput\.Elsewhere': start `manage\.py sharding_node --roles nobody`",
    ):
        Elsewhere.ref("a").sync.touch()


def test_waiting_in_an_event_loop_says_what_to_write() -> None:
    async def blocking() -> int:
        return Ledger.ref("a").sync.total()

    with pytest.raises(WrongContext, match="await"):
        asyncio.run(blocking())


def test_a_timeout_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidCall, match="greater than 0"):
        Ledger.ref("a", timeout=-1).sync.total()


def test_the_journal_has_no_gap_after_all_that(client: Live) -> None:
    """Whatever went wrong before in this session: each entity's events are numbered 1..n."""
    import psycopg

    with psycopg.connect(client.database_url) as connection:
        rows = connection.execute(
            "SELECT entity, array_agg(seq ORDER BY seq), count(*) FROM sharding_event GROUP BY entity"
        ).fetchall()
    assert rows
    assert all(numbers == list(range(1, count + 1)) for _, numbers, count in rows)
