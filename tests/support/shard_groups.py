"""Rows of shards, counted as PostgreSQL counts them for a snapshot."""

from collections.abc import Iterable

from sharding_app.operations.snapshot import ShardGroup
from sharding_app.protocol.records import ShardRow


def groups_of(rows: Iterable[ShardRow]) -> list[ShardGroup]:
    found: dict[tuple[str, str, str | None], list[ShardRow]] = {}
    for row in rows:
        found.setdefault((row.type, row.step, row.home), []).append(row)
    return [
        ShardGroup(
            type=rows[0].type, step=rows[0].step, home=rows[0].home, shards=len(rows),
            epoch=max(row.epoch for row in rows),
        )
        for rows in found.values()
    ]  # fmt: skip
