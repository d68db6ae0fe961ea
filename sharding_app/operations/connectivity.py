"""Checks first that the servers can be reached; the error says which cannot, and what to do."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.conf import settings as django_settings
from django.core.management.base import CommandError

from sharding_app.adapters.postgres.connection import Line, NotReplicated
from sharding_app.adapters.postgres.errors import LOST, explain, lacks_rights
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.node.process import Process, WireRefused
from sharding_app.settings.load import get_settings
from sharding_app.wiring import client_process, conninfo, new_loop

HEALTHY, PROBLEMS, UNREACHABLE = 0, 1, 2
"""Exit codes of all commands that look at the cluster."""


_LIBPQ = re.compile(r"^(?:connection failed: )?connection to server .+? failed: ")
_REFUSES = "FATAL:"
"""The first words of a server's refusal; an error without them is libpq's own."""
_LIBPQ_ASKS = re.compile(r"\s*Is the server running on that host and accepting TCP/IP connections\?")


class CannotReach(CommandError):
    """A server that this command needs does not answer as it should. The message says what to
    do.
    """


def database_trouble(alias: str, error: BaseException) -> CannotReach:
    """Return the error for a database that cannot be used, or lacks its tables."""
    cause = next(filter(lacks_rights, (error, error.__cause__)), None)
    if cause is not None:
        return CannotReach(
            f"PostgreSQL refuses a statement to the role of DATABASES[{alias!r}]: {explain(cause)}. The documentation says "
            "which rights roles need.", returncode=PROBLEMS,
        )  # fmt: skip
    reason = _LIBPQ_ASKS.sub("", _LIBPQ.sub("", " ".join(str(error).split())))
    if "manage.py migrate" in reason:
        return CannotReach(f"{reason[0].upper()}{reason[1:]}.", returncode=PROBLEMS)
    config = django_settings.DATABASES.get(alias, {})
    where = f"{config.get('HOST') or 'localhost'}:{config.get('PORT') or 5432}"
    if _REFUSES in reason:
        hint = (
            "If all its connections are in use, raise its max_connections, or run fewer nodes. "
            f"Otherwise check USER and PASSWORD of DATABASES[{alias!r}]."
        )
        return CannotReach(
            f"PostgreSQL at {where} runs but refuses this login: {reason}. {hint}", returncode=UNREACHABLE
        )
    hint = f"Is it running there, and is DATABASES[{alias!r}] right?"
    return CannotReach(f"PostgreSQL at {where} cannot be used: {reason}. {hint}", returncode=UNREACHABLE)


def transport_trouble(error: BaseException) -> CannotReach:
    """Return the error for a channel layer that carries no messages."""
    reason = " ".join(str(error).split()).rstrip(".")
    hint = "Is Redis running there, and is CHANNEL_LAYERS right?"
    return CannotReach(f"The channel layer carries no messages: {reason}. {hint}", returncode=UNREACHABLE)


def trouble(error: BaseException) -> CannotReach:
    """Return the error for a failed read from the servers."""
    if isinstance(error, TransportError):
        return transport_trouble(error)
    if isinstance(error, WireRefused):
        text = str(error)
        return CannotReach(
            f"{text[0].upper()}{text[1:]}. Update the older one, release by release.", returncode=PROBLEMS
        )
    return database_trouble(get_settings().database, error)


@asynccontextmanager
async def joined() -> AsyncIterator[Process]:
    """Give a process of the cluster that only asks. A server that does not answer, now or within
    the block, raises CannotReach.
    """
    try:
        process = await client_process()
        try:
            await process.start()
            yield process
        finally:
            await process.close()
    except (StoreUnavailable, TransportError) as error:
        raise trouble(error) from error


async def secure(seconds: float) -> bool:
    """Wait until a synchronous standby has all that the cluster's database shows. False: it has
    not within that time. Raises CannotReach.

    A row may show what is in no standby: the wait of its commit was cancelled, or its session
    ended.
    """
    loop, alias = asyncio.get_running_loop(), get_settings().lifeline_database
    deadline = loop.time() + seconds
    while (left := deadline - loop.time()) > 0:
        line = Line(conninfo(alias), purpose="standby", answer_seconds=left)
        try:
            await line.rows("secure")
        except (NotReplicated, TimeoutError):
            continue
        except LOST as error:
            raise database_trouble(alias, error) from error
        else:
            return True
        finally:
            await line.close()
    return False


def check_servers() -> None:
    """Talk to both servers as a node does; raise CannotReach."""

    async def look() -> None:
        async with joined():
            pass

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(look())
