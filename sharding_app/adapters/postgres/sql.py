"""The statements of this room: each is a file in `queries/`, read once, known by its name."""

from importlib import resources

HIGHEST = "\U0010ffff" * 128
"""No entity's id is greater: this one has 512 bytes."""
SERVER = b"""
    to_char(pg_postmaster_start_time() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        || COALESCE('/' || extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time())::text, ''),
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint,
    (SELECT system_identifier::text FROM pg_control_system())"""
"""Expression for the run of a server (`Server`). When one server process crashes, Postgres ends all
sessions and frees all locks without a new start time: the statistics, which such a recovery resets,
show it. The timeline is that of the write-ahead log now, not of the last checkpoint; on a standby
this fails, as it should."""


def _load() -> dict[str, bytes]:
    folder = resources.files(__package__).joinpath("queries")
    return {
        entry.name.removesuffix(".sql"): entry.read_bytes().replace(b"@server@", SERVER.strip())
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    }


QUERIES = _load()
