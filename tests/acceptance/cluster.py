"""A cluster of real processes on servers of its own: nodes that can be killed, frozen and cut off, and a load.

Everything ends with the process that started it, however it ends (a waiting shell at the end of a pipe sees to that),
and nothing is signalled that was not started here.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from project.servers import OwnPostgres, OwnRedis
from sharding_app.core.lockkeys import coordinator_key
from sharding_app.torture.judge import Decided, Home, Row
from sharding_app.torture.load import round_file
from sharding_app.torture.proxy import Proxy
from tests.acceptance.app.entities import TYPE
from tests.acceptance.machine import (
    HERE,
    Cable,
    Clock,
    Disk,
    OwnWiredPostgres,
    OwnWiredRedis,
    may_mount,
    may_wire,
    works,
)
from tests.postgres_pair import PostgresPair

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 30.0
SETTINGS = "tests.acceptance.settings"
AUDIT = """
CREATE TABLE acceptance_home (
    n bigint GENERATED ALWAYS AS IDENTITY, type_id integer, shard integer, epoch bigint, home text, step text,
    at timestamptz DEFAULT clock_timestamp(), writer text DEFAULT current_setting('application_name'),
    term bigint, coordinator text);
CREATE FUNCTION acceptance_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO acceptance_home (type_id, shard, epoch, home, step, term, coordinator)
        SELECT NEW.type_id, NEW.shard, NEW.epoch, NEW.home, NEW.step, c.term, c.incarnation FROM sharding_coordinator c;
    RETURN NULL;
END $$;
CREATE TRIGGER acceptance_note AFTER INSERT OR UPDATE ON sharding_shard
    FOR EACH ROW EXECUTE FUNCTION acceptance_note();
"""
OF_REGISTERS = "FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id WHERE t.name = %s"


def with_port(url: str, port: int) -> str:
    """Return the same URL with another port: that of a proxy in front of the server."""
    parts = urlsplit(url)
    before, _, _ = parts.netloc.rpartition(":")
    return urlunsplit(parts._replace(netloc=f"{before}:{port}"))


def with_host(url: str, host: str) -> str:
    """Return the same URL with another host."""
    parts = urlsplit(url)
    before, _, after = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{before}@{host}:{after.rpartition(':')[2]}"))


def with_database(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def until(condition: Callable[[], Any], seconds: float, what: str, pause: float = 0.02) -> Any:
    """Wait for a condition with a deadline; return what it returned."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what}")
        time.sleep(pause)
    return found


class Process:
    """One child, its log, and the shell that ends it when we are gone."""

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        log: Path,
        *,
        talks: bool = False,
        prefix: Iterable[str] = (),
    ) -> None:
        self.log = log
        self._instances = environment.get("SHARDING_TORTURE_INSTANCES", "")
        self._frozen_at_work = False
        with log.open("ab") as out:
            self.child = subprocess.Popen(
                [*prefix, sys.executable, *command],
                cwd=ROOT,
                env=dict(environment),
                stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
                stdout=subprocess.PIPE if talks else out,
                stderr=out,
                start_new_session=True,
            )
        self.guard = subprocess.Popen(
            ["/bin/sh", "-c", 'read _; kill -9 "$1"', "sh", str(self.child.pid)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def alive(self) -> bool:
        return self.child.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if not self.alive:
            return
        if number == signal.SIGCONT and self._instances and self._frozen_at_work:
            with Path(self._instances).open("ab", buffering=0) as said:
                said.write(f"thaws {self.pid}\n".encode())
        self.child.send_signal(number)
        if number == signal.SIGSTOP:
            self._frozen_at_work = works(self.pid)

    def end(self) -> None:
        """Kill what is left of it."""
        self.guard.kill()
        self.guard.communicate()
        if self.alive:
            self.child.kill()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                pipe.close()
        self.child.wait()


class Node(Process):
    """`manage.py sharding_node` under a name."""

    def __init__(
        self,
        name: str,
        environment: Mapping[str, str],
        log: Path,
        extra: Iterable[str] = (),
        prefix: Iterable[str] = (),
    ) -> None:
        self.name = name
        self._seen = log.stat().st_size if log.exists() else 0
        super().__init__(
            ["manage.py", "sharding_node", "--name", name, *extra], environment, log, prefix=prefix
        )

    def wait_up(self, seconds: float = START_SECONDS) -> Node:
        def up() -> bool:
            assert self.alive, f"node {self.name} ended: {self.last_words()}"
            return f"node {self.name} is up".encode() in self.log.read_bytes()[self._seen :]

        until(up, seconds, f"node {self.name} is up: {self.last_words()}")
        return self

    def recent(self) -> str:
        """Return what it has logged since it was started last."""
        return self.log.read_bytes()[self._seen :].decode(errors="replace")

    def last_words(self) -> str:
        return " | ".join(self.log.read_text(errors="replace").splitlines()[-5:])

    def address_space(self) -> int:
        """Return how many bytes of addresses it has taken."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[0]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self) -> float:
        """Return the processor time that it has used, all its threads together."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load(Process):
    """The load process (`tests.acceptance.load`)."""

    def __init__(
        self, out: Path, environment: Mapping[str, str], log: Path, *, seed: int, **options: object
    ) -> None:
        self.first_out = self.out = out
        arguments = [
            f"--{name.replace('_', '-')}={value}"
            for name, value in {"out": out, "seed": seed, **options}.items()
        ]
        super().__init__(["-m", "tests.acceptance.load", *arguments], environment, log, talks=True)

    def send(self, order: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(order.encode() + b"\n")
        self.child.stdin.flush()

    def answer(self) -> str:
        assert self.child.stdout is not None
        line = self.child.stdout.readline().decode().strip()
        assert line, f"the load ended: {self.log.read_text(errors='replace')[-2000:]}"
        return line

    def order(self, order: str) -> str:
        self.send(order)
        return self.answer()

    def new_round(self, number: int) -> None:
        self.order(f"round {number}")
        self.out = round_file(self.first_out, number)


class Servers:
    """One Postgres and one Redis for many scenarios: each gets a database of its own, copied from a migrated one.

    With `standby`, a synchronous standby follows that Postgres: a commit is acknowledged when both have it. A process
    can have one cable, so only one of its servers is `wired`.
    """

    def __init__(self, place: Path, *, standby: bool = False, wired: bool = True) -> None:
        self.disk = Disk() if may_mount() else None
        self.cable = Cable() if wired and may_wire() else None
        data = self.disk.place if self.disk else place
        self.postgres = (OwnWiredPostgres if self.cable else OwnPostgres)(data).start()
        self.redis = (OwnWiredRedis if self.cable else OwnRedis)(place).start()
        self.pair: PostgresPair | None = None
        self.made = 0
        environment = {**os.environ, "DATABASE_URL": self.postgres.url, "REDIS_URL": self.redis.url}
        environment["DJANGO_SETTINGS_MODULE"] = SETTINGS
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity=0"], cwd=ROOT, env=environment, check=True,
            capture_output=True, timeout=120,
        )  # fmt: skip
        if standby:
            beside = data / "standby"
            beside.mkdir()
            beside.chmod(0o711)
            self.pair = PostgresPair(self.postgres, beside)
            self.pair.attach()

    def new_database(self) -> str:
        """Return the URL of a fresh database with the cluster's tables."""
        self.made += 1
        template = urlsplit(self.postgres.url).path.lstrip("/")
        with psycopg.connect(with_database(self.postgres.url, "postgres"), autocommit=True) as connection:
            made, model = sql.Identifier(f"scenario_{self.made}"), sql.Identifier(template)
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(made, model))
        return with_database(self.postgres.url, f"scenario_{self.made}")

    def drop_database(self, url: str) -> None:
        """Leave nothing behind that a recovery would have to look through in the scenarios to come."""
        if self.postgres.running:
            with psycopg.connect(with_database(self.postgres.url, "postgres"), autocommit=True) as connection:
                name = urlsplit(url).path.lstrip("/")
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def close(self) -> None:
        if self.pair is not None:
            self.pair.close()
        # Its data is thrown away: no need to let it write a last checkpoint.
        self.postgres.kill()
        for server in (self.redis, self.postgres):
            server.close()
        for each in (self.disk, self.cable):
            if each is not None:
                each.close()


class Cluster:
    """Nodes and a load on one database."""

    def __init__(
        self, servers: Servers, place: Path, seed: int, sharding: dict[str, object] | None = None
    ) -> None:
        self.servers = servers
        self.place = place
        self.seed = seed
        self.chance = random.Random(seed)
        self.sharding = {"NUMBER_OF_SHARDS": 48, **(sharding or {})}
        self.database_url = servers.new_database()
        self.redis_url = servers.redis.url
        self.instances = place / "instances.txt"
        self.nodes: dict[str, Node] = {}
        self.loads: list[Load] = []
        self.proxies: dict[str, dict[str, Proxy]] = {}
        self.clocks: dict[str, Clock] = {}
        self.wired = ""
        "The node at the other end of the cable."
        self.role = ""
        self.sabotage = ""
        self.ports = ""
        "Of both PostgreSQL servers, for processes that know of both; nothing: of one, by its URL."
        self.release = ""
        "As which release (`app.releases`) the processes speak that are started from now on; nothing: this one."
        # Postgres' clock and ours are of one machine: this is what lies between them.
        self._wall = time.time() - time.monotonic()
        self.sql(AUDIT)

    # -- Processes -----------------------------------------------------------------------------------------------------

    def environment(self, database_url: str = "", redis_url: str = "") -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "DATABASE_URL": database_url or self.database_url,
            "REDIS_URL": redis_url or self.redis_url,
            "ACCEPTANCE_SHARDING": json.dumps(self.sharding),
            "SHARDING_TORTURE_INSTANCES": str(self.instances),
            "ACCEPTANCE_ROLE": self.role,
            "ACCEPTANCE_SABOTAGE": self.sabotage,
            "ACCEPTANCE_RELEASE": self.release,
            "ACCEPTANCE_PORTS": self.ports,
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def launch(self, name: str, *extra: str) -> Node:
        """Start a node, behind its proxies where it has them; one of that name that was there before is ended."""
        if name in self.nodes:
            self.nodes[name].end()
        proxies = self.proxies.get(name, {})
        environment = self.environment(
            with_port(self.database_url, proxies["postgres"].port) if "postgres" in proxies else "",
            with_port(self.redis_url, proxies["redis"].port) if "redis" in proxies else "",
        )
        prefix: list[str] = []
        if name == self.wired and self.servers.cable is not None:
            environment = self.environment(
                with_host(self.database_url, HERE), with_host(self.redis_url, HERE)
            )
            prefix = self.servers.cable.prefix
        if name in self.clocks:
            environment |= self.clocks[name].environment
        node = self.nodes[name] = Node(name, environment, self.place / f"node-{name}.log", extra, prefix)
        return node

    def manage(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours to its end."""
        return subprocess.run(
            [sys.executable, "manage.py", *command], cwd=ROOT, env=self.environment(), check=False,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def clock(self, name: str) -> Clock:
        """Give a node that is yet to start a clock of its own."""
        made = self.clocks[name] = Clock(self.place / f"clock-{name}")
        return made

    def start(self, *names: str, roles: Mapping[str, str] | None = None) -> list[Node]:
        """Start nodes, and wait until they are up."""
        started = [self.launch(name, *([f"--roles={roles[name]}"] if roles else [])) for name in names]
        return [node.wait_up() for node in started]

    def proxy(self, name: str, server: str) -> Proxy:
        """Put a proxy between a node that is yet to start and one server: `postgres` or `redis`."""
        port = self.servers.postgres.port if server == "postgres" else self.servers.redis.port
        made = self.proxies.setdefault(name, {})[server] = Proxy(port)
        return made

    def without_the_fence(self) -> None:
        """Let the database take whatever is written to the journal."""
        self.sql("DROP TRIGGER sharding_fence ON sharding_event")

    def start_load(self, database_url: str = "", redis_url: str = "", **options: object) -> Load:
        number = len(self.loads) + 1
        load = Load(
            self.place / f"history-{number}.jsonl", self.environment(database_url, redis_url), self.place / f"load-{number}.log",
            seed=self.seed + number, process=number, **options,
        )  # fmt: skip
        self.loads.append(load)
        return load

    def close(self) -> None:
        for process in [*self.loads, *self.nodes.values()]:
            process.end()
        for proxies in self.proxies.values():
            for proxy in proxies.values():
                proxy.close()
        self.servers.drop_database(self.database_url)

    # -- What the database says ----------------------------------------------------------------------------------------

    def sql(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def rows(self, round_number: int) -> list[Row]:
        """Return the events of a round's entities."""
        found = self.sql(
            "SELECT e.entity, e.seq, e.shard, e.epoch, e.payload->>'token', (e.payload->>'writer')::int"
            " FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id"
            " WHERE t.name = %s AND starts_with(e.entity, %s)", TYPE, f"r{round_number}e",
        )  # fmt: skip
        return [Row(*each) for each in found]

    def homes(self) -> list[Home]:
        """Return every change of the home of a register's shard, as a trigger of ours has noted it."""
        found = self.sql(
            "SELECT h.shard, h.epoch, h.home, h.step, extract(epoch FROM h.at)::float8 FROM acceptance_home h"
            " JOIN sharding_type t ON t.id = h.type_id WHERE t.name = %s ORDER BY h.n", TYPE,
        )  # fmt: skip
        return [Home(each[0], each[1], each[2], each[3], each[4] - self._wall) for each in found]

    def decided(self) -> list[Decided]:
        """Return who wrote each change of a home of any type, and who was the coordinator then."""
        found = self.sql("SELECT shard, epoch, writer, term, coordinator FROM acceptance_home ORDER BY n")
        return [Decided(*each) for each in found]

    def epochs(self) -> dict[int, int]:
        return dict(self.sql(f"SELECT s.shard, s.epoch {OF_REGISTERS}", TYPE))

    def members(self) -> dict[str, str]:
        """Return incarnations by node name; a node that has begun again shows its newest."""
        return dict(self.sql("SELECT name, incarnation FROM sharding_node WHERE state = 'up' ORDER BY age"))

    def shards_of(self, name: str) -> set[int]:
        of_it = "s.home IN (SELECT incarnation FROM sharding_node WHERE name = %s)"
        return {each[0] for each in self.sql(f"SELECT s.shard {OF_REGISTERS} AND {of_it}", TYPE, name)}

    def coordinator(self) -> str:
        """Return the name of the node that coordinates now, or nothing."""
        cluster_id = self.sql("SELECT cluster_id FROM sharding_cluster")[0][0]
        found = self.sql(
            "SELECT n.name FROM sharding_coordinator c JOIN sharding_node n USING (incarnation) WHERE EXISTS ("
            " SELECT FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND"
            " l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND"
            " (l.classid::bigint << 32) | l.objid::bigint = %s)",
            coordinator_key(cluster_id),
        )
        return found[0][0] if found else ""

    def busiest_but_the_coordinator(self) -> str:
        """Return the node with the most shards that does not coordinate: one that has just joined has none yet."""
        coordinator = self.coordinator()
        shards = {name: len(self.shards_of(name)) for name in self.members() if name != coordinator}
        return max(shards, key=lambda name: shards[name])

    def wait_moved(self, name: str, seconds: float = 10.0) -> None:
        """Wait until no shard's row names that node any more."""
        until(lambda: not self.shards_of(name), seconds, f"the shards of {name} have moved")

    def wait_members(self, *names: str, seconds: float = 15.0) -> None:
        """Wait until exactly these nodes are up and one of them coordinates."""
        until(
            lambda: set(self.members()) == set(names) and self.coordinator() in names,
            seconds, f"{', '.join(names)} are up and one coordinates",
        )  # fmt: skip
