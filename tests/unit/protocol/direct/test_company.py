"""A node that hears no other, though others are there, is alone; nothing else makes it so."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.direct.company import OLDEST_WAITS, Company, Others, others_of
from sharding_app.protocol.records import Member

PATIENCE = 5.0
NONE, OLDER, YOUNGER = Others(), Others(("a",), older=True), Others(("a",))


def looks(company: Company, others: Others, first: float, last: float) -> list[bool]:
    return [company.is_alone(first + step, others) for step in range(int(last - first) + 1)]


def test_it_is_alone_after_its_patience_with_others_there() -> None:
    assert looks(Company(PATIENCE), OLDER, 10.0, 17.0) == [False] * 6 + [True] * 2


def test_the_oldest_waits_until_the_others_have_said_that_they_are_deaf() -> None:
    last = 10.0 + PATIENCE + OLDEST_WAITS
    assert True not in looks(Company(PATIENCE), YOUNGER, 10.0, last)
    assert looks(Company(PATIENCE), YOUNGER, 10.0, last + 1)[-1]


def test_of_two_that_do_not_reach_each_other_one_is_alone() -> None:
    """The younger one says that it is deaf; then the older one has no other that hears."""
    younger, older = Company(PATIENCE), Company(PATIENCE)
    deaf: list[str] = []
    for second in range(60):
        if younger.is_alone(second, NONE if "older" in deaf else OLDER):
            deaf.append("younger")
        if older.is_alone(second, NONE if "younger" in deaf else YOUNGER):
            deaf.append("older")
    assert set(deaf) == {"younger"}


def test_one_whose_only_peer_loses_its_locks_is_not_alone() -> None:
    company = Company(PATIENCE)
    assert True not in looks(company, OLDER, 0.0, 4.0) + looks(company, NONE, 5.0, 60.0)
    assert not company.is_alone(61.0, OLDER), "its patience begins anew with the next one"


def test_one_that_was_heard_is_company() -> None:
    company = Company(PATIENCE)
    looks(company, OLDER, 0.0, 4.0)
    company.heard()
    assert not company.is_alone(100.0, OLDER)


@given(st.lists(st.tuples(st.floats(0.01, 3.0), st.sampled_from(["none", "heard", "older", "younger"]))))
def test_it_is_never_alone_before_its_patience(said: list[tuple[float, str]]) -> None:
    company, now, since = Company(PATIENCE), 0.0, None
    for pause, each in said:
        now += pause
        if each == "heard":
            company.heard()
            since = None
            continue
        alone = company.is_alone(now, {"none": NONE, "older": OLDER, "younger": YOUNGER}[each])
        since = None if each == "none" else now if since is None else since
        needed = PATIENCE if each == "older" else PATIENCE + OLDEST_WAITS
        assert alone == (since is not None and now - since > needed)


def member(name: str, age: int, **more: Any) -> Member:
    return Member(
        incarnation=name, name=name, host="h", pid=1, age=age, **{"state": "up", "locks": 2, **more}
    )


def test_others_are_up_hold_a_lock_and_hear() -> None:
    rows = [
        member("me", 3), member("one", 5, locks=1), member("joining", 1, state="joining"),
        member("deaf", 1, deaf=True), member("frozen", 1, locks=0),
    ]  # fmt: skip
    assert others_of(rows, "me") == Others(("one",), older=False)
    assert others_of([*rows, member("two", 2)], "me") == Others(("one", "two"), older=True)
    assert others_of(rows, "new") == Others(("me", "one"), older=True)
    assert others_of(rows[:1], "me") == Others()
