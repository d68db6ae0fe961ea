"""PostgreSQL's settings, its connections, and the migrations.

System checks cover fsync, full_page_writes, versions, encodings, fences and poolers.
"""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta

from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.finding import Finding, error, note, warning
from sharding_app.operations.diagnosis.journal_databases import beside_the_cluster, needed_connections
from sharding_app.operations.diagnosis.look import DatabaseLook, Look
from sharding_app.protocol.coordinator.terms import era_began
from sharding_app.protocol.ids import Term

OTHER_CONNECTIONS = 5
"""Connections per node beside those for appends, as counted in docs/running.md."""
LATELY = timedelta(days=7)
"""How long a failover of the database is reported."""
FULL = 0.9
_WEAK_COMMITS = ("off", "local", "remote_write")


def migrations(look: Look) -> Iterator[Finding]:
    database = look.database
    if database is None:
        return
    if database.missing_migrations:
        yield error(
            "D111", f"Migrations are missing: {', '.join(database.missing_migrations)}.", f"database {database.alias!r}",
            f"Run: manage.py migrate --database {database.alias}",
        )  # fmt: skip
    if database.unknown_migrations:
        yield note(
            "D112",
            f"The database has migrations that this code does not know: {', '.join(database.unknown_migrations)}.",
            f"database {database.alias!r}",
            "Nothing, while a newer release rolls out. Otherwise update the code here.",
        )  # fmt: skip
    if database.other_place:
        yield error(
            "D113",
            f"SHARDING['LIFELINE_DATABASE'] is another database than {database.alias!r}: {database.other_place}.",
            "DATABASES",
            "Both aliases must name the same database of the same server. Only DATABASE may use a pooler.",
        )  # fmt: skip


def settings(look: Look) -> Iterator[Finding]:
    database = look.database
    if database is None:
        return
    said, where = database.settings, f"server of {database.alias!r}"
    if said.get("session_replication_role", "origin") == "replica":
        yield error(
            "D121", "session_replication_role is 'replica' for this role: the fence does not fire, and two nodes could "
            "write one entity.", where,
            "ALTER ROLE ... RESET session_replication_role; then restart the nodes.",
        )  # fmt: skip
    if said.get("default_transaction_read_only") == "on":
        yield error(
            "D122", "default_transaction_read_only is on: nothing can be written.", where,
            "Use the primary in DATABASES, or ALTER ROLE/DATABASE ... RESET default_transaction_read_only.",
        )  # fmt: skip
    if said.get("autovacuum") == "off":
        yield error(
            "D123", "autovacuum is off: the cluster's small tables change all the time and grow without it.", where,
            "Set autovacuum = on in postgresql.conf and reload the server.",
        )  # fmt: skip
    if database.unvacuumed:
        tables = ", ".join(database.unvacuumed)
        yield error(
            "D124", f"autovacuum is switched off for {tables}.", where,
            f"ALTER TABLE {database.unvacuumed[0]} RESET (autovacuum_enabled);",
        )  # fmt: skip
    if said.get("synchronous_commit") in _WEAK_COMMITS:
        yield note(
            "D125", f"synchronous_commit is {said['synchronous_commit']!r}. The journal's sessions set it to 'on'. Other "
            "writes of your project may be lost in a crash.", where,
            "Nothing for the journal. Set synchronous_commit = on if your other tables need it too.",
        )  # fmt: skip


def moved_on_at(term: Term, now: datetime) -> datetime | None:
    """Return the time of the last failover or restore of the database, if it was recent."""
    seconds = era_began(term)
    at = None if seconds is None else datetime.fromtimestamp(seconds, now.tzinfo)
    return at if at is not None and now - at < LATELY else None


def lineage(look: Look) -> Iterator[Finding]:
    """Report that a server lacking the last events took over, or was restored to an earlier
    point.
    """
    cluster = look.cluster
    at = None if cluster is None else moved_on_at(cluster.coordinator.term, cluster.now)
    if at is not None:
        yield note(
            "D135", f"PostgreSQL has continued from another copy since {at.astimezone(UTC):%Y-%m-%d %H:%M} UTC (another timeline or system).",
            "cluster",
            "After a failover to an asynchronous standby, or a restore, the last acknowledged events may be missing. "
            "Compare with your own records. The nodes have reloaded their entities.",
        )  # fmt: skip


def rights(look: Look) -> Iterator[Finding]:
    """Report a superuser role, and a database open to every role."""
    database = look.database
    if database is None:
        return
    where = f"server of {database.alias!r}"
    if database.superuser:
        yield note(
            "D129", "The application's role is a superuser: a mistake or an intruder in it can disable the fence, and read "
            "and run anything on the server.", where,
            "Create roles that are no superusers: one owns the tables, one is for nodes, and one for web processes.",
        )  # fmt: skip
    if database.public_may_connect:
        yield note(
            "D130", "Every role of the server may connect to the database: it sees the nodes' names, and can take a lock that "
            "a node has lost.", where,
            "REVOKE CONNECT ON DATABASE ... FROM PUBLIC; and grant it to the roles of nodes, web processes and migrations.",
        )  # fmt: skip


def connections(look: Look) -> Iterator[Finding]:
    """Compare the connections with the need: those of each node, and of one being replaced."""
    database = look.database
    if database is None:
        return
    room = _room(database)
    if room <= 0:
        return
    used = len(database.sessions)
    members = look.cluster.members if look.cluster is not None else ()
    ours = sum(each.application.startswith("sharding/n-") for each in database.sessions)
    of_one = OTHER_CONNECTIONS + look.limits.journal_connections
    of_one += needed_connections(look, beside_the_cluster(look))
    needed = of_one * (len(members) + 1)
    told = (
        f"{used} of {room} connections are in use; {counted(len(members), 'node')} and one replacement need "
        f"{needed}, other clients use {used - ours}"
    )
    where = f"server of {database.alias!r}"
    fix = (
        "Raise max_connections and restart the server, or use a pooler for Django and a direct alias for the lifeline "
        "(SHARDING['LIFELINE_DATABASE'])."
    )
    if used >= FULL * room:
        yield error("D127", f"The server has almost no connections left: {told}.", where, fix)
    elif needed + used - ours > room:
        yield warning("D128", f"max_connections leaves no room to replace a node: {told}.", where, fix)


def _room(database: DatabaseLook) -> int:
    """Return the number of connections for ordinary roles."""
    return room_of(database.settings)


def room_of(settings: Mapping[str, str]) -> int:
    """Return the number of connections for ordinary roles, by a server's settings."""
    numbers = [
        int(settings.get(name, "0") or 0)
        for name in ("max_connections", "superuser_reserved_connections", "reserved_connections")
    ]
    return numbers[0] - numbers[1] - numbers[2]
