"""A login of the application on a server, with an assumed role; and a caller that stays, to be
asked one call at a time.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

import psycopg

from tests.support.live import Live, Program
from tests.support.slack import SLACK

CALLER = """
import sys
from tests.badinput.app.entities import Ledger
for line in sys.stdin:
    seconds, entity, method, *given = eval(line)
    try:
        print('answer', getattr(Ledger.ref(entity, timeout=seconds).sync, method)(*given), flush=True)
    except Exception as error:
        print('answer', type(error).__name__, error, flush=True)
"""


class Login:
    """A role that may log in and owns nothing; it assumes the owner of all."""

    def __init__(self, live: Live) -> None:
        self._admin = live.database_url
        self.owner, self.name = (f"{kind}_{uuid4().hex[:10]}" for kind in ("owner", "login"))
        self.sql(
            f"CREATE ROLE {self.owner} NOLOGIN; CREATE ROLE {self.name} LOGIN NOINHERIT PASSWORD 'secret';"
            f" GRANT {self.owner} TO {self.name}; GRANT CREATE, USAGE ON SCHEMA public TO {self.owner}"
        )
        parts = urlsplit(live.database_url)
        place = f"{self.name}:secret@{parts.netloc.rpartition('@')[2]}"
        url = urlunsplit(parts._replace(netloc=place, query=f"assume_role={self.owner}"))
        self.live = Live(url, live.redis_url)
        made = self.live.manage("migrate", "-v0")
        assert made.returncode == 0, made.stderr

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Do something as the administrator."""
        with psycopg.connect(self._admin, autocommit=True) as admin:
            cursor = admin.execute(statement.encode())
            return cursor.fetchall() if cursor.description is not None else []

    def alter(self, **settings: str) -> None:
        """What sessions that begin from now on are given."""
        for name, value in settings.items():
            self.sql(f"ALTER ROLE {self.name} SET {name} = {value}")

    def limit(self, connections: int) -> None:
        self.sql(f"ALTER ROLE {self.name} CONNECTION LIMIT {connections}")

    def end_sessions(self) -> None:
        ended = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s"
        with psycopg.connect(self._admin, autocommit=True) as admin:
            admin.execute(ended, [self.name])

    def drop(self) -> None:
        self.end_sessions()
        self.sql(f"DROP OWNED BY {self.owner} CASCADE; DROP ROLE {self.name}; DROP ROLE {self.owner}")


class Caller:
    def __init__(self, program: Program) -> None:
        self._program = program

    def __call__(self, entity: str, method: str, *given: object, seconds: float = 20.0 * SLACK) -> str:
        """Call a ledger, and return the answer or the error in words."""
        before, stdin = len(self._program.lines), self._program.process.stdin
        assert stdin is not None
        stdin.write(f"{(seconds, entity, method, *given)!r}\n")
        stdin.flush()
        return self._program.wait_line("^answer (.*)$", after=before)[1]


@contextmanager
def calling(live: Live) -> Iterator[Caller]:
    with live.program("shell", "-v0", "-c", CALLER) as program:
        yield Caller(program)
