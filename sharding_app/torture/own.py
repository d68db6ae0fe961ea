"""The cluster of a run on the project's own servers.

Nodes and loads are children of the command.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from sharding_app.processes.addresses import ADDRESSES
from sharding_app.processes.child_processes import manage
from sharding_app.processes.proxy import Proxy
from sharding_app.protocol.allocation.singleton import SINGLETON
from sharding_app.settings.load import get_settings
from sharding_app.torture.accounts import ACCOUNTS
from sharding_app.torture.cluster import HOME_LOG, NO_HOME_LOG, Cluster
from sharding_app.torture.entities import SHARDS, TICKER, TYPE
from sharding_app.torture.processes import INSTANCES, Load, NoAnswer, Node

OURS = (TYPE, SINGLETON + TICKER, ACCOUNTS)
"""The types of a run. Nothing of other types is ever removed."""
CLEANING = (
    *(
        f"DELETE FROM {table} WHERE type_id IN (SELECT id FROM sharding_type WHERE name IN (%s, %s, %s))"  # noqa: S608
        for table in (
            "sharding_event",
            "sharding_message",
            "sharding_taken",
            "sharding_snapshot",
            "sharding_remembered",
            "sharding_shard",
        )
    ),
    "DELETE FROM sharding_type WHERE name IN (%s, %s, %s)",
    "DELETE FROM sharding_node WHERE types <@ jsonb_build_array(%s::text, %s::text, %s::text)",
)


class OwnCluster(Cluster):
    """Nodes and loads on the servers of this project's settings."""

    type_name = TYPE
    accounts = ACCOUNTS

    def __init__(self, place: Path, seed: int, options: tuple[str, ...] = ()) -> None:
        """`options`: those of manage.py, for its children."""
        super().__init__(place, seed, SHARDS)
        self.alias = get_settings().database
        self.journals = ("", *get_settings().further_journals)
        self._options = options
        self._expected = 1
        self._decisions = 0
        "Id of the last one before the run."
        self._claim: BaseDatabaseWrapper | None = None
        "The connection that holds the lock of the run."

    # -- Processes ---------------------------------------------------------------------------------

    def expect(self, nodes: int) -> None:
        self._expected = nodes

    def node(self, name: str, extra: Iterable[str]) -> Node:
        command = self._command(f"--as-node={name}", self.proxies.get(name, {}))
        rest = ["--", *extra]
        return Node(name, [*command, *rest], self._environment(), self.place / f"node-{name}.log")

    def load(self, number: int, through: Mapping[str, Proxy], **options: object) -> Load:
        command = [*self._command("--as-load", through), "--"]
        log = self.place / f"load-{number}.log"
        return Load(
            self.place / f"history-{number}.jsonl", command, self._environment(), log, None, **options
        )

    def _command(self, which: str, through: Mapping[str, Proxy]) -> list[str]:
        ports = json.dumps({server: proxy.port for server, proxy in through.items()})
        return manage(
            "sharding_torture", which, f"--through={ports}", f"--expect={self._expected}", *self._options
        )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, INSTANCES: str(self.instances), "PYTHONUNBUFFERED": "1"}

    def address(self, server: str) -> tuple[str, int]:
        return ADDRESSES[server]()

    # -- The database ------------------------------------------------------------------------------

    def others(self) -> list[str]:
        """Return the names of nodes and types that are not ours: a run must not use their
        database.
        """
        nodes = "SELECT name FROM sharding_node WHERE NOT types <@ jsonb_build_array(%s::text, %s::text, %s::text)"
        types = "SELECT name FROM sharding_type WHERE name NOT IN (%s, %s, %s)"
        return sorted(name for query in (nodes, types) for (name,) in self.sql(query, *OURS))

    def claim(self) -> bool:
        """Lock the database for this run, unless another one is at work there: each would remove
        the rows of the other. Raises NoAnswer.
        """
        connection = self._connection()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_try_advisory_lock(hashtextextended('sharding_torture', 0))")
                (is_ours,) = cursor.fetchone()
        except DatabaseError as error:
            connection.close()
            raise NoAnswer(str(error)) from error
        if is_ours:
            self._claim = connection
        else:
            connection.close()
        return bool(is_ours)

    def release(self) -> None:
        """Give the lock back: nothing of the run is left."""
        if self._claim is not None:
            self._claim.close()

    def prepare(self) -> None:
        """Remove the remains of a run that was killed, and log each change of a home until `clean`.

        Raises NoAnswer.
        """
        self._decisions = self.sql("SELECT coalesce(max(id), 0) FROM sharding_decision")[0][0]
        self.clean()
        self.sql(HOME_LOG)

    def clean(self) -> None:
        """Remove everything that the run has stored. Raises NoAnswer."""
        self.sql(NO_HOME_LOG)
        for statement in CLEANING:
            self.everywhere(statement, *OURS)
        self.sql("DELETE FROM sharding_decision WHERE id > %s", self._decisions)

    def sql(self, statement: str, *parameters: object, journal: str = "") -> list[tuple[Any, ...]]:
        connection = self._connection(journal)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, cast("Sequence[str]", parameters) or None)
                return list(cursor.fetchall()) if cursor.description is not None else []
        except DatabaseError as error:
            raise NoAnswer(str(error)) from error
        finally:
            connection.close()

    def hold(self, statement: str) -> BaseDatabaseWrapper:
        connection = self._connection()
        try:
            connection.set_autocommit(False)
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '2s'")
                cursor.execute(statement)
        except DatabaseError as error:
            connection.close()
            raise NoAnswer(str(error)) from error
        return connection

    def _connection(self, journal: str = "") -> BaseDatabaseWrapper:
        """Return a new connection: a fault breaks no other use."""
        return connections.create_connection(journal or self.alias)
