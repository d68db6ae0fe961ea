"""Django's transactions as refs see them: an ask inside one is suspicious, a tell inside one waits for its commit.

Each ask looks, so looking has to be cheap: Django tells us of each connection that it opens, and we remember those of
this thread, weakly. The app asks for that when it is ready: later, the connections of other threads that are open already
would never be known. Blocks that a TestCase wraps around each test do not count: nothing ever commits there.
"""

from __future__ import annotations

import importlib
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any


class _OfThisThread(threading.local):
    """The connections that were opened on this thread."""

    def __init__(self) -> None:
        self.connections: list[weakref.ref[Any]] = []


_here = _OfThisThread()
_listening = False


def _opened(sender: object, connection: Any, **kwargs: object) -> None:
    known = [ref for ref in _here.connections if ref() not in (None, connection)]
    _here.connections = [*known, weakref.ref(connection)]


def may_be_open() -> bool:
    """Whether to look for a transaction: no, mostly, on the threads of event loops, which open no connection."""
    return bool(_here.connections) if _listening else are_used()


def are_used() -> bool:
    """Whether this process has loaded Django's database layer; from then on, its connections are noted."""
    if _listening:
        return True
    return "django.db" in sys.modules and _listen()


def _listen() -> bool:
    global _listening
    settings = sys.modules["django.conf"].settings
    if not settings.configured:
        return False
    # By name: what imports this module must not come to depend on Django.
    signals = importlib.import_module("django.db.backends.signals")
    signals.connection_created.connect(_opened, dispatch_uid="sharding.transactions")
    for connection in sys.modules["django.db"].connections.all(initialized_only=True):
        _opened(None, connection)
    _listening = True
    return True


def _open() -> Any:
    """The connection that is inside ``atomic()`` on this thread, if any."""
    for ref in _here.connections:
        connection = ref()
        if (
            connection is not None
            and connection.in_atomic_block
            and any(not block._from_testcase for block in connection.atomic_blocks)
        ):
            return connection
    return None


def warn_if_open(ref: object, name: str) -> None:
    """Warn about an ask that holds a transaction open while it waits."""
    connection = _open()
    if connection is not None:
        warnings.warn(
            f"{ref!r}.{name}() is asked inside transaction.atomic() on {connection.alias!r}: it keeps"
            " the transaction open while it waits, and its effect stays when that rolls back."
            " Ask before or after it, or use .tell, which is sent at commit",
            RuntimeWarning,
            stacklevel=3,
        )


def at_commit(send: Callable[[], None]) -> bool:
    """Have `send` run when the open transaction commits; False when there is none."""
    connection = _open()
    if connection is None:
        return False
    connection.on_commit(send)
    return True
