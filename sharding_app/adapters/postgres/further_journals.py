"""The further journals of a cluster, for the commands of operators: where shards lie, and how a
journal learns that nothing is written there at an earlier epoch.

Contract: the coordinator's row is raised first, and then the row in the shard's journal (`stand`).
A home takes a shard in its journal before it writes or reads there. So a transaction there that
holds the row, at the epoch that the command has raised, meets no home's work.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg

from sharding_app.adapters.postgres.connection import Conninfo, open_session
from sharding_app.adapters.postgres.failed_database import alias_of, of_database
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.protocol.ids import Epoch, ShardId
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.whereabouts import Whereabouts

Connection = psycopg.Connection[tuple[Any, ...]]
Further = Mapping[str, Conninfo]
"""The ways to further journals, by their names."""
NONE: Further = {}
CONNECT_SECONDS = 10


class JournalDown(psycopg.OperationalError):
    """A journal that a command needs cannot be reached. Nothing was done there."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(f"the journal {name!r} cannot be reached: {error}")
        self.name = name


class WrongJournal(psycopg.DataError):
    """A journal's types are not those of the cluster. Nothing was done there."""

    def __init__(self, type_name: str) -> None:
        super().__init__(f"the journal knows {type_name!r} by another number: it is that of another cluster")


class UnknownJournals(Exception):
    """Shards lie in journals that this process's settings do not name. Nothing was done."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        super().__init__(
            f"Shards lie in {', '.join(map(repr, self.names))}, and SHARDING['JOURNALS'] of this process does not name it. "
            "Give this process the settings of the nodes."
        )


class JournalsUnread(UnknownJournals):
    """DATABASE may have lost in which journals shards lie. Nothing was done."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        Exception.__init__(
            self,
            "The database of DATABASE has gone on in another lineage, and may have lost in which journals shards lie. Start a "
            f"node once, with all journals up ({', '.join(map(repr, self.names))}): its coordinator reads that. Then run this again.",
        )


class JournalsElsewhere(UnknownJournals):
    """Ways lead to other databases than the cluster knows by these names. Nothing was done."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted(names))
        named = ", ".join(map(repr, self.names))
        Exception.__init__(
            self,
            f"The way to {named} leads to another database than the cluster knows: a former one, or a copy. Give this process "
            "the settings of the nodes; manage.py sharding_journals says more.",
        )


def refuse_elsewhere(cluster: Conninfo, further: Further) -> None:
    """Raise JournalsElsewhere if a way leads to a database that nodes would not use. A command
    would read a former state there, or delete in it what stays where it lies. A journal that does
    not answer is passed over. Raises psycopg.Error.
    """
    if not further:
        return
    with open_session(cluster, "journals") as connection:
        places = {name: place for name, place, _ in rows(connection, "journals_known", {}) if place}
    elsewhere = []
    for name in further.keys() & places.keys():
        with suppress(JournalDown), opened(name, further, "journals", read_only=True) as journal:
            if rows(journal, "journal_lies", {}) != [(places[name],)]:
                elsewhere.append(name)
    if elsewhere:
        raise JournalsElsewhere(elsewhere)


def used(connection: Connection, further: Further, types: Sequence[str] | None = None) -> list[str]:
    """Return the further journals in which shards of these types lie. Raises UnknownJournals,
    psycopg.Error.
    """
    refuse_unread(connection)
    return _known(further, rows(connection, "journals_used", {"types": types}))


def with_copies(connection: Connection, further: Further, types: Sequence[str] | None = None) -> list[str]:
    """Return those, and the ones in which a move has made a copy of shards of these types. Raises
    UnknownJournals, psycopg.Error.
    """
    refuse_unread(connection)
    return _known(further, rows(connection, "journals_with_copies", {"types": types}))


def refuse_unread(connection: Connection) -> None:
    """Raise JournalsUnread while rows of shards may be lost that have events in further journals. A
    command would not find these, or take them for a copy.
    """
    if names := [name for (name,) in rows(connection, "journals_unread", {})]:
        raise JournalsUnread(names)


def _known(further: Further, found: Sequence[tuple[str]]) -> list[str]:
    names = [name for (name,) in found]
    if unknown := set(names) - further.keys():
        raise UnknownJournals(unknown)
    return names


@contextmanager
def opened(name: str, further: Further, purpose: str, *, read_only: bool = False) -> Iterator[Connection]:
    """Give a connection to a further journal. Raises JournalDown."""
    connection = connect(name, further, purpose, read_only=read_only)
    with connection:
        yield connection


def connect(name: str, further: Further, purpose: str, *, read_only: bool = False) -> Connection:
    """Connect to a further journal. Raises JournalDown. Errors of the connection name it."""
    try:
        patient = {"connect_timeout": CONNECT_SECONDS, **further[name]}
        connection = open_session(patient, purpose)
    except psycopg.OperationalError as error:
        raise JournalDown(name, error) from error
    connection.alias = name
    connection.read_only = read_only
    return connection


def epochs(
    connection: Connection, type_id: int, shards: Sequence[ShardId] | None = None, journal: str | None = None
) -> dict[ShardId, tuple[Epoch, str | None]]:
    """Return epochs and homes by the coordinator's rows."""
    wanted = {"type_id": type_id, "shards": shards, "journal": journal}
    return {shard: (epoch, home) for shard, epoch, home in rows(connection, "journal_epochs", wanted)}


def whereabouts_of(row: Sequence[Any]) -> Whereabouts:
    """Return a row of `whereabouts`."""
    by_hash, *numbers, shards, journals = row
    numbering = Numbering(*numbers) if by_hash else None
    return Whereabouts(numbering, dict(zip(shards, journals, strict=True)))


def stand(
    cluster: Connection,
    journal: Connection,
    type_name: str,
    type_id: int,
    raised: Mapping[ShardId, Epoch],
    *,
    copied: bool = False,
) -> bool:
    """Let nothing be written in a further journal at an earlier epoch than these. False: a later
    epoch has one of the shards there. `copied`: a move makes their rows there. Raises WrongJournal.
    """
    number, wanted, resized, revision = rows(cluster, "journal_numbers", {"type_id": type_id})[0]
    kind = {
        "type": type_name, "type_id": type_id, "number": number, "wanted": wanted, "resized": resized,
        "revision": revision,
    }  # fmt: skip
    ordered = sorted(raised)
    given = {
        "type_id": type_id, "shards": ordered, "epochs": [raised[each] for each in ordered],
        "step": "copied" if copied else "stopped",
    }  # fmt: skip
    with journal.transaction():
        journal.execute(QUERIES["journal_kind"], kind)
        if not rows(journal, "journal_refile", kind):
            with of_database(alias_of(journal)):
                raise WrongJournal(type_name)
        stands = len(rows(journal, "journal_stand", given)) == len(ordered)
        # What a move has taken out lies in the journal again: an erasure has to find it, and the
        # move cannot come to its switch behind these epochs.
        rows(journal, "unstash", given)
        return stands


def rows(connection: Connection, query: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return connection.execute(QUERIES[query], params).fetchall()
