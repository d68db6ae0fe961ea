"""PostgreSQL's settings, the way to it, its room for connections, and the migrations.

fsync, full_page_writes, versions, encodings, fences and poolers are system checks already, with their own ids.
"""

from collections.abc import Iterator

from sharding_app.doctor.finding import Finding, error, note, warning
from sharding_app.doctor.look import DatabaseLook, Look
from sharding_app.management.console import counted
from sharding_app.management.status import moved_on_at

NODE_CONNECTIONS = 6
"""As docs/running.md counts them."""
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
            "Newer code has been here. While a release rolls out that is as it should be; else update the code here.",
        )  # fmt: skip
    if database.other_place:
        yield error(
            "D113",
            f"SHARDING['LIFELINE_DATABASE'] leads to another database than {database.alias!r}: {database.other_place}.",
            "DATABASES",
            "Both aliases must lead to the same database of the same server: the one may go through a pooler, the other "
            "not.",
        )  # fmt: skip


def settings(look: Look) -> Iterator[Finding]:
    database = look.database
    if database is None:
        return
    said, where = database.settings, f"server of {database.alias!r}"
    if said.get("session_replication_role", "origin") == "replica":
        yield error(
            "D121", "session_replication_role is 'replica' for this role: the fence does not fire, so that two nodes "
            "could write one entity.", where,
            "ALTER ROLE ... RESET session_replication_role; then restart the nodes.",
        )  # fmt: skip
    if said.get("default_transaction_read_only") == "on":
        yield error(
            "D122", "default_transaction_read_only is on: nothing can be written.", where,
            "Name the primary in DATABASES, or ALTER ROLE/DATABASE ... RESET default_transaction_read_only.",
        )  # fmt: skip
    if said.get("autovacuum") == "off":
        yield error(
            "D123", "autovacuum is off: the cluster's small tables are rewritten all the time and grow without it.", where,
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
            "D125", f"synchronous_commit is {said['synchronous_commit']!r}. The journal's own sessions set it to 'on'; what "
            "your code writes through Django may be lost in a crash.", where,
            "Nothing to do for the journal. Set synchronous_commit = on if your other tables matter as much.",
        )  # fmt: skip


def lineage(look: Look) -> Iterator[Finding]:
    """A server that lacks the tail of another one has taken its place, or has been restored to an older point."""
    cluster = look.cluster
    at = None if cluster is None else moved_on_at(cluster.coordinator.term, cluster.now)
    if at is not None:
        yield note(
            "D135", f"PostgreSQL went on in another lineage at {at:%Y-%m-%d %H:%M} UTC: another timeline, or another system.",
            "cluster",
            "After a failover to an asynchronous standby, or a restore, what the server lacked of the last events is gone, with "
            "answers that were given: compare with your own books. The nodes have read their entities again.",
        )  # fmt: skip


def rights(look: Look) -> Iterator[Finding]:
    """What the role may do, and who else may connect."""
    database = look.database
    if database is None:
        return
    where = f"server of {database.alias!r}"
    if database.superuser:
        yield note(
            "D129", "The application's role is a superuser: a mistake or an intruder in it may switch the fence off, and read "
            "and run anything on the server.", where,
            "Give nodes and web processes roles of their own: docs/roles.md has the statements.",
        )  # fmt: skip
    if database.public_may_connect:
        yield note(
            "D130", "Every role of the server may connect to the database: it sees the nodes' names, and may take a lock that "
            "one of them has lost.", where,
            "REVOKE CONNECT ON DATABASE ... FROM PUBLIC; and grant it to the roles of docs/roles.md.",
        )  # fmt: skip


def connections(look: Look) -> Iterator[Finding]:
    """Six for each node, and room for one that is being replaced."""
    database = look.database
    if database is None:
        return
    room = _room(database)
    if room <= 0:
        return
    used = len(database.sessions)
    members = look.cluster.members if look.cluster is not None else ()
    ours = sum(each.application.startswith("sharding/n-") for each in database.sessions)
    needed = NODE_CONNECTIONS * (len(members) + 1)
    told = (
        f"{used} of {room} connections are in use; {counted(len(members), 'node')} and one that is being replaced need "
        f"{needed}, all others have {used - ours} now"
    )
    where = f"server of {database.alias!r}"
    fix = (
        "Raise max_connections and restart the server, or give Django a pooler and the lifeline a direct way "
        "(SHARDING['LIFELINE_DATABASE'])."
    )
    if used >= FULL * room:
        yield error("D127", f"The server is nearly out of connections: {told}.", where, fix)
    elif needed + used - ours > room:
        yield warning(
            "D128", f"max_connections leaves no room for a node to be replaced: {told}.", where, fix
        )


def _room(database: DatabaseLook) -> int:
    """What ordinary roles can get."""
    numbers = [
        int(database.settings.get(name, "0") or 0)
        for name in ("max_connections", "superuser_reserved_connections", "reserved_connections")
    ]
    return numbers[0] - numbers[1] - numbers[2]
