"""Pages that were begun before a row of theirs was ended: no row is looked at before the handler of
an entity in memory, so such a row must not come back.
"""

import pytest

from tests.unit.protocol.delivery.harness import machine, message, sent, timer


@pytest.mark.parametrize("replaced", [False, True], ids=["cancelled", "replaced"])
def test_a_timer_that_was_ended_since_the_page_began_does_not_come_back(replaced: bool) -> None:
    found = machine(complete=False)
    found.read_begins()
    if replaced:
        found.staged([timer("new", 60.0)], 1.0)
    else:
        found.cancelled("a", "closing")
    found.page([timer("old", 2.0), timer("other", 2.0, key="other")], more=False, next_due=None, now=1.5)
    found.tick(3.0)
    assert sent(found) == ["other"]
    assert found.room_to_read(3.0), "a row that came after it may have been left out too"
    found.read_begins()
    found.page([timer("newer", 4.0)], more=False, next_due=None, now=3.5)
    found.tick(5.0)
    assert sent(found) == ["newer"], "the next page was begun behind it"


def test_nothing_of_an_entity_that_was_erased_since_the_page_began_comes_back() -> None:
    found = machine(complete=False)
    found.read_begins()
    found.erased("a")
    rows = [timer("t", 2.0), message("m"), message("other", owner="c", target="d")]
    found.page(rows, more=False, next_due=None, now=1.5)
    found.tick(3.0)
    assert sent(found) == ["other"]
    assert found.room_to_read(3.0)


def test_what_was_ended_before_the_page_began_hides_nothing() -> None:
    found = machine()
    found.cancelled("a", "closing")
    found.look()
    found.read_begins()
    found.page([timer("later", 2.0)], more=False, next_due=None, now=1.5)
    found.tick(3.0)
    assert sent(found) == ["later"]
    assert not found.room_to_read(3.0)
