"""The look at the journals at the end of a run: nothing is missing there."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sharding_app.testing.simulation.final_checks import look_back
from sharding_app.testing.simulation.promises import Entry, PromiseBroken
from tests.support.given import event_row

Stored = dict[tuple[int, str], dict[int, Any]]


def world(stored: dict[str, Stored], **entities: int) -> tuple[Any, list[PromiseBroken]]:
    """A finished run in which these entities have that many events, and each server has those."""
    broken: list[PromiseBroken] = []
    journal = defaultdict(list, {
        f"x.Y/{entity}": [Entry(number, 1, f"t{number}", 1.0) for number in range(1, count + 1)]
        for entity, count in entities.items()
    })  # fmt: skip
    witness = SimpleNamespace(
        messages=SimpleNamespace(look_back=lambda: None), calls=[], past=set(), journal=journal,
        name_of=lambda _: "x.Y", states=SimpleNamespace(keeps=lambda _: False),
    )  # fmt: skip
    servers = {
        name: SimpleNamespace(name=name, journal=SimpleNamespace(events=events))
        for name, events in stored.items()
    }
    made = SimpleNamespace(
        witness=witness, servers=servers, broke=broken.append,
        lies_in=lambda server, _, entity: server.name == ("there" if entity == "far" else ""),
    )  # fmt: skip
    return cast(Any, made), broken


def events(entity: str, *numbers: int) -> Stored:
    return {(1, entity): {each: SimpleNamespace(row=event_row(1, entity, each)) for each in numbers}}


def test_nothing_is_missing() -> None:
    made, broken = world({"": events("a", 1, 2), "there": events("far", 1)}, a=2, far=1, erased=0)
    look_back(made)
    assert broken == []


@pytest.mark.parametrize(
    ("stored", "entities", "told"),
    [
        ({"": events("a", 1)}, {"a": 2}, "forgotten events"),
        ({"": {}}, {"a": 2}, "forgotten all events"),
        ({"": events("far", 1), "there": {}}, {"far": 1}, "forgotten all events"),
    ],
)
def test_an_event_that_is_missing_is_noticed(
    stored: dict[str, Stored], entities: dict[str, int], told: str
) -> None:
    made, broken = world(stored, **entities)
    look_back(made)
    (found,) = broken
    assert told in str(found)
