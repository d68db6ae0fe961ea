"""What the commands that remove rows share: where they do it, what is refused, and how they say how much it was."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from sharding_app.adapters.postgres.line import Conninfo
from sharding_app.adapters.postgres.removal import NodesAlive, ServerError, UnknownTypes
from sharding_app.bootstrap import conninfo
from sharding_app.conf import get_settings
from sharding_app.management.console import counted
from sharding_app.management.operating import OperatorCommand, refused
from sharding_app.management.reach import database_trouble

T = TypeVar("T")

ROWS = {
    "homes": "home",
    "locations": "location",
    "events": "event",
    "snapshots": "snapshot",
    "remembered": "remembered id",
    "leases": "lease",
    "nodes": "node row",
}
"""What a command may have removed, in the order in which it says so: field and word."""


class RemovingCommand(OperatorCommand):
    def on_database(self, work: Callable[[Conninfo], T]) -> T:
        """Do it in the database of the lifelines, where living nodes can be seen."""
        settings = get_settings()
        try:
            return work(conninfo(settings.lifeline_database))
        except NodesAlive as error:
            names = ", ".join(error.names)
            raise refused(
                f"Nodes are alive: {names}. Stop them first: where they are supervised (systemd, Compose, runcluster), or "
                "with manage.py sharding_shutdown --all"
            ) from error
        except UnknownTypes as error:
            raise refused(f"The cluster knows no type {', '.join(map(repr, error.names))}.") from error
        except ServerError as error:
            raise database_trouble(settings.database, error) from error


def amount(found: msgspec.Struct) -> str:
    """How many rows of each kind, in words."""
    numbers: dict[str, int] = msgspec.structs.asdict(found)
    return ", ".join(counted(numbers[field], word) for field, word in ROWS.items() if field in numbers)
