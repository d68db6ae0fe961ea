"""Can the servers be reached? One sentence that says which cannot, and what to do, before anything else is tried."""

import asyncio
import re

from django.conf import settings as django_settings
from django.core.management.base import CommandError

from sharding_app.bootstrap import client_process, new_loop
from sharding_app.conf import get_settings
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.process import Process, WireRefused

HEALTHY, PROBLEMS, UNREACHABLE = 0, 1, 2
"""Exit codes of all commands that look at the cluster."""


_LIBPQ = re.compile(r"^(?:connection failed: )?connection to server .+? failed: ")
_REFUSES = "FATAL:"
"""How a server begins when it refuses a connection; without one, libpq speaks for itself."""
_LIBPQ_ASKS = re.compile(r"\s*Is the server running on that host and accepting TCP/IP connections\?")


class CannotReach(CommandError):
    """A server that this command needs does not answer, or not as it should. The message says what to do."""


def database_trouble(alias: str, error: BaseException) -> CannotReach:
    """About a database that cannot be used, or has not got its tables."""
    reason = _LIBPQ_ASKS.sub("", _LIBPQ.sub("", " ".join(str(error).split())))
    if "manage.py migrate" in reason:
        return CannotReach(f"{reason[0].upper()}{reason[1:]}.", returncode=PROBLEMS)
    config = django_settings.DATABASES.get(alias, {})
    where = f"{config.get('HOST') or 'localhost'}:{config.get('PORT') or 5432}"
    if _REFUSES in reason:
        hint = (
            "Where its connections are all taken, docs/running.md counts what a cluster needs; else look at USER and PASSWORD of "
            f"DATABASES[{alias!r}]."
        )
        return CannotReach(
            f"PostgreSQL at {where} is there and refuses this login: {reason}. {hint}", returncode=UNREACHABLE
        )
    hint = f"Does it run there, and is DATABASES[{alias!r}] right?"
    return CannotReach(f"PostgreSQL at {where} cannot be used: {reason}. {hint}", returncode=UNREACHABLE)


def transport_trouble(error: BaseException) -> CannotReach:
    """About a channel layer that does not carry."""
    reason = " ".join(str(error).split()).rstrip(".")
    hint = "Does Redis run there, and is CHANNEL_LAYERS right?"
    return CannotReach(f"The channel layer carries no messages: {reason}. {hint}", returncode=UNREACHABLE)


def trouble(error: BaseException) -> CannotReach:
    """What a failed look at the servers means."""
    if isinstance(error, TransportError):
        return transport_trouble(error)
    if isinstance(error, WireRefused):
        text = str(error)
        return CannotReach(
            f"{text[0].upper()}{text[1:]}. Update the older one, release by release.", returncode=PROBLEMS
        )
    return database_trouble(get_settings().database, error)


async def joined() -> Process:
    """A process of the cluster that only asks. Raises CannotReach."""
    process = client_process()
    try:
        await process.start()
    except (StoreUnavailable, TransportError) as error:
        await process.close()
        raise trouble(error) from error
    return process


def check_servers() -> None:
    """Speak to both servers as a node would. Raises CannotReach."""

    async def look() -> None:
        process = await joined()
        await process.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(look())
