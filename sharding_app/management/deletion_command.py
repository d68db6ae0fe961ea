"""The base of the commands that delete rows: the database, refusals, and counts in words."""

from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from sharding_app.adapters.postgres.connection import Conninfo
from sharding_app.adapters.postgres.deletion import (
    NodesAlive,
    ServerError,
    ShardsMove,
    UnknownTypes,
    living_hosts,
)
from sharding_app.adapters.postgres.failed_database import failed_database
from sharding_app.adapters.postgres.further_journals import (
    Further,
    JournalDown,
    UnknownJournals,
    refuse_elsewhere,
)
from sharding_app.adapters.postgres.transfer import Moved, Resizing
from sharding_app.management.operator_command import OperatorCommand, refused
from sharding_app.operations.connectivity import database_trouble
from sharding_app.operations.console import counted
from sharding_app.settings.load import get_settings
from sharding_app.wiring import conninfo, further_ways

T = TypeVar("T")

ROWS = {
    "homes": "home",
    "locations": "location",
    "events": "event",
    "snapshots": "snapshot",
    "remembered": "remembered id",
    "messages": "message",
    "leases": "lease",
    "nodes": "node row",
}
"""The kinds of rows that a command may remove, in the order of its report: field and word."""


class DatabaseCommand(OperatorCommand):
    """A command that works on the tables by a connection of its own."""

    def on_database(self, work: Callable[[Conninfo], T]) -> T:
        """Run it in the lifelines' database, where live nodes can be seen."""
        settings = get_settings()
        try:
            return work(conninfo(settings.lifeline_database))
        except NodesAlive as error:
            raise refused(running(error.names)) from error
        except ShardsMove as error:
            raise refused(
                f"{error}: wait until that is done, or take it back (manage.py sharding_move_journal)."
            ) from error
        except Moved as error:
            raise refused(f"{error}: run the command again.") from error
        except Resizing as error:
            raise refused(
                f"{error}: wait until that is done (manage.py sharding_resize {error.name})."
            ) from error
        except UnknownTypes as error:
            raise refused(f"The cluster knows no type {', '.join(map(repr, error.names))}.") from error
        except UnknownJournals as error:
            raise refused(str(error)) from error
        except JournalDown as error:
            raise database_trouble(error.name, error.__cause__ or error) from error
        except ServerError as error:
            alias = failed_database(error) or settings.lifeline_database
            raise database_trouble(alias, error) from error

    def further(self) -> Further:
        """Return the ways to the further journals that the settings name. They lead to those
        databases that nodes use.
        """
        ways = further_ways(get_settings())
        self.on_database(lambda where: refuse_elsewhere(where, ways))
        return ways


class DeletionCommand(DatabaseCommand):
    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--dry-run", action="store_true", help="only report the rows that would be deleted"
        )

    def refusal(
        self, types: Sequence[str] | None, told: Callable[[Sequence[str]], str], *, dry_run: bool
    ) -> list[str]:
        """Return the living nodes for which the command would be refused now. A dry run says so;
        without it the command is refused, before anything is counted or asked.
        """
        alive = self.on_database(lambda where: living_hosts(where, types))
        if alive and not dry_run:
            raise refused(told(alive))
        if alive:
            self.say(f"It would be refused now. {told(alive)}.")
        return alive


def running(names: Sequence[str]) -> str:
    return (
        f"Nodes are running: {', '.join(names)}. Stop them first, in their supervisor (systemd, Compose, "
        "runcluster) or with manage.py sharding_shutdown --all"
    )


def counts(found: msgspec.Struct) -> dict[str, int]:
    """Return the numbers of rows, by kind."""
    numbers = msgspec.structs.asdict(found)
    return {kind: numbers[kind] for kind in ROWS if kind in numbers}


def amount(found: msgspec.Struct) -> str:
    """Return in words how many rows of each kind there are."""
    numbers = counts(found)
    return ", ".join(counted(numbers[field], word) for field, word in ROWS.items() if field in numbers)
