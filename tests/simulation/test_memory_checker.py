"""What the judge makes of entities that keep their state in memory alone."""

from types import SimpleNamespace
from typing import Any

import pytest

from sharding_app.errors import Unavailable
from sharding_app.protocol.ids import Epoch, Incarnation, ShardId
from sharding_app.protocol.records import ShardRow
from sharding_app.testing.simulation.in_memory import LAMP
from sharding_app.testing.simulation.memory_checker import MemoryChecker
from sharding_app.testing.simulation.promises import Call, PromiseBroken

NAME = f"{LAMP.name}/l"
Home = tuple[Incarnation, Epoch]
HOME = Incarnation("n1-1"), Epoch(1)
NEXT = Incarnation("n2-1"), Epoch(2)


class Lamp:
    """An object of the entity, as the judge sees it."""

    _sharding_type = LAMP
    entity_id = "l"

    def __init__(self, stage: "Stage") -> None:
        self.tokens = [stage.judge.life_begins(self)]  # type: ignore[arg-type]


class Stage:
    def __init__(self) -> None:
        self.broken: list[PromiseBroken] = []
        self.by_token: dict[str, Call] = {}
        self.rows: dict[tuple[str, int], ShardRow] = {}
        self.world = self._made()
        self.judge = MemoryChecker(self.world)
        self.calls = 0

    def _made(self) -> Any:
        return SimpleNamespace(
            now=0.0, broke=self.broken.append, transition=lambda *_: None,
            witness=SimpleNamespace(by_token=self.by_token),
            shard_of=lambda *_: 0, server=SimpleNamespace(cluster=SimpleNamespace(shards=self.rows)),
        )  # fmt: skip

    def call(self, *tokens: str, began: float = 0.0, repeated: bool = False, client: str = "c") -> Call:
        self.calls += 1
        made = Call(self.calls, client, NAME, "add" if tokens else "total", tokens, began, repeated=repeated)
        for each in tokens:
            self.by_token.setdefault(each, made)
        return made

    def handle(
        self, lamp: Lamp, *tokens: str, at: float = 0.0, apart: bool = False, home: Home = HOME
    ) -> None:
        self.world.now = at
        self.judge.handles(lamp, home, apart=apart, heard=True)  # type: ignore[arg-type]
        for each in tokens:
            lamp.tokens.append(each)
            self.judge.notes(lamp, each)  # type: ignore[arg-type]

    def fail_over(self, home: Home) -> None:
        """Let the server go back in time, to a row that names this home."""
        self.rows[LAMP.name, 0] = ShardRow(LAMP.name, ShardId(0), home[1], home[0], "home")
        self.judge.went_back()

    def answer(self, call: Call, value: object = None, error: BaseException | None = None) -> str | None:
        """End a call. Return the name of the promise that the answer breaks."""
        call.ended, call.value, call.error = self.world.now, value, error
        try:
            self.judge.answered(call) if error is None else self.judge.failed(call)
        except PromiseBroken as broken:
            return broken.name
        return None

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.broken]


def test_answers_of_one_object_after_the_other_are_right() -> None:
    stage = Stage()
    first, last = Lamp(stage), Lamp(stage)
    one, two, three = stage.call("a"), stage.call("b", "c"), stage.call("d")
    stage.handle(first, "a")
    assert stage.answer(one, 2) is None
    stage.handle(first, "b", "c")
    assert stage.answer(two, 4) is None
    stage.handle(last, "d", at=1.0)
    assert stage.answer(three, 2) is None, "a new object begins anew"
    assert stage.answer(stage.call(began=0.5), (4, "c")) is None, "it was asked before that"
    assert stage.answer(stage.call(began=1.0), (2, "d")) is None
    assert not stage.broken


def test_a_command_that_is_handled_twice_breaks_the_promise_unless_it_has_an_id() -> None:
    stage = Stage()
    stage.call("a", repeated=True)
    stage.call("b")
    for lamp in (Lamp(stage), Lamp(stage)):
        stage.handle(lamp, "a")
    assert not stage.broken
    for lamp in (Lamp(stage), Lamp(stage)):
        stage.handle(lamp, "b")
    assert stage.names == ["effect_once"]


def test_commands_of_one_caller_are_handled_in_their_order_by_whatever_object() -> None:
    stage = Stage()
    stage.call("a")
    stage.call("b")
    stage.call("c", client="another")
    for token in ("b", "c", "a"):
        stage.handle(Lamp(stage), token)
    assert stage.names == ["order_is_kept"]


def test_a_node_that_was_let_go_unheard_has_no_place_in_the_order() -> None:
    stage = Stage()
    stage.call("a")
    stage.call("b")
    former, present = Lamp(stage), Lamp(stage)
    stage.handle(present, "b")
    stage.handle(former, "a", at=1.0, apart=True)
    assert stage.answer(stage.call(began=2.0), (2, "b")) is None
    assert not stage.broken


def test_a_command_is_not_handled_of_which_its_caller_was_told_that_nothing_came() -> None:
    stage = Stage()
    sooner, later, unknown = (stage.call(token) for token in "abc")
    lamp = Lamp(stage)
    stage.handle(lamp, "a")
    assert stage.answer(sooner, error=Unavailable("no")) == "failed_is_not_stored"
    assert stage.answer(later, error=Unavailable("no")) is None
    assert stage.answer(unknown, error=Unavailable("who knows", code="fate_unknown")) is None
    stage.handle(lamp, "b", "c")
    assert stage.names == ["failed_is_not_stored"]


@pytest.mark.parametrize(
    ("value", "broken"),
    [
        ((2, "a"), "reads_are_linearizable"),
        ((3, "b"), None),
        ((2, "b"), "reads_are_linearizable"),
        ((4, "c"), "reads_are_linearizable"),
    ],
)
def test_an_answer_is_the_state_of_an_object_since_the_call(value: object, broken: str | None) -> None:
    stage = Stage()
    stage.call("a", "b")
    lamp = Lamp(stage)
    stage.handle(lamp, "a", "b", at=1.0)
    assert stage.answer(stage.call(began=2.0), value) == broken


@pytest.mark.parametrize(("value", "broken"), [(2, None), (3, "state_is_the_fold"), (1, "state_is_the_fold")])
def test_the_answer_of_a_command_is_its_place(value: int, broken: str | None) -> None:
    stage = Stage()
    call = stage.call("a")
    stage.handle(Lamp(stage), "a")
    assert stage.answer(call, value) == broken


def test_what_no_object_has_noted_was_not_acknowledged() -> None:
    stage = Stage()
    stage.handle(Lamp(stage))
    assert stage.answer(stage.call("a"), 2) == "acknowledged_is_stored"


def test_a_failover_that_loses_a_move_gives_the_former_home_its_objects_back() -> None:
    stage = Stage()
    stage.call("a")
    gone, former, present = Lamp(stage), Lamp(stage), Lamp(stage)
    stage.handle(gone)
    stage.handle(former, "a", at=1.0)
    stage.handle(present, at=2.0, home=NEXT)
    late = stage.call(began=3.0)
    assert stage.answer(late, (2, "a")) == "reads_are_linearizable"
    stage.fail_over(HOME)
    stage.handle(former, at=4.0)
    assert stage.answer(stage.call(began=4.0), (2, "a")) is None
    assert stage.answer(stage.call(began=5.0), (1, "life 3")) == "reads_are_linearizable"
    stage.handle(gone, at=6.0)
    assert stage.answer(stage.call(began=6.0), (1, "life 1")) == "reads_are_linearizable"


def test_a_failover_that_loses_no_move_gives_no_object_back() -> None:
    stage = Stage()
    former, present = Lamp(stage), Lamp(stage)
    stage.handle(former)
    stage.handle(present, at=1.0, home=NEXT)
    stage.fail_over(NEXT)
    stage.handle(former, at=2.0)
    assert stage.answer(stage.call(began=2.0), (1, "life 1")) == "reads_are_linearizable"
