"""Which ids belong to a page, and how many."""

import pytest

from sharding_app.protocol.listing import PAGE_IDS, WantedIds


@pytest.mark.parametrize(
    ("entity", "taken"),
    [("b2", False), ("b3", False), ("b30", True), ("b4", True), ("bé", True), ("c1", False), ("a9", False)],
)
def test_a_page_takes_ids_of_its_prefix_behind_the_last_one(entity: str, taken: bool) -> None:
    assert WantedIds("b", "b3").takes(entity) is taken


@pytest.mark.parametrize(
    ("limit", "most"), [(-1, 1), (0, 1), (7, 7), (PAGE_IDS, PAGE_IDS), (PAGE_IDS + 1, PAGE_IDS)]
)
def test_a_page_has_at_least_one_id_and_no_more_than_a_home_gives(limit: int, most: int) -> None:
    assert WantedIds("", "", limit).most == most
