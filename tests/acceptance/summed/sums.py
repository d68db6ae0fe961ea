"""The projection's table beside the journal, as of one moment, and the judge of both.

All accounts of the run are compared, those of earlier rounds too: an event that is handled again
much later is found as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import psycopg

from sharding_app.adapters.django.projections import COUNTED, PartStatus
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.torture.processes import NoAnswer

NAME = "acceptance.Sums"
ROLE = "sums"
TABLE = """
CREATE TABLE summed_account (account text PRIMARY KEY, cents bigint, events bigint, last bigint, displaced bigint)
"""
PROJECTED = "SELECT account, cents, events, last, displaced FROM summed_account"
JOURNAL = """
SELECT e.entity, sum((e.payload->>'cents')::bigint)::bigint, count(*), max(e.seq), 0
FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id WHERE t.name = %s GROUP BY e.entity
"""
MOST_TOLD = 6


class Sum(NamedTuple):
    """All events of an account."""

    account: str
    cents: int
    events: int
    last: int
    "Number of the event that was added last."
    displaced: int = 0
    "Events that did not follow the one before."


class Look(NamedTuple):
    """What one snapshot of the database shows."""

    parts: list[PartStatus]
    journal: list[Sum]
    projected: list[Sum]

    @property
    def caught_up(self) -> bool:
        """The positions have passed all events of the journal."""
        return bool(self.parts) and not any(
            each.is_filling or each.behind_events or each.behind_more or each.waiting for each in self.parts
        )

    @property
    def is_equal(self) -> bool:
        """The table has what the journal has."""
        return _by_account(self.journal) == _by_account(self.projected)


def look(url: str, accounts: str, journal_urls: Sequence[str] = ()) -> Look:
    """Read the positions, the journal of that type and the table. Raises NoAnswer.

    `journal_urls`: those of further journals. What is behind the positions in them, they do not
    tell here: see whether the table becomes equal (`Look.is_equal`).
    """
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            status = {"name": NAME, "most": COUNTED}
            parts = connection.execute(QUERIES["projection_status"], status).fetchall()
            journal = connection.execute(JOURNAL, [accounts]).fetchall()
            projected = connection.execute(PROJECTED).fetchall()
        for journal_url in journal_urls:
            with psycopg.connect(journal_url, connect_timeout=5) as connection:
                journal += connection.execute(JOURNAL, [accounts]).fetchall()
    except psycopg.OperationalError as error:
        raise NoAnswer(str(error)) from error
    return Look(
        [PartStatus(*each[6:18]) for each in parts], [Sum(*each) for each in journal], [Sum(*each) for each in projected]
    )  # fmt: skip


def check_sums(look: Look) -> list[str]:
    """Check promise 17: the projection has passed all events, and its table equals the journal."""
    broken = []
    if not look.caught_up:
        behind, waiting, parked = (
            sum(getattr(each, name) for each in look.parts) for name in ("behind_events", "waiting", "parked")
        )
        broken.append(
            f"promise 17: {NAME} is {behind} events behind in {len(look.parts)} parts; "
            f"{waiting} accounts wait, {parked} of them are parked"
        )
    journal, projected = _by_account(look.journal), _by_account(look.projected)
    differ = sorted(each for each in {*journal, *projected} if journal.get(each) != projected.get(each))
    broken += [
        f"promise 17: {each}: the journal has {_text(journal.get(each))}, {NAME} has {_text(projected.get(each))}"
        for each in differ[:MOST_TOLD]
    ]
    if len(differ) > MOST_TOLD:
        broken.append(f"promise 17: {len(differ) - MOST_TOLD} more accounts differ")
    return broken


def _by_account(sums: Iterable[Sum]) -> dict[str, Sum]:
    return {each.account: each for each in sums}


def _text(found: Sum | None) -> str:
    if found is None:
        return "nothing"
    text = f"{found.cents} cents in {found.events} events up to {found.last}"
    return f"{text}, {found.displaced} of them out of place" if found.displaced else text
