"""Sessions that block writers or VACUUM.

The cluster rewrites small rows all the time; the longer dead rows stay, the slower it reads them.
"""

from collections.abc import Iterator

from sharding_app.operations.console import age_text
from sharding_app.operations.diagnosis.finding import Finding, warning
from sharding_app.operations.diagnosis.look import Look

LONG_SECONDS = 600.0
HELD_UP_SECONDS = 5.0
"""The default time limit of callers."""


def examine(look: Look) -> Iterator[Finding]:
    database = look.database
    if database is None:
        return
    where = f"database {database.alias!r}"
    for session in database.sessions:
        seconds = session.transaction_seconds or 0.0
        who = f"{session.application or 'a session'} of role {session.user!r} (process {session.pid})"
        if session.holds_up and seconds >= HELD_UP_SECONDS:
            yield warning(
                "D134", f"A transaction of {who} has held locks in {session.holds_up} for up to {age_text(seconds)}, "
                f"{session.state or 'working'}: commits and moves of shards that it has locked wait for it.", where,
                f"End it in its program, or run: SELECT pg_terminate_backend({session.pid});",
            )  # fmt: skip
        if session.holds_snapshot and seconds >= LONG_SECONDS:
            yield warning(
                "D131", f"A transaction of {who} has been open for {age_text(seconds)}, {session.state or 'working'}: VACUUM "
                "cannot remove rows that it may still see.", where,
                f"End it in its program, or run: SELECT pg_terminate_backend({session.pid});",
            )  # fmt: skip
    for prepared in database.prepared:
        if prepared.seconds >= LONG_SECONDS:
            yield warning(
                "D132", f"The prepared transaction {prepared.name!r} has waited for {age_text(prepared.seconds)}: it blocks "
                "VACUUM and holds its locks, even across restarts.", where,
                f"Run COMMIT PREPARED or ROLLBACK PREPARED '{prepared.name}';",
            )  # fmt: skip
    for slot in database.slots:
        if slot.holds_snapshot and not slot.active:
            yield warning(
                "D133", f"The replication slot {slot.name!r} is not in use and retains old rows and write-ahead log.", where,
                f"Start its consumer, or run: SELECT pg_drop_replication_slot('{slot.name}');",
            )  # fmt: skip
