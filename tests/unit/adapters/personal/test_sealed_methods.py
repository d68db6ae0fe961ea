"""Each method of a journal that carries a document is sealed or opened."""

from __future__ import annotations

from sharding_app.adapters.personal.journal import SealedJournal
from sharding_app.ports.journal import Journal

WITHOUT_DOCUMENTS = {
    "close", "connect", "connections", "forget_states", "ids", "is_home", "last_seq", "lineage", "live_in", "locked",
    "marked", "marks", "overdue", "own", "park", "recall", "remember", "remembered_shards", "secure", "set_aside",
    "standing", "stored_shards", "take", "timers", "trim", "trimmable", "unmark",
}  # fmt: skip
"""Methods that carry no event, state, reply or argument, or do not store and return them."""


def test_no_method_with_a_document_passes_by_the_sealing() -> None:
    """A new method of the port has to be named here or sealed: else it stores persons in clear."""
    methods = {name for name in vars(Journal) if not name.startswith("_")}
    sealed = {name for name in vars(SealedJournal) if not name.startswith("_")}
    assert methods - sealed == WITHOUT_DOCUMENTS
