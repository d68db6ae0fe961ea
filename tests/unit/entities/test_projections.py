"""The calls that a projection makes of events, in the order of the journal."""

import pytest

from sharding_app import EventSourced, Projection, applies, event, on
from sharding_app.entities.happened import Happened
from sharding_app.entities.projections import ProjectionType, projections
from sharding_app.entities.registry import registry
from sharding_app.errors import UnreadableEvent
from sharding_app.protocol.projection.requests import StoredEvent


def declared() -> ProjectionType:
    with registry.isolated(), projections.isolated():

        @event
        class Set:
            to: int

        @event
        class SetTwice(Set):
            pass

        @event
        class Seen:
            pass

        class Dial(EventSourced, name="projections_test.Dial"):
            ignore_events = ("Turned",)

            @applies(Set)
            def on_set(self, happened: Set) -> None:
                """Keep no state."""

            @applies(Seen)
            def on_seen(self, happened: Seen) -> None:
                """Keep no state."""

        class Dials(Projection, name="projections_test.Dials"):
            source = Dial

            @on(Set)
            def moved(self, happened: Happened[Set]) -> None:
                """Write no row."""

        found = Dials._sharding_projection
        assert found is not None
        return found


def stored(name: str, payload: bytes = b"{}") -> StoredEvent:
    return StoredEvent(1, "a", 1, name, 1, payload, None)


def methods(*events: StoredEvent) -> list[str]:
    projection = declared()
    return [each.method for each in projection.calls(events, {1: projection.sources[0]})]


def test_events_without_a_handler_are_passed_over_if_the_code_knows_them() -> None:
    set_, twice = stored("Set", b'{"to":1}'), stored("SetTwice", b'{"to":2}')
    assert methods(stored("Seen"), set_, stored("Turned"), stored("?finished"), twice) == ["moved", "moved"]


def test_an_event_that_the_code_does_not_know_is_not_passed_over() -> None:
    with pytest.raises(UnreadableEvent, match="unknown event 'Unset'"):
        methods(stored("Unset"))
