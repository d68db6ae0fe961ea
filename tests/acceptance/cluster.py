"""A cluster of real processes on servers of its own: nodes that can be killed, frozen and cut off,
and a load.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

from sharding_app.embedded import OwnPostgres, OwnRedis
from sharding_app.processes.proxy import Proxy
from sharding_app.torture import cluster as torture
from sharding_app.torture.cluster import HOME_LOG
from sharding_app.torture.processes import INSTANCES, Load, NoAnswer, Node, Process
from tests.acceptance.app.entities import ACCOUNTS, TYPE
from tests.acceptance.machine import (
    HERE,
    Cable,
    Clock,
    Disk,
    OwnWiredPostgres,
    OwnWiredRedis,
    may_mount,
    may_wire,
)
from tests.support import forks
from tests.support.postgres_pair import PostgresPair
from tests.support.slack import SLACK

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = "tests.acceptance.settings"


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


def python(module: str) -> list[str]:
    """Return the command that runs a module."""
    return [sys.executable, "-m", module]


class Copied(Process):
    popen = staticmethod(forks.popen)


class CopiedNode(Copied, Node): ...


class CopiedLoad(Copied, Load): ...


class Servers:
    """One Postgres and one Redis for many scenarios: each gets a database of its own, copied from a
    migrated one.

    `journals`: the number of further Postgres servers that have parts of the journal. With
    `standby`, a synchronous standby follows the first one: a commit is acknowledged when both have
    it. A process can have one cable, so only one of its servers is `wired`.
    """

    def __init__(self, place: Path, *, standby: bool = False, wired: bool = True, journals: int = 0) -> None:
        self.disk = Disk() if may_mount() else None
        self.cable = Cable() if wired and may_wire() else None
        data = self.disk.place if self.disk else place
        self.postgres = (OwnWiredPostgres if self.cable else OwnPostgres)(data).start()
        self.redis = (OwnWiredRedis if self.cable else OwnRedis)(place).start()
        self.pair: PostgresPair | None = None
        self.journals: dict[str, OwnPostgres] = {}
        "The servers of the further journals, by the aliases of their databases."
        self.made = 0
        self._migrate(self.postgres)
        for alias in JOURNALS[:journals]:
            beside = place / alias
            beside.mkdir()
            beside.chmod(0o711)
            self.journals[alias] = OwnPostgres(beside).start()
            self._migrate(self.journals[alias])
        self._turns = itertools.cycle(self.journals)
        if standby:
            beside = data / "standby"
            beside.mkdir()
            beside.chmod(0o711)
            self.pair = PostgresPair(self.postgres, beside)
            self.pair.attach()

    def _migrate(self, postgres: OwnPostgres) -> None:
        environment = {**os.environ, "DATABASE_URL": postgres.url, "REDIS_URL": self.redis.url}
        environment["DJANGO_SETTINGS_MODULE"] = SETTINGS
        forks.run(
            [sys.executable, "manage.py", "migrate", "--verbosity=0"],
            cwd=ROOT,
            env=environment,
            timeout=120 * SLACK,
        ).check_returncode()

    def new_database(self) -> str:
        """Return the URL of a fresh database with the cluster's tables."""
        self.made += 1
        return self._copy(self.postgres)

    def new_journals(self) -> dict[str, str]:
        """Return the URLs of fresh databases for the further journals."""
        return {alias: self._copy(server) for alias, server in self.journals.items()}

    def next_journal(self) -> tuple[str, OwnPostgres]:
        """Return the alias and the server of a further journal: each in turn."""
        alias = next(self._turns)
        return alias, self.journals[alias]

    def _copy(self, postgres: OwnPostgres) -> str:
        if not postgres.running:  # a scenario that failed has left it so
            postgres.start()
        template = urlsplit(postgres.url).path.lstrip("/")
        with psycopg.connect(with_database(postgres.url, "postgres"), autocommit=True) as connection:
            made, model = sql.Identifier(f"scenario_{self.made}"), sql.Identifier(template)
            connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(made, model))
        return with_database(postgres.url, f"scenario_{self.made}")

    def drop_database(self, url: str) -> None:
        """Leave nothing behind that a recovery would have to look through in the scenarios to
        come.
        """
        for postgres in (self.postgres, *self.journals.values()):
            if postgres.running and urlsplit(url).port == postgres.port:
                with psycopg.connect(with_database(postgres.url, "postgres"), autocommit=True) as connection:
                    name = urlsplit(url).path.lstrip("/")
                    connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def close(self) -> None:
        if self.pair is not None:
            self.pair.close()
        # Its data is thrown away: no need to let it write a last checkpoint.
        databases = [self.postgres, *self.journals.values()]
        for postgres in databases:
            postgres.kill()
        for server in (self.redis, *databases):
            server.close()
        for each in (self.disk, self.cable):
            if each is not None:
                each.close()


JOURNALS = ("journal_b", "journal_c", "journal_d")
"""The aliases of the databases of further journals."""
LINKS = "ACCEPTANCE_LINKS"
"""How the frames of all clusters travel: a value of the setting of that name."""


class Cluster(torture.Cluster):
    """Nodes and a load on one database of these servers."""

    type_name = TYPE
    accounts = ACCOUNTS

    def __init__(
        self, servers: Servers, place: Path, seed: int, sharding: dict[str, object] | None = None
    ) -> None:
        links = os.environ.get(LINKS, "auto")
        self.sharding: dict[str, object] = {"NUMBER_OF_SHARDS": 48, "LINKS": links, **(sharding or {})}
        number = self.sharding["NUMBER_OF_SHARDS"]
        assert isinstance(number, int)
        super().__init__(place, seed, number)
        self.servers = servers
        self.database_url = servers.new_database()
        self.redis_url = servers.redis.url
        self.journal_urls = servers.new_journals()
        if self.journal_urls:
            self.journals = ("", *self.journal_urls)
            self.sharding["JOURNALS"] = dict.fromkeys(("default", *self.journal_urls), 1)
        self.clocks: dict[str, Clock] = {}
        self.wired = ""
        "The node at the other end of the cable."
        self.spared_role = ""
        """The role that all nodes have, but those with a clock of their own. libfaketime takes one
        lock at each look at a clock. On a machine with much other work, a process whose threads all
        look at clocks stands still there: its loop was late by 0.1 to 0.8 s at 2 % of a core, for
        minutes. So what runs in threads has no place in it.
        """
        self.role = ""
        self.sabotage = ""
        self.ports = ""
        "Of both PostgreSQL servers, for processes that know of both; nothing: of one, by its URL."
        self.release = ""
        """As which release (`app.releases`) the processes speak that are started from now on;
        nothing: this one.
        """
        self.more: dict[str, str] = {}
        """Further environment of the processes that are started from now on."""
        self.sql(HOME_LOG)

    # -- Processes ---------------------------------------------------------------------------------

    def environment(self, database_url: str = "", redis_url: str = "") -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": SETTINGS,
            "DATABASE_URL": database_url or self.database_url,
            "REDIS_URL": redis_url or self.redis_url,
            "ACCEPTANCE_SHARDING": json.dumps(self.sharding),
            "ACCEPTANCE_JOURNAL_URLS": json.dumps(self.journal_urls),
            INSTANCES: str(self.instances),
            "ACCEPTANCE_ROLE": self.role,
            "ACCEPTANCE_SABOTAGE": self.sabotage,
            "ACCEPTANCE_RELEASE": self.release,
            "ACCEPTANCE_PORTS": self.ports,
            "PYTHONUNBUFFERED": "1",
            **self.more,
        }

    def expect(self, nodes: int) -> None:
        self.sharding.setdefault("MIN_NODES", nodes)

    def address(self, server: str) -> tuple[str, int]:
        of = self.servers.postgres if server == "postgres" else self.servers.redis
        return "127.0.0.1", of.port

    def node(self, name: str, extra: Iterable[str]) -> Node:
        environment = self.through(self.proxies.get(name, {}))
        prefix: list[str] = []
        if name == self.wired and self.servers.cable is not None:
            environment = self.environment(
                with_host(self.database_url, HERE), with_host(self.redis_url, HERE)
            )
            prefix = self.servers.cable.prefix
        if name in self.clocks:
            environment |= self.clocks[name].environment
        elif self.spared_role:
            roles = {"ROLES": [self.spared_role]}
            environment["ACCEPTANCE_SHARDING"] = json.dumps({**self.sharding, **roles})
        # Many are started: what the checks say of these settings, other tests see.
        command = [sys.executable, "manage.py", "sharding_node", "--skip-checks", "--name", name, *extra]
        return CopiedNode(name, command, environment, self.place / f"node-{name}.log", prefix, ROOT)

    def load(self, number: int, through: Mapping[str, Proxy], **options: object) -> Load:
        return CopiedLoad(
            self.place / f"history-{number}.jsonl", python("tests.acceptance.load"),
            self.through(through), self.place / f"load-{number}.log", ROOT, **options,
        )  # fmt: skip

    def through(self, proxies: Mapping[str, Proxy]) -> dict[str, str]:
        """Return the environment of a process that reaches its servers through these proxies."""
        return self.environment(
            with_port(self.database_url, proxies["postgres"].port) if "postgres" in proxies else "",
            with_port(self.redis_url, proxies["redis"].port) if "redis" in proxies else "",
        )

    def manage(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours to its end."""
        return forks.run(
            [sys.executable, "manage.py", *command], cwd=ROOT, env=self.environment(), timeout=60 * SLACK
        )

    def clock(self, name: str) -> Clock:
        """Give a node that is yet to start a clock of its own."""
        made = self.clocks[name] = Clock(self.place / f"clock-{name}")
        return made

    def without_the_fence(self) -> None:
        """Let the database take whatever is written to the journal."""
        self.sql("DROP TRIGGER sharding_fence ON sharding_event")

    def close(self) -> None:
        super().close()
        self.servers.drop_database(self.database_url)
        for url in self.journal_urls.values():
            self.servers.drop_database(url)

    def sql(self, statement: str, *parameters: object, journal: str = "") -> list[tuple[Any, ...]]:
        url = self.journal_urls[journal] if journal else self.database_url
        try:
            with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
                cursor = connection.execute(statement, parameters or None)
                return cursor.fetchall() if cursor.description is not None else []
        except psycopg.OperationalError as error:
            raise NoAnswer(str(error)) from error

    def hold(self, statement: str) -> Any:
        try:
            holder = psycopg.connect(self.database_url, connect_timeout=2)
            holder.execute("SET lock_timeout = '2s'")
            holder.execute(statement)
        except psycopg.Error as error:
            raise NoAnswer(str(error)) from error
        return holder
