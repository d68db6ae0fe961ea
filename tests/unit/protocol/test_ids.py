"""Which texts can be ids of entities, and where they hash to."""

import pytest

from sharding_app.protocol.ids import MAX_ENTITY_ID_BYTES, has_no_row, is_entity_id, shard_of


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("a", True),
        ("", False),
        ("a" * MAX_ENTITY_ID_BYTES, True),
        ("a" * (MAX_ENTITY_ID_BYTES + 1), False),
        ("é" * (MAX_ENTITY_ID_BYTES // 2), True),
        ("é" * (MAX_ENTITY_ID_BYTES // 2) + "a", False),
        ("a\0", False),
        ("é\0", False),
        ("\ud800", False),
    ],
)
def test_an_id_is_what_the_tables_take(text: str, fits: bool) -> None:
    assert is_entity_id(text) is fits


def test_places_never_change() -> None:
    """Events carry their shard: another hash would look for them elsewhere."""
    assert [shard_of(text, 1000) for text in ("alice", "bob", "é")] == [735, 104, 326]
    assert shard_of("alice", 7) == 5


def test_a_process_that_only_asks_has_no_row() -> None:
    assert has_no_row("p-web")
    assert not has_no_row("n-p-1")
