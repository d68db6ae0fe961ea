"""Django's transactions as refs see them: an ask inside one is suspicious, a tell inside one waits for its commit.

Blocks that a TestCase wraps around each test do not count: nothing ever commits there.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any


def are_used() -> bool:
    """Whether this process has loaded Django's database layer at all."""
    return "django.db" in sys.modules


def _open() -> Any:
    """The connection that is inside ``atomic()`` on this thread, if any; opens none."""
    handler = sys.modules["django.db"].connections
    if not sys.modules["django.conf"].settings.configured:
        return None
    for connection in handler.all(initialized_only=True):
        if connection.in_atomic_block and any(not block._from_testcase for block in connection.atomic_blocks):
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
