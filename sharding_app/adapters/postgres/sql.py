"""The statements of this room: each is a file in `queries/`, read once, known by its name."""

from importlib import resources

HIGHEST = "\U0010ffff" * 128
"""No entity's id is greater: this one has 512 bytes."""
SERVER = b"""
    to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        || COALESCE('/' || extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::text, ''),
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint,
    (SELECT system_identifier::text || ':' || split_part(pg_relation_filepath(1259), '/', -2) FROM pg_control_system())"""
"""Expression for the run of a server (`Server`). When one server process crashes, Postgres ends all
sessions and frees all locks without a new start time: the statistics, which such a recovery resets,
show it. The timeline is that of the write-ahead log now, not of the last checkpoint; on a standby
this fails, as it should. To the system belongs the number of the database: a copy that took its
name holds other rows. The path of each of its files has that number (1259 is pg_class), so no
table is read for it.
"""

_DURABLE = b"""concat(
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
            THEN set_config('synchronous_commit', 'on', %s) END,
        CASE WHEN current_setting('client_min_messages') = 'error'
            THEN set_config('client_min_messages', 'warning', %s) END)"""
"""Expression that makes commits durable, whatever the role or the database has been set to. A
stricter way stays. A commit whose wait for a standby was cancelled shows by a warning alone
(`connection.NotReplicated`)."""
_FILTERED = b"""coalesce(row_security_active(to_regclass('sharding_event'))
        OR row_security_active(to_regclass('sharding_change')), false)"""
"""Expression for whether row-level security leaves events out. It is asked where the setting
`row_security` cannot be, because a user's own rows are read in the same transaction."""
_PLACES = {
    b"@server@": SERVER.strip(),
    b"@filtered@": _FILTERED,
    b"@durable_session@": _DURABLE.replace(b"%s", b"false"),
    b"@durable_transaction@": _DURABLE.replace(b"%s", b"true"),
}


def _load() -> dict[str, bytes]:
    folder = resources.files(__package__).joinpath("queries")
    return {
        entry.name.removesuffix(".sql"): _filled(entry.read_bytes())
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }


def _filled(query: bytes) -> bytes:
    for place, expression in _PLACES.items():
        query = query.replace(place, expression)
    return query


QUERIES = _load()
