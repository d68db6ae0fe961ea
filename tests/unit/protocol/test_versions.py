"""Which releases understand each other, and who has to wait outside."""

from typing import Any

import msgspec
import pytest

from sharding_app.protocol.messages import OperatorReply, ReplyCode
from sharding_app.protocol.records import Member
from sharding_app.protocol.versions import Wire, kept_out, strangers
from tests.unit.protocol.coordinator.coordination import node

OLD, NEW, NEWEST = (1, 2, 1), (1, 3, 2), (3, 3, 3)


def member(name: str, age: int, wire: tuple[int, int, int], **changes: Any) -> Member:
    return node(name, age, wire=wire, **changes)


@pytest.mark.parametrize(
    ("one", "other", "understood"),
    [(OLD, OLD, True), (OLD, NEW, True), (NEW, NEWEST, False), (OLD, NEWEST, False), (NEWEST, NEWEST, True)],
)
def test_both_have_to_read_what_the_other_writes(
    one: tuple[int, int, int], other: tuple[int, int, int], understood: bool
) -> None:
    assert Wire(*one).understands(Wire(*other)) is understood
    assert Wire(*other).understands(Wire(*one)) is understood


def test_a_range_is_read_with_both_of_its_ends() -> None:
    assert [Wire(2, 3, 2).reads(version) for version in (1, 2, 3, 4)] == [False, True, True, False]
    assert str(Wire(2, 3, 2)) == "writes wire version 2 and reads 2 to 3"
    assert str(Wire(3, 3, 3)) == "writes wire version 3 and reads 3"


def test_only_members_that_live_and_have_joined_are_strangers() -> None:
    wire = Wire(*NEWEST)
    assert strangers(wire, [member("a", 1, NEWEST)]) == ""
    assert "node node-a writes wire version 1 and reads 1 to 2" in strangers(wire, [member("a", 1, OLD)])
    assert strangers(wire, [member("a", 1, OLD, locks=0)]) == "", "it is dead"
    assert strangers(wire, [member("a", 1, OLD, state="joining")]) == "", "it is none yet"
    assert strangers(wire, [member("a", 1, OLD, locks=1)]) != ""


def test_one_that_joins_is_kept_out_by_those_that_were_there_before() -> None:
    old, new = member("old", 1, OLD), member("new", 2, NEWEST, state="joining")
    assert list(kept_out([old, new])) == ["new"]
    assert kept_out([old, member("new", 2, NEW, state="joining")]) == {}
    assert kept_out([old, member("new", 2, NEWEST)]) == {}, "it has joined"
    assert kept_out([member("old", 1, OLD, locks=0), new]) == {}


def test_of_two_that_join_the_older_one_counts() -> None:
    joining = {"state": "joining"}
    first, second = member("first", 1, OLD, **joining), member("second", 2, NEWEST, **joining)
    assert list(kept_out([first, second])) == ["second"]
    assert list(kept_out([second, first])) == ["second"]


def test_the_code_of_a_newer_release_reads_as_a_refusal() -> None:
    """A frame with a code that this release does not know is not lost."""
    newer = msgspec.msgpack.encode((35, 7, "postponed", "Not today.", {}))
    found = msgspec.msgpack.decode(newer, type=OperatorReply)
    assert (found.code, found.text, found.ok) == (ReplyCode.REFUSED, "Not today.", False)
