"""Concurrent queries, many entities asked at once, and lists of ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from sharding_app.entities.listing import Refs
from sharding_app.entities.many import Answer, Asking
from sharding_app.protocol.shard import Shard, Slot, Work
from sharding_app.runtime.execution.beside import Beside, Watched
from sharding_app.runtime.hosting.type_host import TypeHost
from sharding_app.runtime.journal.commits import Resident
from tests.simulation.mistakes.mistake import Mistake, nothing, yes


def _of_the_object(real: Any) -> Any:
    def seen(self: Watched) -> object | None:
        return self.slot.entity

    return seen


def _whatever_becomes_of_the_commit(real: Any) -> Any:
    def answer(self: Beside, slot: Resident, *args: Any) -> None:
        tail, slot.tail = slot.tail, None
        try:
            real(self, slot, *args)
        finally:
            slot.tail = tail

    return answer


def _of_any_tail(real: Any) -> Any:
    def committed(self: Beside, slot: Resident) -> object | None:
        return slot.entity if slot.tail is not None else real(self, slot)

    return committed


def _without_a_limit(_: Any) -> Any:
    def put_back(self: Shard[Resident], slot: Resident, works: Sequence[Work]) -> Sequence[Work]:
        slot.mailbox = deque((*works, *(slot.mailbox or ())))
        return ()

    return put_back


def _one_before_the_other(_: Any) -> Any:
    def ask_again(self: TypeHost, slot: Resident, queries: Sequence[Work]) -> None:
        for source, message in queries:
            self.again(slot, source, message)

    return ask_again


def _without_the_failing(_: Any) -> Any:
    def drop_object(self: Resident) -> None:
        Slot.drop_object(self)
        self.tail = None

    return drop_object


def _without_the_failed(real: Any) -> Any:
    async def ask(self: Asking[Any], piece: Iterable[str]) -> tuple[list[Answer[Any]], int]:
        answers, size = await real(self, piece)
        return [each for each in answers if each.error is None], size

    return ask


def _turned_round(real: Any) -> Any:
    async def ask(self: Asking[Any], piece: Iterable[str]) -> tuple[list[Answer[Any]], int]:
        answers, size = await real(self, piece)
        others = [each.entity_id for each in reversed(answers)]
        return [
            Answer(other, each._value, each.error) for other, each in zip(others, answers, strict=True)
        ], size

    return ask


def _first_alone(real: Any) -> Any:
    def page(reply: bytes) -> object:
        return real(reply)[0], None

    return staticmethod(page)


MANY: dict[str, Mistake] = {
    "concurrent_query_sees_what_is_staged": Mistake((2,), Watched, "seen", _of_the_object),
    "concurrent_query_waits_for_no_commit": Mistake((2,), Beside, "_answer", _whatever_becomes_of_the_commit),
    "concurrent_query_trusts_any_commit": Mistake((2,), Beside, "_committed", _of_any_tail),
    "copies_of_former_commands_stay": Mistake((2,), Beside, "ended", lambda real: nothing),
    "answers_beside_have_no_limit": Mistake((9,), Beside, "_has_room", lambda _: yes),
    "queries_go_back_without_a_limit": Mistake((9,), Shard, "put_back", _without_a_limit),
    "queries_go_back_in_disorder": Mistake((5,), TypeHost, "ask_again", _one_before_the_other, direct=True),
    "failing_commits_are_not_waited_for": Mistake((5,), Resident, "drop_object", _without_the_failing),
    "failed_ones_of_many_are_left_out": Mistake((8,), Asking, "_ask", _without_the_failed),
    "answers_of_many_are_mixed_up": Mistake((2,), Asking, "_ask", _turned_round),
    "lists_end_after_a_page": Mistake((8,), Refs, "_page", _first_alone),
}
