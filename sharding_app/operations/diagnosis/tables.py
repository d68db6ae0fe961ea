"""Tables and locks: dead rows that no vacuum removes, transaction numbers that run out, waits."""

from collections.abc import Iterator

from sharding_app.operations.console import age_text
from sharding_app.operations.database_health import WRAPAROUND
from sharding_app.operations.diagnosis.finding import Finding, error, note, warning
from sharding_app.operations.diagnosis.look import Look

DEAD_SHARE = 0.25
DEAD_ROWS = 100_000
"""Fewer dead rows cost nothing that is worth a finding."""
WAIT_SECONDS = 5.0
"""The default time limit of callers."""
NAMED = 5


def examine(look: Look) -> Iterator[Finding]:
    database = look.database
    health = None if database is None else database.health
    if database is None or health is None:
        return
    where = f"database {database.alias!r}"
    if database.copying_journal and not database.partitioning:
        yield warning(
            "D139", "The layout of the journal was being changed, and the command has stopped in the middle. Each append still "
            "notes its rows for the copy.", where,
            "Run the same manage.py sharding_partition again, or manage.py sharding_partition --cancel.",
        )  # fmt: skip
    elif database.former_journal and not database.partitioning:
        yield warning(
            "D139", "The layout of the journal was changed, and the former table sharding_event_before is still there.", where,
            "Run the same manage.py sharding_partition again: it drops that table.",
        )  # fmt: skip
    elif database.unpartitioned and not database.partitioning:
        yield note(
            "D139", "PARTITION_JOURNAL is True, and sharding_event is one table.", where,
            "The setting is for the first migrate. Run manage.py sharding_partition --by-type, or remove the setting.",
        )  # fmt: skip
    if health.age > WRAPAROUND / 2:
        yield error(
            "D136", f"The oldest transaction number is {health.age:,} transactions old: at {WRAPAROUND:,} PostgreSQL "
            "refuses all writes.", where,
            "See D131 to D133 for what holds VACUUM up, then run: VACUUM (FREEZE) as the database's owner.",
        )  # fmt: skip
    elif health.age > 2 * health.freeze_max_age:
        yield warning(
            "D136", f"The oldest transaction number is {health.age:,} transactions old, and autovacuum_freeze_max_age is "
            f"{health.freeze_max_age:,}: VACUUM does not keep up.", where,
            "See D131 to D133 for what holds VACUUM up, and give autovacuum more workers or a higher cost limit.",
        )  # fmt: skip
    for table in health.tables:
        dead = table.dead_rows
        if dead >= DEAD_ROWS and dead > DEAD_SHARE * (table.live_rows + dead):
            when = (
                "never, as far as the statistics know"
                if table.vacuumed_seconds is None
                else f"{age_text(table.vacuumed_seconds)} ago"
            )
            yield warning(
                "D137", f"{table.name} has {dead:,} dead rows beside {table.live_rows:,}; its last vacuum was {when}.", where,
                f"After a large deletion run: VACUUM (ANALYZE) {table.name}; otherwise see D131 to D133 for what holds VACUUM "
                "up.",
            )  # fmt: skip
    for wait in [each for each in health.waits if each.seconds >= WAIT_SECONDS][:NAMED]:
        about = f" in {wait.tables}" if wait.tables else ""
        yield warning(
            "D138", f"{_who(wait.application, wait.user, wait.pid)} has waited {age_text(wait.seconds)} for a lock{about}, "
            f"behind {_who(wait.holder, wait.holder_user, wait.holder_pid)}, {wait.holder_state or 'working'}.", where,
            "End the holder's transaction in its program"
            + (f", or run: SELECT pg_terminate_backend({wait.holder_pid});" if wait.holder_pid else "."),
        )  # fmt: skip


def _who(application: str, user: str, pid: int | None) -> str:
    return f"{application or 'a session'} of role {user!r} (process {pid})"
