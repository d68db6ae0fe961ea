"""The audit of the accounts accepts a good journal, and finds each mistake that is planted."""

import pytest

from sharding_app.torture.audit import Left, Posting, audit
from sharding_app.torture.payments import Done, Order, What

EPOCH = 1


def row(
    account: str, seq: int, what: str, token: str, cents: int = 0, other: str = "", *, epoch: int = EPOCH,
    seconds: float = 0.0, at: float = 0.0,
) -> Posting:  # fmt: skip
    return Posting(account, seq, epoch, what, token, cents, other, seconds, at or float(seq))


def order(what: What, token: str, account: str, done: Done = "stored") -> Order:
    return Order(what=what, token=token, account=account, done=done)


ORDERS = [
    order("give", "g", "a"), order("give in vain", "v", "a", "nothing"), order("pay", "p1", "a"),
    order("pay", "p2", "a", "unknown"), order("pay", "p3", "a"), order("pay", "p4", "a", "unknown"),
    order("set_timer", "t1", "b"), order("set_timer", "t2", "b"), order("unset_timer", "t2", "b", "unknown"),
    order("set_repeating", "r", "c"),
]  # fmt: skip
A = [
    row("a", 1, "given", "g", 1000), row("a", 2, "sent", "p1", -100, "b"), row("a", 3, "sent", "p2", -200, "b"),
    row("a", 4, "confirmed", "p1"), row("a", 5, "sent", "p3", -50, "b", epoch=2), row("a", 6, "confirmed", "p2", epoch=2),
    row("a", 7, "returned", "p3", 50, "b", epoch=2),
]  # fmt: skip
B = [
    row("b", 1, "received", "p1", 100, "a"), row("b", 2, "set", "t1", seconds=2.0, at=10.0),
    row("b", 3, "received", "p2", 200, "a"), row("b", 4, "set", "t2", seconds=5.0, at=11.0),
    row("b", 5, "fired", "t1", at=12.0), row("b", 6, "unset", "t2", at=13.0),
]  # fmt: skip
C = [
    row("c", 1, "repeats", "r", seconds=1.5, at=10.0), row("c", 2, "beat", "r#1", at=11.5),
    row("c", 3, "beat", "r#2", at=13.5), row("c", 4, "beat", "r#3", at=14.5),
]  # fmt: skip


def without(rows: list[Posting], place: int) -> list[Posting]:
    """Leave one out, as if it had never been stored."""
    kept = [*rows[:place], *rows[place + 1 :]]
    return [each._replace(seq=number) for number, each in enumerate(kept, 1)]


def changed(rows: list[Posting], place: int, **values: object) -> list[Posting]:
    return [*rows[:place], rows[place]._replace(**values), *rows[place + 1 :]]  # type: ignore[arg-type]


def test_a_good_journal() -> None:
    assert audit(ORDERS, [*A, *B, *C], []) == []


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        pytest.param([*A, *without(B, 0)], "payment p1 to b is lost", id="a message is lost"),
        pytest.param(
            [*A, *B, row("b", 7, "received", "p1", 100, "a")], "p1: received 2 times", id="taken twice"
        ),
        pytest.param([*without(A, 6), *B], "payment p3 to b is lost", id="refused, and not told"),
        pytest.param(
            [*A, *B, row("b", 7, "received", "p3", 50, "a")], "has arrived, and has come back too",
            id="refused and taken",
        ),
        pytest.param([*without(A, 3), *B], "payment p1 to b is not confirmed", id="no reply"),
        pytest.param(
            [*A, *B, row("a", 8, "confirmed", "p3", epoch=2)], "is confirmed, and has not arrived", id="a reply of none"
        ),
        pytest.param([*A, *B, *C, row("c", 5, "received", "p9", 1, "a")], "never sent", id="delivered before the commit"),
        pytest.param([*A, *changed(B, 0, account="d", seq=1), *B[1:]], "has arrived as", id="to another account"),
        pytest.param([*A, *changed(B, 0, cents=101)], "has arrived as", id="another sum"),
        pytest.param(
            [*A, *changed(changed(B, 0, token="p2", cents=200), 2, token="p1", cents=100)],
            "payment p1 of a came after p2, which was sent later", id="out of order",
        ),
        pytest.param([*changed(A, 0, cents=999), *B], None, id="what was given is what there is"),
        pytest.param([*changed(A, 6, cents=60), *B], "1000 cents were given, and 1010 are there", id="money is made"),
        pytest.param([*A, *without(B, 4)], "timer t1 has never fired", id="a timer is lost"),
        pytest.param([*A, *changed(B, 4, at=11.9)], "timer t1 has fired 0.100 s before its time", id="too early"),
        pytest.param([*A, *B, row("b", 7, "fired", "t1", at=14.0)], "t1: fired 2 times", id="fired twice"),
        pytest.param(
            [*A, *B, row("b", 7, "fired", "t2", at=17.0)], "timer t2 has fired after it was cancelled", id="cancel lost"
        ),
        pytest.param([*A, *without(B, 5)], "timer t2 has never fired", id="cancelled by none"),
        pytest.param(
            [*A, *B, row("b", 7, "fired", "t9")], "timer t9 has fired, and was never set", id="a timer of none"
        ),
        pytest.param([*without(A, 0), *B], "give g was stored, and took no effect", id="from outside, lost"),
        pytest.param(
            [*A, *B, row("a", 8, "given", "v", 5, epoch=2)], "give in vain v was never stored, and took effect",
            id="rolled back",
        ),
        pytest.param(
            [*A, *B, *without(C, 3)], "repeating timer r has not fired for the time 3", id="a time is lost"
        ),
        pytest.param(
            [*A, *B, *changed(C, 2, at=12.9)], "repeating timer r has fired 0.100 s before its time 2", id="a time too early"
        ),
        pytest.param(
            [*A, *B, *C, row("c", 5, "beat", "r#4", at=20.0)], "c: r#4 has fired, and was ended or never set", id="no end"
        ),
        pytest.param([*A, *B, *C, row("c", 5, "beat", "r#2", at=20.0)], "r#2: beat 2 times", id="a time taken twice"),
        pytest.param([*A, *B, row("a", 9, "sent", "p9", 0)], "a: events are numbered", id="a gap"),
        pytest.param([*A, *B, row("a", 8, "given", "x", 5)], "a: epochs decrease", id="a former home wrote"),
    ],
)  # fmt: skip
def test_a_mistake_is_found(rows: list[Posting], found: str | None) -> None:
    broken = audit(ORDERS, rows if any(each.account == "c" for each in rows) else [*rows, *C], [])
    if found is None:
        assert broken == []
    else:
        assert any(found in each for each in broken), broken


def test_what_is_left_is_told() -> None:
    left = [
        Left("a", "b", "collect", parked=True, error="entity_failed: x"),
        Left("b", "b", "fire", False, ""),
    ]
    assert audit(ORDERS, [*A, *B, *C], left) == [
        "a: collect of b is parked entity_failed: x",
        "b: fire of b waits still",
    ]
