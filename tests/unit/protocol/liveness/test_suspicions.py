"""Who is told of silent processes: few, once, many names in one message."""

import msgspec
import pytest

from sharding_app.protocol.liveness.suspicions import Suspicions
from sharding_app.protocol.records import Member, MemberState


def members(number: int) -> list[Member]:
    return [
        Member(incarnation=f"n-{age:03}", name=f"n{age}", host="h", pid=age, age=age, state="up")
        for age in range(number)
    ]


def test_the_coordinator_and_the_two_oldest_others_are_told() -> None:
    suspicions = Suspicions("n-002")
    assert suspicions.add("n-007")
    assert suspicions.add("n-008")
    assert [each for each in ("n-006", "n-007", "n-008") if each in suspicions] == ["n-007", "n-008"]
    told = suspicions.to_tell("n-000", members(10))
    assert told == {each: ["n-007", "n-008"] for each in ("n-000", "n-001", "n-003")}


def test_an_incident_is_told_once() -> None:
    suspicions = Suspicions("n-002")
    suspicions.add("n-007")
    suspicions.to_tell("n-000", members(10))
    assert not suspicions.add("n-007")
    assert suspicions.to_tell("n-000", members(10)) == {}
    suspicions.over("n-007")
    assert suspicions.add("n-007")
    assert suspicions.to_tell("n-000", members(10)) != {}


def test_no_others_are_told_in_place_of_those_that_have_gone_since() -> None:
    suspicions = Suspicions("n-002")
    suspicions.add("n-007")
    assert set(suspicions.to_tell("n-000", members(10))) == {"n-000", "n-001", "n-003"}
    left = [each for each in members(10) if each.incarnation not in ("n-001", "n-003")]
    assert suspicions.to_tell("n-000", left) == {}


def test_a_coordinator_is_not_told_of_itself_and_the_next_one_is() -> None:
    suspicions = Suspicions("p-me")
    suspicions.add("n-000")
    assert suspicions.to_tell("n-000", members(10)) == {"n-001": ["n-000"], "n-002": ["n-000"]}
    assert suspicions.to_tell("n-004", members(10)) == {"n-004": ["n-000"]}


def test_the_coordinator_alone_is_told_while_no_members_are_known() -> None:
    suspicions = Suspicions("p-me")
    suspicions.add("n-005")
    assert suspicions.to_tell("n-000", []) == {"n-000": ["n-005"]}
    assert suspicions.to_tell("n-000", members(10)) == {"n-001": ["n-005"], "n-002": ["n-005"]}


def test_who_is_suspected_is_told_nothing() -> None:
    suspicions = Suspicions("p-me")
    for each in members(10):
        suspicions.add(each.incarnation)
    assert suspicions.to_tell("n-000", members(10)) == {}


@pytest.mark.parametrize("state", ["joining", "leaving"])
def test_a_member_that_comes_or_goes_is_told_nothing(state: MemberState) -> None:
    oldest, *others = members(10)
    suspicions = Suspicions("p-me")
    suspicions.add("n-007")
    told = suspicions.to_tell(None, [msgspec.structs.replace(oldest, state=state), *others])
    assert told == {"n-001": ["n-007"], "n-002": ["n-007"]}
