"""The judges reject planted bad histories, and accept good ones: nothing else in these tests can be
trusted before that.
"""

import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sharding_app.errors import AskTimeout, PartiallyApplied
from sharding_app.torture import judge
from sharding_app.torture.digest import EMPTY, after
from sharding_app.torture.history import NEVER, Call, Op, Outcome, given_up
from sharding_app.torture.judge import Decided, Home, Outage, Row
from sharding_app.torture.linear import Operation, TooHard, check_register, linearize
from sharding_app.torture.load import Load
from sharding_app.torture.processes import NoAnswer, NotInTime, until, works
from sharding_app.torture.registry import Registry

State = tuple[int, int]


def said(tokens: str) -> State:
    """What a register answers that holds these one-letter tokens."""
    state = EMPTY
    for token in tokens:
        state = after(state, token)
    return state


def call(
    op: Op,
    start: float,
    end: float | None,
    token: str = "",
    value: str | None = None,
    outcome: Outcome = "ok",
    **more: int,
) -> Call:
    return Call(
        process=more.get("process", 1), number=more.get("number", int(start)), entity="e", op=op, token=token, start=start,
        end=end, outcome=outcome, value=None if value is None else said(value), attempts=more.get("attempts", 1),
    )  # fmt: skip


def rows(tokens: str, epochs: Sequence[int] | None = None, writers: Sequence[int] | None = None) -> list[Row]:
    return [
        Row("e", place + 1, 7, epochs[place] if epochs else 1, token, writers[place] if writers else 100)
        for place, token in enumerate(tokens)
    ]


GOOD = [
    call("append", 1, 2, "a", "a"),
    call("append", 3, 6, "b", "ab"),
    call("read", 4, 5, value="a"),
    call("append", 7, 8, "c", outcome="unknown"),
    call("refuse", 8, 9, "d", outcome="rejected"),
    call("read", 10, 11, value="abc"),
]


class TestLinearizable:
    def test_accepts_what_one_object_could_have_answered(self) -> None:
        assert check_register(GOOD) == ""
        assert check_register(GOOD, "abc") == ""

    @pytest.mark.parametrize(
        "history",
        [
            pytest.param([call("append", 1, 2, "a", "a"), call("read", 3, 4, value="")], id="lost"),
            pytest.param([call("append", 1, 2, "a", "a"), call("read", 3, 4, value="aa")], id="doubled"),
            pytest.param(
                [call("append", 1, 2, "a", "a"), call("append", 3, 4, "b", "ab"), call("read", 5, 6, value="a")], id="stale"
            ),
            pytest.param([call("append", 1, 2, "a", "ba"), call("append", 3, 4, "b", "b")], id="reordered"),
            pytest.param([call("read", 1, 2, value="a"), call("append", 3, 4, "a", "a")], id="from the future"),
            pytest.param(
                [call("append", 1, 2, "a", "a"), call("append", 3, 9, "b", "ab"), call("read", 4, 5, value="ab"),
                 call("read", 6, 7, value="a")],
                id="back in time during a call",
            ),
            pytest.param([call("append", 1, 2, "a", "a"), call("append", 1.5, 3, "b", "b")], id="two writers"),
            pytest.param(
                [call("refuse", 1, 2, "a", outcome="rejected"), call("read", 3, 4, value="a")], id="a rejection that counted"
            ),
        ],
    )  # fmt: skip
    def test_rejects(self, history: list[Call]) -> None:
        assert "not linearizable" in check_register(history)

    def test_an_unknown_call_may_count_late_or_never_but_not_twice(self) -> None:
        lost = call("append", 1, 2, "x", outcome="unknown")
        for value in ("", "x"):
            assert check_register([lost, call("read", 3, 4, value=value)]) == ""
        late = [lost, call("append", 3, 4, "a", "a"), call("read", 5, 6, value="ax")]
        assert check_register(late) == ""
        assert check_register([*late, call("read", 7, 8, value="axx")])

    def test_the_journal_says_what_became_of_an_unknown_call(self) -> None:
        history = [call("append", 1, 2, "x", outcome="unknown"), call("read", 3, 4, value="")]
        assert check_register(history, "") == ""
        assert check_register(history, "x") == "", "it may have come after the read"
        assert check_register([*history, call("read", 5, 6, value="")], "") == ""
        assert check_register([*history, call("append", 5, 6, "y", "xy")], "xy") == ""
        assert check_register([*history, call("append", 5, 6, "y", "y")], "xy")

    def test_agrees_with_trying_all_orders(self) -> None:
        """On small random histories the search finds an order exactly if one exists."""
        chance = random.Random(5)
        verdicts = {True: 0, False: 0}
        for _ in range(400):
            operations = [_random_operation(chance) for _ in range(chance.randrange(2, 6))]
            operations.sort(key=lambda each: each.start)
            found = linearize(operations, 0).ok
            assert found == _by_force(operations, 0)
            verdicts[found] += 1
        assert min(verdicts.values()) > 40, verdicts

    def test_reads_that_overlap_cost_no_search(self) -> None:
        """Calls of one entity overlap where its callers waited long: their reads can be many."""
        tokens = "abcdefghij"
        history = [call("append", 0, 100, tokens[at], tokens[: at + 1]) for at in range(10)]
        history += [call("read", 0, 100, value=tokens[:at]) for at in range(11) for _ in range(5)]
        assert check_register(history, tokens) == ""
        history.append(call("read", 101, 102, value=tokens[:9]))
        assert "not linearizable" in check_register(history, tokens)

    def test_takes_nothing_at_once_that_may_change_a_state(self) -> None:
        """A call that sets the present value may still have to come after another call."""

        def set_to(value: int) -> Callable[[int], int | None]:
            return lambda _: value

        operations: list[Operation[int]] = [
            Operation(0.0, 5.0, set_to(1)),
            Operation(0.0, 5.0, set_to(2)),
            Operation(6.0, 7.0, lambda state: state if state == 1 else None, reads=True),
        ]
        assert linearize(operations, 1).order == [1, 0, 2]

    def test_gives_up_aloud(self) -> None:
        def step(state: frozenset[int], number: int) -> frozenset[int]:
            return state | {number}

        def never(_: frozenset[int]) -> None:
            return None

        def adds(number: int) -> Callable[[frozenset[int]], frozenset[int]]:
            return lambda state: step(state, number)

        operations = [Operation(0.0, 10.0, adds(number)) for number in range(12)] + [
            Operation(0.0, 10.0, never)
        ]
        with pytest.raises(TooHard):
            linearize(operations, frozenset[int](), max_tries=1000)


def _random_operation(chance: random.Random) -> Operation[int]:
    start = chance.randrange(8)
    end = NEVER if chance.random() < 0.2 else start + chance.randrange(1, 9)
    value = chance.randrange(3)
    if chance.random() < 0.5:
        return Operation(start, end, lambda state: state + 1 if state + 1 == value or end == NEVER else None)
    return Operation(start, end, lambda state: state if state == value else None)


def _by_force(operations: list[Operation[int]], state: int) -> bool:
    if all(each.end == NEVER for each in operations):
        return True
    for number, each in enumerate(operations):
        rest = operations[:number] + operations[number + 1 :]
        if any(other.end < each.start for other in rest):
            continue
        reached = each.step(state)
        if reached is not None and _by_force(rest, reached):
            return True
    return False


class TestJournal:
    def test_accepts_a_good_run(self) -> None:
        homes = [Home(7, 1, "n-1", "home", 0.0), Home(7, 2, "n-2", "home", 1.0)]
        final = [call("read", 20, 21, value="abc")]
        assert judge.judge(GOOD, final, rows("abc", epochs=[1, 1, 2], writers=[100, 100, 200]), homes) == []

    def test_a_gap_and_a_repeated_number(self) -> None:
        good = rows("abc")
        assert judge.check_numbers(good) == []
        assert judge.check_numbers([good[0], good[2]])
        assert judge.check_numbers([*good, good[2]])

    def test_an_acknowledged_event_that_is_lost_doubled_or_elsewhere(self) -> None:
        acknowledged = [call("append", 1, 2, "a", "a")]
        assert judge.check_once(acknowledged, rows("a")) == []
        assert "not in the journal" in judge.check_once(acknowledged, [])[0]
        assert "twice" in judge.check_once(acknowledged, rows("aa"))[0]
        assert "journal of f" in judge.check_once(acknowledged, [Row("f", 1, 7, 1, "a", 100)])[0]
        assert "the journal says" in judge.check_once(acknowledged, rows("ba"))[0]

    def test_an_unknown_or_unacknowledged_event_may_be_there_once(self) -> None:
        for outcome in ("unknown", "told"):
            sent = [call("append", 1, 2, "a", outcome=outcome)]
            assert judge.check_once(sent, rows("a")) == judge.check_once(sent, []) == []
            assert judge.check_once(sent, rows("aa"))

    def test_what_was_refused_must_not_be_there(self) -> None:
        for outcome in ("rejected", "refused"):
            sent = [call("append", 1, 2, "a", outcome=outcome)]
            assert judge.check_once(sent, []) == []
            assert judge.check_once(sent, rows("a"))

    def test_two_writers(self) -> None:
        assert judge.check_writers(rows("abc", epochs=[1, 1, 2], writers=[100, 100, 200]), []) == []
        assert "both wrote" in judge.check_writers(rows("ab", writers=[100, 200]), [])[0]
        assert "epochs decrease" in judge.check_writers(rows("ab", epochs=[2, 1], writers=[200, 100]), [])[0]

    def test_copies_bear_the_epoch_of_the_copy(self) -> None:
        homes = [Home(7, epoch, f"n-{epoch}", "home", float(epoch)) for epoch in (1, 2, 3)]
        first, second, third = rows("abc", epochs=[1, 1, 3], writers=[100, 200, 300])
        written = [each._replace(shard=7, at=at) for each, at in ((first, 1.5), (second, 2.5), (third, 3.5))]
        assert judge.check_writers(written, homes, {7}) == []
        assert "both wrote" in judge.check_writers(written, homes)[0]
        assert "both wrote" in judge.check_writers(written, homes, {8})[0]
        at_once = [written[0], written[1]._replace(at=1.6)]
        assert "both wrote" in judge.check_writers(at_once, homes, {7})[0]
        older = [written[0]._replace(epoch=3), written[2]._replace(seq=2)]
        assert judge.check_writers(older, homes, {7}) == []

    def test_an_epoch_with_two_homes(self) -> None:
        first, second = Home(7, 1, "n-1", "home", 0.0), Home(7, 2, "n-2", "home", 1.0)
        assert judge.check_writers([], [first, Home(7, 1, "n-1", "handoff", 0.5), second]) == []
        assert "share epoch" in judge.check_writers([], [first, Home(7, 1, "n-2", "home", 1.0)])[0]
        assert "went back" in judge.check_writers([], [second, first])[0]

    def test_a_second_coordinator(self) -> None:
        first = Decided(7, 1, "sharding/n-1/control", 1, "n-1")
        second = Decided(7, 2, "sharding/n-2/control", 2, "n-2")
        assert judge.check_coordinators([first, first, second]) == []
        assert (
            "decided by sharding/n-1/control, n-2 coordinates"
            in judge.check_coordinators([first, second._replace(writer="sharding/n-1/control")])[0]
        )
        assert (
            "n-1 and n-2 coordinate in term 1"
            in judge.check_coordinators([first, second._replace(term=1)])[0]
        )
        assert "after term 2" in judge.check_coordinators([second, first])[0]

    def test_order(self) -> None:
        calls = [
            call("append", number, 20, token, outcome="unknown") for number, token in enumerate("abc", 1)
        ]
        assert judge.check_order(calls, rows("abc")) == judge.check_order(calls, rows("ac")) == []
        assert "came after" in judge.check_order(calls, rows("acb"))[0]
        others = [*calls[:2], call("append", 1, 20, "c", outcome="unknown", process=2)]
        assert judge.check_order(others, rows("cab")) == [], "two processes are not ordered among each other"
        repeated = [calls[0], call("append", 0, 20, "b", outcome="unknown", attempts=2)]
        assert judge.check_order(repeated, rows("ab")) == []

    def test_silence_and_errors_at_the_end(self) -> None:
        assert judge.check_answers([], [call("read", 1, 2, value="")]) == []
        assert judge.check_answers([call("append", 1, 2, "a", outcome="failed")], [])
        assert judge.check_answers([], [call("read", 1, 2, outcome="unknown")])

    def test_a_loss_is_not_a_delay(self) -> None:
        assert (
            judge.check_patience(
                [call("append", 1, 5, "a", outcome="unknown"), call("append", 1, 30, "b", "b")], 19
            )
            == []
        )
        lost = call("append", 1, 21, "a", outcome="unknown")
        assert judge.check_patience([lost], 19)
        assert judge.check_patience([lost], 19, [Outage(15, 40)]) == [], (
            "it waited 14 s beside a slow machine's fault"
        )
        assert judge.check_patience([lost], 19, [Outage(20.5, 40)]), "it had waited 19 s before"
        assert judge.check_patience([lost], 19, [Outage(22, 40)]), "it had given up before"


class TestRegistry:
    """Two processes, 1 and 2; every entity is in shard 0. Turns of their event loops are numbered
    from 0.
    """

    HOME = ("starts 1 Cart 0 1", "handles 1 0 10 Cart e")
    MOVED = ("starts 2 Cart 0 2", "handles 2 0 10 Cart e")

    @staticmethod
    def judge(*lines: str) -> list[str]:
        return Registry(lambda type_name, entity: 0).judge(lines)

    def test_accepts_one_after_the_other(self) -> None:
        assert self.judge(*self.HOME, "stops 1 Cart 0 1", *self.MOVED, "handles 2 1 10 Cart e") == []
        assert self.judge(*self.HOME, *self.MOVED) == [], "one that was killed does not say that it stops"
        assert self.judge(*self.HOME, "handles 1 1 11 Cart e", "handles 1 2 11 Cart e") == [], (
            "it was restarted"
        )
        assert (
            self.judge(
                *self.HOME, *self.MOVED, "stops 2 Cart 0 2", "starts 1 Cart 0 3", "handles 1 1 12 Cart e"
            )
            == []
        )

    def test_a_former_home_that_lives_on(self) -> None:
        broken = self.judge(*self.HOME, "starts 2 Cart 0 2", "handles 1 1 10 Cart e")
        assert (
            "object 10 of process 1 handles a message, the home of shard 0 is process 2 at epoch 2"
            in broken[0]
        )
        assert self.judge("starts 2 Cart 0 2", "starts 1 Cart 0 1", "handles 1 0 10 Cart e"), (
            "it started too late"
        )
        assert "has no home" in self.judge("handles 1 0 10 Cart e")[0]

    def test_a_home_that_has_stopped_its_shard(self) -> None:
        assert "has stopped shard 0" in self.judge(*self.HOME, "stops 1 Cart 0 1", "handles 1 1 10 Cart e")[0]

    def test_two_objects_in_one_process(self) -> None:
        broken = self.judge(*self.HOME, "handles 1 1 11 Cart e", "handles 1 2 10 Cart e")
        assert "again, after object (1, 11) has" in broken[0]
        assert self.judge(*self.HOME, "handles 1 1 11 Cart f", "handles 1 2 10 Cart e") == []

    def test_what_was_under_way_is_no_proof_and_what_comes_next_is(self) -> None:
        held_up = (*self.HOME, *self.MOVED, "handles 1 0 11 Cart f")
        assert self.judge(*held_up) == [], "a handler of that turn took so long"
        assert len(self.judge(*held_up, "handles 1 1 11 Cart f")) == 1

    def test_the_turn_in_which_a_process_was_frozen_is_no_proof_and_the_next_is(self) -> None:
        woken = (*self.HOME, *self.MOVED, "thaws 1", "handles 1 1 10 Cart e", "handles 1 1 11 Cart f")
        assert self.judge(*woken) == []
        assert len(self.judge(*woken, "handles 1 2 10 Cart e")) == 1

    def test_a_process_that_wakes_within_its_lease_and_was_replaced_meanwhile(self) -> None:
        woken = (
            *self.HOME,
            "loses 1",
            *self.MOVED,
            "unaware 1",
            "handles 1 1 10 Cart e",
            "handles 1 2 11 Cart f",
        )
        assert self.judge(*woken) == []
        assert len(self.judge(*woken, "aware 1", "handles 1 3 10 Cart e")) == 1, "its lease is over"
        before = (*self.HOME, *self.MOVED, "loses 1", "unaware 1", "handles 1 1 10 Cart e")
        assert len(self.judge(*before)) == 1, "it had been replaced before it was frozen"

    def test_a_process_whose_connections_are_reset(self) -> None:
        reset = (*self.HOME, "loses 1", "unaware 1", *self.MOVED, "handles 1 1 10 Cart e")
        assert self.judge(*reset) == []
        again = (*reset, "loses 1", "unaware 1", "aware 1", "handles 1 2 10 Cart e")
        assert self.judge(*again) == [], "the time of the second fault is not over"
        assert len(self.judge(*again, "aware 1", "handles 1 3 10 Cart e")) == 1, "its lease is over"

    def test_an_unknown_line(self) -> None:
        assert "nothing known" in self.judge("jumps 1")[0]


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="only Linux tells")
@pytest.mark.parametrize(
    ("work", "expected"), [("asyncio.run(asyncio.sleep(60))", False), ("exec('while True: pass')", True)]
)
def test_a_frozen_process_tells_whether_it_had_something_in_hand(work: str, expected: bool) -> None:
    program = f"import asyncio; print('begins', flush=True); {work}"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            until(lambda: _stopped_at_work(process) == expected, 10, "it does its work")
        finally:
            process.kill()


def _stopped_at_work(process: subprocess.Popen[bytes]) -> bool:
    process.send_signal(signal.SIGSTOP)
    try:
        return works(process.pid)
    finally:
        process.send_signal(signal.SIGCONT)


def test_a_condition_is_asked_again_while_the_database_does_not_answer() -> None:
    answers = iter([NoAnswer("it starts"), False, "there"])

    def condition() -> object:
        answer = next(answers)
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    assert until(condition, 60, "it is there", 0.0) == "there"
    with pytest.raises(NotInTime, match=r"not within 0 s: it is there"):
        until(lambda: False, 0, "it is there", 0.0)


# -- Callers of little patience --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "given_up_on"),
    [(AskTimeout("no reply in time"), True), (PartiallyApplied("AskTimeout"), False)],
)
@pytest.mark.asyncio
async def test_a_caller_has_given_up_if_its_own_time_was_over(error: Exception, given_up_on: bool) -> None:
    async def answer() -> list[int]:
        raise error

    made = call("append", 1, 2, "x", outcome="unknown")
    made.timed_out = not given_up_on
    await Load._settle(made, answer())
    assert made.outcome == "unknown"
    assert given_up(made) is given_up_on
