"""`ports.lifeline.LifelineSession` on PostgreSQL: a direct session that the server ends when the
process is frozen or cut off.

`idle_session_timeout` ends a session that does not ping; keepalives and TCP_USER_TIMEOUT end one
whose network is gone; `client_connection_check_interval` ends one that is gone while a statement
runs. Settings that a platform lacks are left out with one log line. No statement waits inside the
server, except for the term's row, which a coordinator's write holds for a moment. A ping touches no
table.
"""

import logging
from collections.abc import Callable
from typing import Any

import psycopg

from sharding_app.adapters.postgres.connection import Connection, Conninfo, Line
from sharding_app.adapters.postgres.errors import LOST, explain
from sharding_app.ports.lifeline import Pulse, SessionLost, SessionRefused
from sharding_app.protocol.ids import Incarnation, Term
from sharding_app.protocol.liveness.locks import coordinator_key
from sharding_app.protocol.records import Backend, Server

logger = logging.getLogger("sharding.lifeline")

WISHES = {
    "tcp_keepalives_idle": 1 / 3,
    "tcp_keepalives_interval": 1 / 3,
    "tcp_user_timeout": 1.0,
    "client_connection_check_interval": 1 / 3,
}
"""Settings that we ask the server for, in parts of the TTL."""
_MILLISECONDS = {"tcp_user_timeout", "client_connection_check_interval"}

_left_out: set[str] = set()
"""Settings that the server refused: logged once per process."""


class PostgresLifelineSession:
    def __init__(
        self,
        conninfo: Conninfo,
        *,
        cluster_id: str,
        owner: str = "",
        number: int = 0,
        ttl_seconds: float = 3.0,
        connect_seconds: float = 3.0,
    ) -> None:
        self._coordinator_key = coordinator_key(cluster_id)
        self.older = 0
        self._ttl = ttl_seconds
        self._session = 0
        self._holds_lock = False
        self._term: Term | None = None
        ttl = f"{round(ttl_seconds * 1000)}ms"
        self._line = Line(
            {**conninfo, "tcp_user_timeout": round(ttl_seconds * 1000)},
            purpose=f"lifeline-{number}",
            owner=owner,
            connect_seconds=connect_seconds,
            answer_seconds=ttl_seconds,
            settings={"idle_session_timeout": ttl, "lock_timeout": ttl},
            prepare=self._guard,
            backs_off=False,  # the lifeline does, for both of its sessions
            keeps_session=True,
        )

    async def open(self) -> Backend:
        await self.close()
        self._session += 1
        try:
            return await self._line.open()
        except TimeoutError as error:
            raise SessionLost(explain(error)) from error
        except LOST as error:
            raise SessionRefused(explain(error)) from error

    async def lock(self, key: int) -> bool:
        return bool((await self._rows("lock", {"key": key}))[0][0])

    async def unlock(self, key: int) -> None:
        await self._rows("unlock", {"key": key})

    async def ping(self) -> Pulse:
        *server, locked = (await self._rows("ping", {"coordinator_key": self._coordinator_key}))[0]
        return Pulse(Server(*server), locked or self._holds_lock)

    async def elect(self, incarnation: Incarnation) -> Term | None:
        if self._term is not None:
            return self._term
        if not self._holds_lock:
            params = {"coordinator_key": self._coordinator_key, "incarnation": incarnation}
            self._holds_lock, self.older = (await self._rows("stand", params))[0]
        if not self._holds_lock:
            return None
        self._term = int((await self._rows("raise_term", {"incarnation": incarnation}))[0][0])
        return self._term

    async def resign(self) -> None:
        self._term = None
        if self._holds_lock:
            await self._rows("unlock", {"key": self._coordinator_key})
            self._holds_lock = False

    def watch(self, heard: Callable[[], None]) -> Callable[[], None]:
        return self._line.watch(heard)

    async def close(self) -> None:
        self._holds_lock = False
        self._term = None
        await self._line.close()

    async def _rows(self, query: str, params: dict[str, Any]) -> list[tuple[Any, ...]]:
        if not self._line.is_open:
            raise SessionLost("the session is not open")
        session = self._session
        try:
            return await self._line.rows(query, params)
        except LOST as error:
            # After any failure the session's locks are in doubt: let the server free all of them.
            # An abandoned call may fail when another session is open already.
            if session == self._session:
                await self.close()
            raise SessionLost(explain(error)) from error

    async def _guard(self, connection: Connection) -> None:
        """Ask the server to notice by itself when we are cut off; some servers lack the means."""
        for name, part in WISHES.items():
            value = round(self._ttl * part * (1000 if name in _MILLISECONDS else 1))
            try:
                await connection.execute("SELECT set_config(%s, %s, false)", (name, str(max(1, value))))
            except (psycopg.DataError, psycopg.NotSupportedError, psycopg.ProgrammingError) as error:
                if name not in _left_out:
                    _left_out.add(name)
                    logger.info(
                        "the server does not take %s, so the lifeline goes without: %s",
                        name,
                        explain(error),
                        extra={"action": "lifeline_setting_left_out", "setting": name},
                    )
