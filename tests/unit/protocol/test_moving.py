"""The order in which a move asks for its steps, without any database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sharding_app.protocol import moving
from sharding_app.protocol.moving import (
    Answer,
    Applied,
    CannotMove,
    Close,
    InUse,
    Limits,
    Move,
    Open,
    PutRest,
    Renew,
    Stash,
    Step,
    Switch,
    Unstash,
    Wanted,
)

LIMITS = Limits(homes=5.0, projections=2.0, closed=4.0, look=0.5, rest=3.0, in_use=7.0)
RAISED = {1: 8, 2: 9, 3: 4}
ANSWERS: Mapping[str, Callable[[Any], Any]] = {
    "Elsewhere": lambda _: [],
    "Prepare": lambda _: True,
    "Watch": lambda _: False,
    "Copy": lambda _: None,
    "Apply": lambda _: Applied(0, is_full=False),
    "Unpassed": lambda _: "",
    "Homes": lambda _: {},
    "Renew": lambda each: list(each.shards),
    "Fence": lambda each: {shard: RAISED[shard] for shard in each.shards},
    "Stand": lambda _: True,
    "Stash": lambda each: len(each.raised),
    "Switch": lambda each: len(each.raised),
}


class Shell:
    """Answers each request as if all went well, unless a test has given it another answer."""

    def __init__(self, source: str = "", target: str = "journal_b", **answers: Callable[[Any], Any]) -> None:
        self.now = 100.0
        self.asked: list[Any] = []
        self._answers: dict[str, Callable[[Any], Any]] = {**ANSWERS, **answers}
        self._move = Move(Wanted("shop.Cart", source, target, [3, 1, 2]), LIMITS)

    def run(self, at_once: int = 2) -> list[str]:
        self._carry_out(self._move.run(at_once))
        return self.names()

    def take_back(self, *, target_is_gone: bool = False) -> list[str]:
        self._carry_out(self._move.take_back(target_is_gone=target_is_gone))
        return self.names()

    def names(self) -> list[str]:
        return [type(each).__name__ for each in self.asked]

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.asked if isinstance(each, kind)]

    def _answer(self, request: Any) -> Any:
        made = self._answers.get(type(request).__name__)
        return None if made is None else made(request)

    def _carry_out(self, course: moving.Course) -> None:
        request = next(course)
        while True:
            value = None
            if not isinstance(request, Step):
                self.asked.append(request)
                self.now += getattr(request, "seconds", 0.0) if isinstance(request, moving.Wait) else 0.0
                try:
                    value = self._answer(request)
                except (OSError, CannotMove) as error:
                    request = course.throw(error)
                    continue
            try:
                request = course.send(Answer(self.now, value))
            except StopIteration:
                return


def test_shards_of_a_further_journal_pass_some_at_a_time() -> None:
    shell = Shell("journal_a", "journal_b")
    begun = [
        *("Elsewhere", "Begin", "Open", "Unstash", "Prepare", "Watch", "ClearCopy", "Copy", "Copy", "Apply"),
        "Compare",
    ]
    passed = [
        *("Apply", "Unpassed", "Close", "Homes", "Fence", "Stand", "Stand", "Apply", "Unpassed"),
        *("PutRest", "Stash", "PutRest", "Switch", "Leave"),
    ]
    assert shell.run() == [*begun, *passed, *passed, "Unwatch"]
    assert [list(each.raised) for each in shell.of(Switch)] == [[1, 2], [3]]
    assert [each.stashed for each in shell.of(PutRest)] == [False, True] * 2


def test_shards_of_the_clusters_own_journal_take_their_messages_along_in_the_switch() -> None:
    names = Shell("", "journal_b").run()
    assert not {"Stash", "Unstash"} & set(names)
    assert names.count("Stand") == names.count("Switch") == 2


def test_a_former_calls_copy_is_gone_on_with() -> None:
    assert "ClearCopy" not in Shell(Watch=lambda _: True).run()


def test_a_move_that_fails_puts_messages_back_and_opens_its_shards() -> None:
    def fails(_: Any) -> None:
        raise OSError("the connection is lost")

    shell = Shell("journal_a", "", Switch=fails)
    with pytest.raises(OSError, match="is lost"):
        shell.run()
    assert shell.asked[-2:] == [Unstash([1, 2], at_last=True), Open([1, 2], at_last=True)]


def test_nothing_is_switched_that_was_opened_meanwhile() -> None:
    for answers in (
        {"Fence": lambda _: {1: 8}}, {"Renew": lambda _: [1], "Homes": lambda _: {1: "n"}}, {"Stash": lambda _: 1},
    ):  # fmt: skip
        shell = Shell("journal_a", "", **answers)
        with pytest.raises(CannotMove, match="were opened again"):
            shell.run()
        assert not shell.of(Switch)


def test_shards_are_kept_closed_while_their_homes_end() -> None:
    shell = Shell("journal_a", "", Homes=lambda _: {2: "node-1"})
    with pytest.raises(CannotMove, match="Shards 2 still have a home after 5 s"):
        shell.run()
    assert len(shell.of(Renew)) == 5, "a quarter of the time is the most between two"
    assert not shell.of(Stash)


def test_shards_wait_open_for_projections_that_are_far_behind() -> None:
    shell = Shell(Unpassed=lambda _: "it fills")
    with pytest.raises(CannotMove, match="it fills"):
        shell.run()
    assert not shell.of(Close)


def test_shards_try_again_where_a_table_is_in_use() -> None:
    """A vacuum takes its time; they are open meanwhile."""
    answers = iter([InUse("by a vacuum")] * 2)

    def switched(request: Switch) -> int:
        for error in answers:
            raise error
        return len(request.raised)

    shell = Shell("journal_a", "", Switch=switched)
    names = shell.run(at_once=3)
    assert names.count("Close") == names.count("Switch") == 3
    assert [each.seconds for each in shell.of(moving.Wait)] == [7.0] * 2
    waits = [place for place, name in enumerate(names) if name == "Wait"]
    assert all(names[place - 1] == "Open" for place in waits)

    def in_use(_: Any) -> None:
        raise InUse("by a vacuum")

    shell = Shell("journal_a", "", Switch=in_use)
    with pytest.raises(InUse):
        shell.run()
    assert shell.names()[-1] == "Open"


def test_shards_are_opened_where_more_is_written_than_copied() -> None:
    """The notes are those of the whole type, whose other shards have homes."""
    shell = Shell()

    def applied(_: Any) -> Applied:
        shell.now += 1.0
        return Applied(2000, is_full=bool(shell.of(Close)))

    shell._answers["Apply"] = applied
    with pytest.raises(CannotMove, match="Nodes write more rows of"):
        shell.run()
    assert shell.names()[-1] == "Open"
    assert shell.of(Renew)


def test_a_move_is_taken_back() -> None:
    assert Shell("journal_a").take_back() == [
        *("Elsewhere", "Open", "Unstash", "Unwatch", "Prepare", "ClearCopy", "ClearRest", "Forget"),
    ]


@pytest.mark.parametrize(("source", "asked"), [("journal_a", ["Open", "Unstash"]), ("", ["Open"])])
def test_a_move_is_taken_back_without_a_target_that_is_gone(source: str, asked: list[str]) -> None:
    assert Shell(source).take_back(target_is_gone=True) == ["Elsewhere", *asked, "Unwatch", "Forget"]


@pytest.mark.parametrize("command", [Shell.run, Shell.take_back])
def test_nothing_is_done_where_the_cluster_has_lost_a_switch(command: Callable[[Shell], object]) -> None:
    shell = Shell("journal_a", Elsewhere=lambda _: [2])
    with pytest.raises(CannotMove, match=r"Shards 2 are on their way .* DATABASE has lost the switch"):
        command(shell)
    assert shell.names() == ["Elsewhere"]
