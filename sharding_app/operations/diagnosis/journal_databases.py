"""Several journals: each answers, is this cluster's, lies where the cluster knows it, is fenced,
and has room for the nodes' connections.
"""

from collections.abc import Iterator

from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.finding import Finding, error, note, warning
from sharding_app.operations.diagnosis.look import FurtherLook, Look
from sharding_app.operations.each_journal import journal_name
from sharding_app.operations.journals import JournalFacts

ABANDONED_SECONDS = 600.0
"""A copy that is this old, and that no command works on, is reported."""
MOST_TOLD = 10
FURTHER_CONNECTIONS = 3
"""Connections of a node to a further journal beside those for appends: recovery, reads, and a watch
over it.
"""


def down(look: Look) -> Iterator[Finding]:
    """Report journals that do not answer, and those that the settings here do not name."""
    cluster = look.cluster
    for each in cluster.journals if cluster is not None else ():
        if each.shards and each.name not in look.limits.journals and each.name:
            yield error(
                "D105", f"{counted(each.shards, 'shard')} {_lie(each.shards)} in the journal {each.name!r}, which "
                "SHARDING['JOURNALS'] here does not name.", "SHARDING['JOURNALS']",
                "Give every process the same JOURNALS. A journal in which shards lie stays in it, with the weight 0 if it shall "
                "get no new ones. Nodes without it start none of these shards.",
            )  # fmt: skip
        elif each.trouble:
            yield error(
                "D104", f"The journal {each.name!r} does not answer, and {counted(each.shards, 'shard')} {_lie(each.shards)} in "
                f"it: {each.trouble.rstrip('.')}.", f"database {each.name!r}",
                "Start its server, or correct DATABASES. Until then its entities answer nothing and store nothing. Those of "
                "other journals go on. Nodes need no restart.",
            )  # fmt: skip


def unread(look: Look) -> Iterator[Finding]:
    """Report that shards without a row wait, since journals were not read after a failover."""
    if look.cluster is not None and look.cluster.has_unread_journals:
        yield error(
            "D108", "The database of DATABASE has gone on in another lineage, and the coordinator has not read yet which shards lie "
            "in the further journals. No shard gets its first home, and no resize goes on.", "SHARDING['JOURNALS']",
            "Start the journals that are down, and give the coordinator's node the same JOURNALS as all others: its log says "
            "which journal it waits for (journals_unread). Shards that have had a home go on.",
        )  # fmt: skip


def usable(look: Look) -> Iterator[Finding]:
    """Report why nodes do not use a journal that answers."""
    cluster_id = look.cluster.cluster_id if look.cluster is not None else ""
    for further in look.further:
        facts, where = further.facts, f"database {further.facts.alias!r}"
        if not facts.name or facts.trouble:
            continue
        if facts.missing_migrations:
            yield error(
                "D114", f"The journal {facts.name!r} has not all migrations: {', '.join(facts.missing_migrations)} missing.",
                where, f"Run: manage.py migrate --database {facts.alias} sharding",
            )  # fmt: skip
            continue
        if not facts.belongs_to(cluster_id):
            whose = (
                "has a cluster of its own"
                if facts.own_cluster
                else f"is a journal of the cluster {facts.owner}, and this one is {cluster_id}"
            )
            yield error(
                "D115", f"The database of the journal {facts.name!r} {whose}. Nodes do not use it.", where,
                "Name another database. Each cluster needs databases of its own. If DATABASE was restored, its journals can go with "
                "it: see the documentation of backups.",
            )  # fmt: skip
        elif facts.other:
            yield error(
                "D115", f"The alias {facts.alias!r} leads to the database of the journal {facts.other!r}. Nodes do not use it.",
                where, "Name another database. Each journal needs a database of its own.",
            )  # fmt: skip
        elif facts.elsewhere:
            yield error(
                "D116", f"The alias {facts.name!r} leads to {facts.place}, and the cluster knows that journal at "
                f"{facts.known_place}. Nodes do not use it.", where,
                "Correct DATABASES. If its data was moved there, stop the nodes and run: manage.py sharding_journals --adopt "
                f"{facts.name}",
            )  # fmt: skip
        if further.unfenced:
            yield error(
                "D117", f"The fence of the journal {facts.name!r} is missing or off on {', '.join(further.unfenced)}: two nodes "
                "could write one entity.", where,
                "Switch the triggers on (ALTER TABLE ... ENABLE TRIGGER), or make the tables with migrate. See sharding.E013.",
            )  # fmt: skip
        if further.lost_triggers:
            yield error(
                "D117", f"The journal {facts.name!r} has triggers that are missing or off: {', '.join(further.lost_triggers)}. "
                "Messages and timers of a type would stay undelivered, or its events find no partition.", where,
                "Switch them on (ALTER TABLE ... ENABLE TRIGGER), or make the tables with migrate. See sharding.E013.",
            )  # fmt: skip


def connections(look: Look) -> Iterator[Finding]:
    """Compare the connections of each further server with the nodes' need: those of each node to
    its journals there, and of one node that is replaced.
    """
    members = len(look.cluster.members) if look.cluster is not None else 0
    for server, there in _servers(look).items():
        if server == _server(_own(look)):
            continue  # counted with the cluster's own database
        one = there[0]
        needed = needed_connections(look, len(there)) * (members + 1)
        told = (
            f"{one.sessions} of {one.room} connections are in use; {counted(members, 'node')} and one replacement need {needed}, "
            f"other clients use {one.sessions - one.ours}"
        )
        if one.room > 0 and needed + one.sessions - one.ours > one.room:
            names = ", ".join(repr(each.facts.alias) for each in there)
            yield warning(
                "D118", f"The server of {names} leaves no room to replace a node: {told}.", f"server of {names}",
                "Raise its max_connections and restart it.",
            )  # fmt: skip


def copies(look: Look) -> Iterator[Finding]:
    """Report copies that moves have left behind or have not ended, and a move that was lost."""
    for further in look.further:
        facts, where = further.facts, f"database {further.facts.alias!r}"
        for each in facts.moves:
            aim = journal_name(each.target)
            some = counted(each.shards, "shard")
            if each.are_over:
                yield note(
                    "D106", f"{some} of {each.type} {_have(each.shards)} left a copy of {_their(each.shards)} events in the journal "
                    f"{facts.alias!r} since the move to {aim!r}. It takes room, and is used for nothing.", where,
                    f"Delete it when you are sure of the move: manage.py sharding_move_journal {each.type} --delete-source"
                    + (f". If {facts.alias!r} is lost for good, add --gone {facts.alias}" if facts.trouble else ""),
                )  # fmt: skip
            elif not each.at_work and each.seconds > ABANDONED_SECONDS:
                yield warning(
                    "D107", f"{some} of {each.type} {_have(each.shards)} been on the way from {facts.alias!r} to {aim!r} for "
                    f"{each.seconds / 60:.0f} min, and no command is at work. The shards lie where they were; the copy takes room, "
                    "and each append is noted for it.", where,
                    f"Go on: manage.py sharding_move_journal {each.type} --to {aim}. Or take the copy back with --cancel"
                    + (f"; if {aim!r} is lost for good, with --cancel --gone {aim}." if each.target else "."),
                )  # fmt: skip
        if further.refuted and _is_ours(further, look):
            told = ", ".join(f"{kind}/{shard} to {to!r}" for kind, shard, to in further.refuted[:MOST_TOLD])
            yield error(
                "D119", f"The database of DATABASE says that {counted(len(further.refuted), 'shard')} {_lie(len(further.refuted))} "
                f"in the journal {facts.name!r}, but that says that they have moved ({told}): DATABASE has lost the move, with a "
                "failover or a restore. Nodes do not start these shards.", where,
                "Restore DATABASE to a moment after the move. Events since the move are in the journal that is named here.",
            )  # fmt: skip


def deserted(look: Look) -> Iterator[Finding]:
    """Report shards that have a home in two journals: one database has lost that they moved."""
    for further in look.further:
        if not (shards := further.deserted) or not _is_ours(further, look):
            continue
        name = further.facts.name
        told = ", ".join(f"{kind}/{shard} in {journal_name(to)!r}" for kind, shard, to in shards[:MOST_TOLD])
        yield error(
            "D120", f"Homes had {counted(len(shards), 'shard')} in the journal {name!r}, and by the database of DATABASE "
            f"{'it lies' if len(shards) == 1 else 'they lie'} in another one ({told}): one of the two databases has lost a "
            f"move, or DATABASE their rows, with a failover or a restore. Their events in {name!r} are not read.", f"database {further.facts.alias!r}",
            "Stop the nodes, and compare the events of these shards in both journals. Let the shard's row in DATABASE name the one "
            "that has its history (UPDATE sharding_shard SET journal = ...). If that is the one that it names already, let their rows "
            "here have no home (UPDATE sharding_shard SET home = NULL, step = 'stopped', journal = '' ...).",
        )  # fmt: skip


def _is_ours(further: FurtherLook, look: Look) -> bool:
    """Whether what a database says of shards is about this cluster's, by that journal."""
    cluster_id = look.cluster.cluster_id if look.cluster is not None else ""
    return further.facts.belongs_to(cluster_id) and not further.facts.other


def needed_connections(look: Look, journals: int) -> int:
    """Return how many connections a node has to that many further journals."""
    return journals * (FURTHER_CONNECTIONS + look.limits.journal_connections)


def beside_the_cluster(look: Look) -> int:
    """Return how many further journals are on the server of the cluster's own database."""
    return len(_servers(look).get(_server(_own(look)), ()))


def _servers(look: Look) -> dict[str, list[FurtherLook]]:
    found: dict[str, list[FurtherLook]] = {}
    for each in look.further:
        if each.facts.name and each.facts.place:
            found.setdefault(_server(each.facts), []).append(each)
    return found


def _own(look: Look) -> JournalFacts | None:
    return next((each.facts for each in look.further if not each.facts.name), None)


def _server(facts: JournalFacts | None) -> str:
    """Return the server's own identity out of a place."""
    return "" if facts is None else facts.place.partition("/")[0]


def _lie(number: int) -> str:
    return "lies" if number == 1 else "lie"


def _have(shards: int) -> str:
    return "has" if shards == 1 else "have"


def _their(shards: int) -> str:
    return "its" if shards == 1 else "their"
