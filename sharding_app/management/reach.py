"""Can the servers be reached? One sentence that says which cannot, and what to do, before anything else is tried."""

import asyncio

from django.conf import settings as django_settings
from django.core.management.base import CommandError

from sharding_app.bootstrap import client_process, new_loop
from sharding_app.conf import get_settings
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.runtime.process import Process

UNREACHABLE = 2
"""The exit code of every command that finds a server out of reach."""


def database_trouble(alias: str, error: BaseException) -> str:
    """A sentence about a database that does not answer."""
    reason = " ".join(str(error).split())
    if "manage.py migrate" in reason:
        return f"{reason[0].upper()}{reason[1:]}."
    config = django_settings.DATABASES.get(alias, {})
    where = f"{config.get('HOST') or 'localhost'}:{config.get('PORT') or 5432}"
    return f"PostgreSQL at {where} (DATABASES[{alias!r}]) cannot be used: {reason}"


def transport_trouble(error: BaseException) -> str:
    """A sentence about a channel layer that does not carry."""
    reason = " ".join(str(error).split())
    return f"The channel layer does not carry messages; is Redis running, and is its address right? {reason}"


async def joined() -> Process:
    """A process of the cluster that only asks. Raises CommandError with a sentence."""
    process = client_process()
    try:
        await process.start()
    except (StoreUnavailable, TransportError) as error:
        await process.close()
        raise CommandError(trouble(error), returncode=UNREACHABLE) from error
    return process


def trouble(error: BaseException) -> str:
    """Say what a failed start means."""
    if isinstance(error, TransportError):
        return transport_trouble(error)
    return database_trouble(get_settings().database, error)


def check_servers() -> None:
    """Speak to both servers as a node would. Raises CommandError with a sentence."""

    async def look() -> None:
        process = await joined()
        await process.close()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(look())
