"""Django's connections in the threads that handlers use: nobody else tends them there.

A request gives its connections back at its end, and Django throws unusable ones away then. Handlers have no request: without
this a thread would go on with a connection that a restarted server has ended, and keep those that CONN_MAX_AGE limits.
"""

from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async
from django.db import close_old_connections, connections


class DjangoThreads:
    """`runtime.owner.Threads`."""

    def run(self, work: Callable[[], Any]) -> Any:
        """Run a handler in the present thread, as Django runs a request."""
        close_old_connections()
        try:
            return work()
        finally:
            close_old_connections()

    async def tend(self) -> None:
        """The same for the thread on which the async ORM does its work."""
        await sync_to_async(close_old_connections)()

    async def close(self) -> None:
        """Close what that thread holds."""
        await sync_to_async(connections.close_all)()
