"""Which commands keep away from each other, since they change where rows of a type lie.

Contract: the locks last as long as their sessions. In the cluster's own database a command that
moves shards of a type is alone, and one that removes or puts back what the type has stored lets
none of them begin. In each journal one command at a time copies rows of the type, or deletes
copies: its session there may outlast that in the cluster's own database. While an erasure goes
through left copies of the type, no move of it begins: the erasure has looked where shards lie. One
command at a time changes the layout of a journal.
"""

import time
from typing import LiteralString

import psycopg

from sharding_app.adapters.postgres.further_journals import Connection

LEAVING_SECONDS = 2.0
"""The server has this time to end the session of a command that has just ended: the next command of
a script is not refused because of it.
"""
LOOK_SECONDS = 0.02


def move_alone(cluster: Connection, type_id: int) -> bool:
    """False: another command moves shards of the type, removes it, or puts rows of it back."""
    return _tried(cluster, "SELECT pg_try_advisory_lock(hashtext('sharding_move_journal'), %s)", type_id)


def partition_alone(journal: Connection) -> bool:
    """False: another command changes the layout of this journal."""
    return _tried(journal, "SELECT pg_try_advisory_lock(hashtext('sharding_partition'), %s)", 0)


def keep_partitioning_away(journal: Connection) -> bool:
    """Until the transaction ends. False: a command changes the layout of this journal."""
    return _tried(journal, "SELECT pg_try_advisory_xact_lock_shared(hashtext('sharding_partition'), %s)", 0)


def keep_moves_away(cluster: Connection, type_id: int) -> bool:
    """False: a command moves shards of the type."""
    return _tried(
        cluster, "SELECT pg_try_advisory_lock_shared(hashtext('sharding_move_journal'), %s)", type_id
    )


def hold_rows(journal: Connection, type_id: int) -> bool:
    """False: another command has copied, or deletes copies, for longer than this one waits for a
    lock.
    """
    try:
        # Where the last one has just left, its session is about to end.
        journal.execute("SELECT pg_advisory_lock(hashtext('sharding_move_journal/rows'), %s)", [type_id])
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def hold_beginnings(cluster: Connection, type_id: int) -> bool:
    """Let a move of shards begin in this transaction. False: an erasure goes through left copies
    for longer than this session waits for a lock.
    """
    try:
        cluster.execute(
            "SELECT pg_advisory_xact_lock(hashtext('sharding_move_journal/begin'), %s)", [type_id]
        )
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def keep_beginnings_away(cluster: Connection, type_id: int) -> None:
    """Let no move of shards begin before this transaction ends."""
    cluster.execute(
        "SELECT pg_advisory_xact_lock_shared(hashtext('sharding_move_journal/begin'), %s)", [type_id]
    )


def _tried(connection: Connection, statement: LiteralString, number: int) -> bool:
    ends = time.monotonic() + LEAVING_SECONDS
    while connection.execute(statement, [number]).fetchall() != [(True,)]:
        if time.monotonic() > ends:
            return False
        time.sleep(LOOK_SECONDS)
    return True
