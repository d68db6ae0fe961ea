"""Events in calls: as few as possible, and those of each entity in their order."""

from sharding_app.protocol.projection.batches import batches


def test_each_call_is_for_one_handler_and_no_event_of_an_entity_overtakes_another() -> None:
    items = [
        ("a", "add", 1), ("a", "take", 2), ("b", "add", 3), ("a", "add", 4), ("c", "take", 5), ("b", "add", 6),
    ]  # fmt: skip
    assert list(batches(items)) == [("add", [1, 3, 6]), ("take", [2, 5]), ("add", [4])]


def test_without_events_there_are_no_calls() -> None:
    assert list(batches([])) == []
