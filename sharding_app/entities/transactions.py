"""Django's transactions as refs see them: an ask inside one is suspicious, a tell inside one waits
for its commit.

Each ask looks for an open transaction, so that has to be cheap: Django signals each connection that
it opens, and we remember those of this thread, weakly. The app subscribes when it is ready: if it
did so later, connections that other threads have open already would never be known. Blocks that a
TestCase wraps around each test do not count: they never commit.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from sharding_app.errors import ShardingError, WrongContext

logger = logging.getLogger("sharding.client")


class _OfThisThread(threading.local):
    """The connections that were opened on this thread."""

    def __init__(self) -> None:
        self.connections: list[weakref.ref[Any]] = []


_here = _OfThisThread()
_listening = False


def _opened(sender: object, connection: Any, **kwargs: object) -> None:
    known = [ref for ref in _here.connections if ref() not in (None, connection)]
    _here.connections = [*known, weakref.ref(connection)]


def are_used() -> bool:
    """Tell whether this process has loaded Django's database layer; from then on, its connections
    are noted.
    """
    if _listening:
        return True
    return "django.db" in sys.modules and _listen()


def _listen() -> bool:
    global _listening
    settings = sys.modules["django.conf"].settings
    if not settings.configured:
        return False
    # By name, because importers of this module must not come to depend on Django.
    signals = importlib.import_module("django.db.backends.signals")
    signals.connection_created.connect(_opened, dispatch_uid="sharding.transactions")
    for connection in sys.modules["django.db"].connections.all(initialized_only=True):
        _opened(None, connection)
    _listening = True
    return True


def open_connections() -> dict[str, Any]:
    """Return all connections that are inside ``atomic()`` on this thread, by their aliases."""
    if not (_listening or are_used()):
        return {}
    known = [ref() for ref in _here.connections]
    return {each.alias: each for each in known if each is not None and _is_open(each)}


def find_open() -> Any:
    """Return the connection that is inside ``atomic()`` on this thread, if any. Threads of event
    loops mostly open none.
    """
    if not (_listening or are_used()):
        return None
    for ref in _here.connections:
        connection = ref()
        if connection is not None and _is_open(connection):
            return connection
    return None


def _is_open(connection: Any) -> bool:
    return connection.in_atomic_block and any(not block._from_testcase for block in connection.atomic_blocks)


def warn(connection: Any, ref: object, name: str) -> None:
    """Warn about an ask that holds a transaction open while it waits."""
    warnings.warn(
        f"{ref!r}.{name}() is asked inside transaction.atomic() on {connection.alias!r}: the ask keeps"
        " the transaction open while it waits, and its effect stays after a rollback."
        " Ask before or after the transaction, or use .tell, which is sent at commit",
        RuntimeWarning,
        stacklevel=3,
    )


def at_commit(send: Callable[[], None]) -> bool:
    """Have `send` run when the open transaction commits; False: there is none.

    With transactions of several databases open, it runs once all of them have committed. An error
    of `send` is logged. Raised, it would be taken for one of the transaction, which is committed by
    then, and Django would drop the hooks behind it.
    """
    opened = list(open_connections().values())
    left = len(opened)

    def committed() -> None:
        nonlocal left
        left -= 1
        if left:
            return
        try:
            send()
        except ShardingError as error:
            logger.warning(
                "a command that was told inside transaction.atomic() could not be sent at the commit: %s", error,
                extra={"action": "dropped"},
            )  # fmt: skip

    for connection in opened:
        connection.on_commit(committed, robust=True)
    return bool(opened)


def refuse_other(alias: str, what: str) -> None:
    """Refuse to store `what` in the cluster's database beside an open transaction of another."""
    opened = open_connections()
    if opened and alias not in opened:
        others = ", ".join(repr(each) for each in opened)
        raise WrongContext(
            f"{what} is stored in the cluster's database {alias!r}, but the open transaction is on {others}:"
            f" the two cannot commit together. Open transaction.atomic(using={alias!r}), or store it after"
            " the transaction"
        )
