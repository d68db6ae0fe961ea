"""In which journal an entity lies."""

from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.whereabouts import Whereabouts

SECOND = "journal_b"


def test_an_id_leads_to_its_present_shard_whatever_its_rows_say() -> None:
    """Rows of before a resize have the shard of that time."""
    numbering = Numbering(8)
    shard = numbering.shard_of("a")
    places = Whereabouts(numbering, {shard: SECOND})
    assert places.journal_of("a", (shard + 1) % 8) == SECOND
    other = next(each for each in map(str, range(100)) if numbering.shard_of(each) != shard)
    assert places.journal_of(other, shard) == ""


def test_where_an_extractor_decides_the_row_says_the_shard() -> None:
    places = Whereabouts(None, {3: SECOND})
    assert places.journal_of("a", 3) == SECOND
    assert places.journal_of("a", 4) == ""


def test_without_further_journals_all_lie_in_the_cluster_s_own() -> None:
    assert Whereabouts(Numbering(8), {}).journal_of("a", 1) == ""
