"""The cluster of a run: nodes behind proxies, loads that call entities, and the database's view of
both.

Subclasses start the processes and reach the database: `own` on the project's servers, and the fault
tests on servers that they start and break themselves.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sharding_app.processes.proxy import Proxy
from sharding_app.protocol.liveness.locks import coordinator_key
from sharding_app.torture.audit import Left, Posting
from sharding_app.torture.judge import Decided, Home, Row
from sharding_app.torture.processes import Load, Node, until

HOME_LOG = """
CREATE TABLE sharding_torture_home (
    n bigint GENERATED ALWAYS AS IDENTITY, type_id integer, shard integer, epoch bigint, home text, step text,
    at timestamptz DEFAULT clock_timestamp(), writer text DEFAULT current_setting('application_name'),
    term bigint, coordinator text);
CREATE FUNCTION sharding_torture_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sharding_torture_home (type_id, shard, epoch, home, step, term, coordinator)
        SELECT NEW.type_id, NEW.shard, NEW.epoch, NEW.home, NEW.step, c.term, c.incarnation FROM sharding_coordinator c;
    RETURN NULL;
END $$;
CREATE TRIGGER sharding_torture_note AFTER INSERT OR UPDATE ON sharding_shard
    FOR EACH ROW EXECUTE FUNCTION sharding_torture_note();
"""
NO_HOME_LOG = """
DROP TRIGGER IF EXISTS sharding_torture_note ON sharding_shard;
DROP FUNCTION IF EXISTS sharding_torture_note();
DROP TABLE IF EXISTS sharding_torture_home;
"""
OF_REGISTERS = "FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id WHERE t.name = %s"


class Cluster(ABC):
    """Nodes and loads on one database."""

    type_name: str
    "The type of the registers."
    accounts: str
    "The type of the accounts."

    def __init__(self, place: Path, seed: int, shards: int) -> None:
        self.place = place
        self.seed = seed
        self.number_of_shards = shards
        self.chance = random.Random(seed)
        self.instances = place / "instances.txt"
        self.journals: tuple[str, ...] = ("",)
        "The names of the journals (`protocol.journals`)."
        self.nodes: dict[str, Node] = {}
        self.loads: list[Load] = []
        self.proxies: dict[str, dict[str, Proxy]] = {}
        "By node and server (`postgres`, `redis`)."
        # Postgres and this process run on one machine: this is the offset between their clocks.
        self._wall = time.time() - time.monotonic()

    # -- Processes ---------------------------------------------------------------------------------

    @abstractmethod
    def node(self, name: str, extra: Iterable[str]) -> Node:
        """Start a node, behind its proxies if it has some."""

    @abstractmethod
    def load(self, number: int, through: Mapping[str, Proxy], **options: object) -> Load:
        """Start a load that reaches its servers through these proxies, if any."""

    @abstractmethod
    def expect(self, nodes: int) -> None:
        """Place no shards before this many nodes are up. Call it before they start."""

    @abstractmethod
    def sql(self, statement: str, *parameters: object, journal: str = "") -> list[tuple[Any, ...]]:
        """Run one statement in a session of its own, in the cluster's database or in that of a
        further journal; return its rows. Raises NoAnswer.
        """

    def everywhere(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement in the databases of all journals; return the rows of all of them."""
        return [row for name in self.journals for row in self.sql(statement, *parameters, journal=name)]

    @abstractmethod
    def hold(self, statement: str) -> Any:
        """Run a statement in a transaction that stays open until the returned connection is closed.
        Raises NoAnswer.
        """

    @abstractmethod
    def address(self, server: str) -> tuple[str, int]:
        """Return the address of a server: `postgres` or `redis`."""

    def launch(self, name: str, *extra: str) -> Node:
        """Start a node, and end any former one of that name."""
        if name in self.nodes:
            self.nodes[name].end()
        node = self.nodes[name] = self.node(name, extra)
        return node

    def start(self, *names: str, roles: Mapping[str, str] | None = None) -> list[Node]:
        """Start nodes, and wait until they are up."""
        started = [self.launch(name, *([f"--roles={roles[name]}"] if roles else [])) for name in names]
        return [node.wait_up() for node in started]

    def proxy(self, name: str, server: str) -> Proxy:
        """Put a proxy between a server and a node that is yet to start."""
        host, port = self.address(server)
        made = self.proxies.setdefault(name, {})[server] = Proxy(port, host)
        return made

    def start_load(self, through: Mapping[str, Proxy] | None = None, **options: object) -> Load:
        number = len(self.loads) + 1
        load = self.load(number, through or {}, seed=self.seed + number, process=number, **options)
        self.loads.append(load)
        return load

    def close(self) -> None:
        for process in [*self.loads, *self.nodes.values()]:
            process.end()
        for proxies in self.proxies.values():
            for proxy in proxies.values():
                proxy.close()

    # -- The database's view -----------------------------------------------------------------------

    def rows(self, round_number: int) -> list[Row]:
        """Return the events of a round's entities."""
        found = self.everywhere(
            "SELECT e.entity, e.seq, e.shard, e.epoch, e.payload->>'token', (e.payload->>'writer')::int,"
            " extract(epoch FROM e.at)::float8"
            " FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id"
            " WHERE t.name = %s AND starts_with(e.entity, %s)", self.type_name, f"r{round_number}e",
        )  # fmt: skip
        return [row._replace(at=row.at - self._wall) for row in (Row(*each) for each in found)]

    def postings(self, round_number: int) -> list[Posting]:
        """Return the events of a round's accounts."""
        found = self.everywhere(
            "SELECT e.entity, e.seq, e.epoch, e.payload->>'what', e.payload->>'token', (e.payload->>'cents')::bigint,"
            " e.payload->>'other', (e.payload->>'seconds')::float8, extract(epoch FROM e.at)::float8"
            " FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id"
            " WHERE t.name = %s AND starts_with(e.entity, %s)", self.accounts, f"r{round_number}a",
        )  # fmt: skip
        return [Posting(*each) for each in found]

    def left(self, round_number: int) -> list[Left]:
        """Return the messages and timers that a round's accounts have not seen yet."""
        found = self.everywhere(
            "SELECT m.entity, m.target, m.command, m.parked, m.error FROM sharding_message m"
            " JOIN sharding_type t ON t.id = m.type_id WHERE t.name = %s AND starts_with(m.entity, %s)",
            self.accounts, f"r{round_number}a",
        )  # fmt: skip
        return [Left(*each) for each in found]

    def homes(self) -> list[Home]:
        """Return every change of the home of a register's shard, from our trigger's notes."""
        found = self.sql(
            "SELECT h.shard, h.epoch, h.home, h.step, extract(epoch FROM h.at)::float8 FROM sharding_torture_home h"
            " JOIN sharding_type t ON t.id = h.type_id WHERE t.name = %s ORDER BY h.n", self.type_name,
        )  # fmt: skip
        return [Home(each[0], each[1], each[2], each[3], each[4] - self._wall) for each in found]

    def decided(self) -> list[Decided]:
        """Return the writer of each change of a home, of any type, with the coordinator of that
        moment. A command that moves shards to another journal gives none a home: it raises epochs
        of those without one.
        """
        found = self.sql(
            "SELECT shard, epoch, writer, term, coordinator FROM sharding_torture_home"
            " WHERE writer <> %s ORDER BY n", "sharding//moving",
        )  # fmt: skip
        return [Decided(*each) for each in found]

    def epochs(self) -> dict[int, int]:
        return dict(self.sql(f"SELECT s.shard, s.epoch {OF_REGISTERS}", self.type_name))

    def members(self) -> dict[str, str]:
        """Return incarnations by node name; a node that has begun again shows its newest."""
        return dict(self.sql("SELECT name, incarnation FROM sharding_node WHERE state = 'up' ORDER BY age"))

    def shards_of(self, name: str) -> set[int]:
        of_it = "s.home IN (SELECT incarnation FROM sharding_node WHERE name = %s)"
        return {
            each[0] for each in self.sql(f"SELECT s.shard {OF_REGISTERS} AND {of_it}", self.type_name, name)
        }

    def coordinator(self) -> str:
        """Return the name of the node that coordinates now; empty if there is none."""
        cluster_id = self.sql("SELECT cluster_id FROM sharding_cluster")[0][0]
        found = self.sql(
            "SELECT n.name FROM sharding_coordinator c JOIN sharding_node n USING (incarnation)"
            " WHERE EXISTS (SELECT FROM sharding_locks_v1() held WHERE held.key = %s)",
            coordinator_key(cluster_id),
        )
        return found[0][0] if found else ""

    def busiest_but_the_coordinator(self) -> str:
        """Return the node with the most shards that does not coordinate.

        A node that has just joined has none yet.
        """
        coordinator = self.coordinator()
        shards = {name: len(self.shards_of(name)) for name in self.members() if name != coordinator}
        return max(shards, key=lambda name: shards[name])

    def wait_moved(self, name: str, seconds: float = 10.0) -> None:
        """Wait until no shard's row names that node any more."""
        until(lambda: not self.shards_of(name), seconds, f"the shards of {name} have moved")

    def wait_members(self, *names: str, seconds: float = 15.0) -> None:
        """Wait until exactly these nodes are up and one of them coordinates."""
        until(lambda: self.is_made_of(*names), seconds, f"{', '.join(names)} are up and one coordinates")

    def is_made_of(self, *names: str) -> bool:
        return set(self.members()) == set(names) and self.coordinator() in names
