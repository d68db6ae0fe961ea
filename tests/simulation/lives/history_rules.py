"""What a history has to show: nothing twice, nothing lost, no reply that the journal does not bear
out.

Contract: `check_entity` gets the whole journal of one entity, as it was written (also what was
trimmed since), and all attempts to call it. It raises AssertionError with what is wrong.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from sharding_app import (
    BufferFull,
    EntityFailed,
    NotSerializable,
    PartiallyApplied,
    Rejected,
    ShardingError,
    Unavailable,
)
from sharding_app.ports.journal import EventRow
from tests.simulation.lives.ledgers import PARTS, part, said


@dataclass(eq=False)
class Attempt:
    """One time that a call was made."""

    floor: int
    "How much was acknowledged when it was made."
    ceiling: int | None = None
    "How much was committed when it was answered, where that is known."
    reply: str = ""
    error: BaseException | None = None
    done: bool = False


@dataclass(eq=False)
class Call:
    """One command or query; a retry of it is one more attempt."""

    operation: str
    token: str
    command_id: str
    at: float
    attempts: list[Attempt] = field(default_factory=list)

    def __str__(self) -> str:
        ends = [each.reply or repr(each.error) for each in self.attempts]
        return f"{self.operation}({self.token}) -> {', '.join(ends)}"


def fold(log: Sequence[EventRow], *, durable: bool) -> list[str]:
    """The state that a journal gives."""
    if durable:
        return list(json.loads(log[-1].payload)["tokens"]) if log else []
    return [json.loads(row.payload)["token"] for row in log if row.name == "Noted"]


def check_entity(log: Sequence[EventRow], calls: Sequence[Call], *, durable: bool) -> list[str]:
    """Returns the state that this entity has to have."""
    numbers = [row.seq for row in log]
    assert numbers == list(range(1, len(log) + 1)), f"numbers with gaps or out of order: {numbers}"
    if durable:
        values = [json.loads(row.payload)["tokens"] for row in log]
        for before, after in itertools.pairwise(values):
            assert after[: len(before)] == before, f"a value was lost: {before}, then {after}"
    tokens = fold(log, durable=durable)
    assert len(set(tokens)) == len(tokens), f"something took effect twice: {tokens}"
    for call in calls:
        assert all(each.done for each in call.attempts), f"never answered: {call}"
        if PARTS.get(call.operation):
            _check_effect(call, tokens)
        else:
            _check_look(call, tokens)
    meant = {
        part(call.token, number) for call in calls for number in range(1, PARTS.get(call.operation, 0) + 1)
    }
    assert set(tokens) <= meant, f"an effect that no call meant: {set(tokens) - meant}"
    return tokens


def _check_effect(call: Call, tokens: Sequence[str]) -> None:
    parts = [part(call.token, number + 1) for number in range(PARTS[call.operation])]
    there = [each for each in parts if each in tokens]
    assert there == parts[: len(there)], f"a later part without the earlier one: {call}"
    replies = {each.reply for each in call.attempts if each.reply}
    errors = [each.error for each in call.attempts if each.error is not None]
    if replies:
        assert there == parts, f"acknowledged, and not in the journal: {call}"
        end = tokens.index(parts[-1]) + 1
        assert list(tokens[end - len(parts) : end]) == parts, f"something came in between: {call} {tokens}"
        assert replies == {said(tokens[:end])}, f"not the first reply, {said(tokens[:end])}: {call}"
    if any(isinstance(each, PartiallyApplied) for each in errors):
        # Of `slow_steps` both parts are awaited; what may be lacking then is its reply.
        most = len(parts) if call.operation == "slow_steps" else 1
        assert 1 <= len(there) <= most, f"partly applied, but there is {there}: {call}"
    elif errors and not replies and all(_says_nothing(each) for each in errors):
        assert not there, f"nothing is stored, it said: {call}, {there}"


def _says_nothing(error: BaseException) -> bool:
    """Whether an error promises that the command has had no effect."""
    if isinstance(error, Unavailable):
        return "nothing of" in error.message
    return isinstance(error, Rejected | EntityFailed | NotSerializable | BufferFull)


def _check_look(call: Call, tokens: Sequence[str]) -> None:
    """A reply that changed nothing shows a state that was committed, and nothing older than what
    was acknowledged.
    """
    for attempt in call.attempts:
        if attempt.reply:
            seen = int(attempt.reply.partition(":")[0])
            assert attempt.reply == said(tokens[:seen]), f"a state that never was: {call}, {tokens}"
            assert attempt.floor <= seen, f"it has not seen what was acknowledged: {call}, {attempt.floor}"
            assert attempt.ceiling is None or seen <= attempt.ceiling, f"told before its commit: {call}"
        else:
            assert isinstance(attempt.error, ShardingError), repr(attempt.error)
