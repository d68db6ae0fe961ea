"""`manage.py sharding_projection`: how far projections have come, and orders to them."""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from datetime import UTC
from typing import Any

from django.db import DatabaseError, connections

from sharding_app.adapters.postgres.failed_database import failed_database
from sharding_app.errors import ShardingError
from sharding_app.management.operator_command import OperatorCommand, refused, signed
from sharding_app.operations import projections
from sharding_app.operations.connectivity import PROBLEMS, database_trouble
from sharding_app.operations.console import age_text, columns
from sharding_app.operations.projections import ProjectionLook
from sharding_app.settings.load import get_settings

SHOWN = 20
CONFIRMED = {
    "reset": "All rows of {} are cleared and filled anew.",
    "remove": "The positions of {} are forgotten; its own rows stay.",
    "skip": "The event is left out of {} for good.",
    "accept_server": "Positions of {} count on this server. After a restored dump this loses events.",
}
"""Orders that cannot be undone."""
ORDERS = (*projections.SIMPLE, "reset", "retry", "skip")


class Command(OperatorCommand):
    help = (
        "Show projections: state, events handled, how far they are behind in events and seconds, and entities that\n"
        "wait after a failure. With one name also its parts and those entities. Orders change one version.\n\n"
        "Examples:\n"
        "  manage.py sharding_projection                            all of them\n"
        "  manage.py sharding_projection shop.OpenAuctions          its parts, and the entities that wait\n"
        "  manage.py sharding_projection shop.OpenAuctions --pause  let no turn begin; --resume goes on\n"
        "  manage.py sharding_projection shop.OpenAuctions --reset  clear its rows, and fill them anew\n"
        "  manage.py sharding_projection shop.OpenAuctions --retry shop.Auction 17\n"
        "  manage.py sharding_projection shop.OpenAuctions --skip shop.Auction 17 --number 4\n"
        "  manage.py sharding_projection shop.OpenAuctions:1 --remove forget a version that no code has any more\n\n"
        "Exit codes: 0 done, 1 problems found or refused, 2 a server cannot be reached."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "name",
            metavar="NAME[:VERSION]",
            nargs="?",
            default="",
            help="name of a projection, such as shop.Open:2",
        )
        parser.add_argument("--pause", action="store_true", help="let no turn begin")
        parser.add_argument("--resume", action="store_true", help="go on after --pause")
        parser.add_argument(
            "--reset", action="store_true", help="clear its rows with its clear(), and fill them anew"
        )
        parser.add_argument(
            "--remove", action="store_true", help="forget a version that no code has any more"
        )
        parser.add_argument("--accept-server", action="store_true", help="go on after pg_upgrade")
        parser.add_argument("--retry", nargs=2, metavar=("TYPE", "ID"), help="try an entity again that waits")
        parser.add_argument(
            "--skip", nargs=2, metavar=("TYPE", "ID"), help="leave out the event at which it waits"
        )
        parser.add_argument("--number", type=int, metavar="N", help="with --skip: the number of that event")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def work(self, options: dict[str, Any]) -> None:
        orders = [each for each in ORDERS if options[each]]
        if len(orders) > 1:
            raise refused("Give one order at a time.")
        name, colon, given = str(options["name"]).partition(":")
        if orders and not name:
            raise refused("Name the projection.")
        if colon and not (given.isascii() and given.isdecimal() and len(given) < 10):
            raise refused("A version is a number, as in shop.OpenAuctions:2.")
        version = int(given) if colon else None
        if bool(options["skip"]) != (options["number"] is not None):
            raise refused("--skip and --number belong together: they name the event that is left out.")
        alias = get_settings().database
        try:
            found = [each for each in projections.look(name or None) if version in (None, each.version)]
            if name and not found:
                raise refused(f"No node has run a projection {options['name']!r}. {_there()}")
            if orders:
                self._order(orders[0], _one(found), options)
            else:
                self._show(found, detailed=bool(name))
        except ShardingError as error:
            raise refused(f"{error.message}.") from error
        except DatabaseError as error:
            raise database_trouble(failed_database(error) or alias, error) from error
        finally:
            connections[alias].close()

    # -- Orders ------------------------------------------------------------------------------------

    def _order(self, action: str, chosen: ProjectionLook, options: dict[str, Any]) -> None:
        name, version = chosen.name, chosen.version
        title = f"{name} {version}"
        if action == "remove" and chosen.declared:
            raise refused(
                f"The code here has {title}: its nodes would make it again. Remove the class first."
            )
        if action in CONFIRMED:
            self.sure(CONFIRMED[action].format(title), yes=options["yes"])
        type_name, entity = options["retry"] or options["skip"] or ("", "")
        done = projections.order(
            action,
            name,
            version,
            signed("sharding_projection"),
            type_name=type_name,
            entity=entity,
            number=options["number"] or 0,
        )
        number = f" #{options['number']}" if action == "skip" else ""
        of = f"{type_name} {entity!r}{number}"
        if not done:
            raise refused(f"{of} does not wait in {title}. It may have gone on: look again.")
        self.say(f"{title}: {action.replace('_', ' ')}{f' {of}' if entity else ''}, done.")
        self.result(name=name, version=version, order=action)

    # -- Reports -----------------------------------------------------------------------------------

    def _show(self, found: Sequence[ProjectionLook], *, detailed: bool) -> None:
        waits = {
            (each.name, each.version): projections.held(each.name, each.version, SHOWN)
            for each in found
            if detailed and each.waiting
        }
        problems = any(each.problems for each in found)
        if self.as_json:
            shown = [
                {
                    **each.as_json(),
                    "held": [
                        {**one._asdict(), "retry_at": one.retry_at.isoformat(), "at": one.at.isoformat()}
                        for one in waits.get((each.name, each.version), ())
                    ],
                }
                for each in found
            ]
            self.result(healthy=not problems, projections=shown)
        else:
            for line in _lines(found, detailed=detailed):
                self.say(line)
            for of, rows in waits.items():
                self.say(f"Entities that wait in {of[0]} {of[1]}:")
                for one in rows:
                    state = (
                        "parked"
                        if one.parked
                        else f"tried again at {one.retry_at.astimezone(UTC):%H:%M:%S} UTC"
                    )
                    self.say(
                        f"  {one.type_name} {one.entity!r} #{one.number}: {one.error} ({one.failures} times, {state})"
                    )
        if problems:
            sys.exit(PROBLEMS)


def _one(found: Sequence[ProjectionLook]) -> ProjectionLook:
    if len(found) > 1:
        there = ", ".join(f"{each.name}:{each.version}" for each in found)
        raise refused(f"Say which version: {there}.")
    return found[0]


def _there() -> str:
    names = sorted({each.name for each in projections.look()})
    return f"There are: {', '.join(names)}." if names else "There is none yet."


def _lines(found: Sequence[ProjectionLook], *, detailed: bool) -> list[str]:
    if not found:
        return ["There is no projection yet. A node makes those of the code when it starts."]
    rows = [["PROJECTION", "VERSION", "STATE", "HANDLED", "BEHIND", "AGE", "WAITING", "PARKED"]]
    for each in found:
        more = "+" if each.behind_more else ""
        rows.append(
            [
                each.name,
                str(each.version),
                each.state,
                str(each.events),
                f"{each.behind_events}{more}",
                age_text(each.behind_seconds),
                str(each.waiting),
                str(each.parked),
            ]
        )
    lines = columns(rows)
    if detailed:
        parts = [["SLICES", "HANDLED", "BEHIND", "AGE", "FILLING", "MOVED"]]
        several = any(part.journal for each in found for part in each.status.parts)
        if several:
            parts[0].insert(0, "JOURNAL")
        for each in found:
            for part in each.status.parts:
                more = "+" if part.behind_more else ""
                parts.append(
                    [
                        *([part.journal or get_settings().database] if several else []),
                        f"{part.first_slice}-{part.last_slice}",
                        str(part.events),
                        "?" if part.trouble else f"{part.behind_events}{more}",
                        "?" if part.trouble else age_text(part.behind_seconds),
                        f"after {part.fill_after!r}" if part.is_filling else "-",
                        f"{part.at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC",
                    ]
                )
        lines += ["", *columns(parts)]
    lines += [f"{each.name} {each.version}: {problem}." for each in found for problem in each.problems]
    return lines
