"""Projections for operators: how far each has come, what is wrong with it, and their orders.

Contract: `look` reads the rows once. An order is a transaction of `adapters.django.projections`,
and a line of the timeline that says by whom.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import connections, transaction

from sharding_app.adapters.django import projections as control
from sharding_app.adapters.django.database import bounded_reads, journal_alias, run_query, secure_here
from sharding_app.adapters.django.projections import HeldEntity, ProjectionStatus
from sharding_app.adapters.postgres.sql import QUERIES
from sharding_app.adapters.postgres.store import TIMELINE_LINES
from sharding_app.entities.projections import projections
from sharding_app.operations.each_journal import in_journal

SIMPLE: dict[str, Callable[[str, int], None]] = {
    "pause": control.pause,
    "resume": control.resume,
    "remove": control.remove,
    "accept_server": control.accept_server,
}
"""Orders to a version that need no more than its name."""
LATE_SECONDS = 60.0
"""A projection that is behind by more than this, and is not paused, is late."""


@dataclass(frozen=True, slots=True)
class ProjectionLook:
    """One version of a projection, as its rows and the code here tell."""

    status: ProjectionStatus
    declared: bool
    "The code that is installed here has this version."

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def version(self) -> int:
        return self.status.version

    @property
    def filling(self) -> bool:
        return any(each.is_filling for each in self.status.parts)

    @property
    def events(self) -> int:
        """Events that were handled, ever."""
        return sum(each.events for each in self.status.parts)

    @property
    def behind_events(self) -> int:
        return sum(each.behind_events for each in self.status.parts)

    @property
    def behind_more(self) -> bool:
        """There are more than were counted."""
        return any(each.behind_more for each in self.status.parts)

    @property
    def behind_seconds(self) -> float:
        return max((each.behind_seconds for each in self.status.parts), default=0.0)

    @property
    def waiting(self) -> int:
        return sum(each.waiting for each in self.status.parts)

    @property
    def parked(self) -> int:
        return sum(each.parked for each in self.status.parts)

    @property
    def journals_away(self) -> dict[str, str]:
        """The journals in which it is not known what is behind, and why."""
        return {each.journal: each.trouble for each in self.status.parts if each.trouble}

    @property
    def by_journal(self) -> dict[str, "ProjectionLook"]:
        """The look at each journal alone. Those that cannot be reached are left out."""
        away = self.journals_away
        names = dict.fromkeys([each.journal for each in self.status.parts] or [""])
        return {
            name: ProjectionLook(
                self.status._replace(parts=[each for each in self.status.parts if each.journal == name]),
                self.declared,
            )
            for name in names
            if name not in away
        }

    @property
    def state(self) -> str:
        """Its state in a word or two."""
        if not self.status.is_of_this_server:
            return "of another server"
        if self.status.paused:
            return "paused"
        if not self.declared:
            return "without code"
        if self.filling:
            return "filling"
        return "live" if self.status.live else "not live"

    @property
    def problems(self) -> list[str]:
        """What an operator should look at, with what can be done."""
        found = []
        if not self.status.is_of_this_server:
            found.append(
                "its positions are of another server: --reset fills it anew, --accept-server after pg_upgrade"
            )
        elif not self.declared:
            found.append(
                "no code here has it, and it holds back the cleaning of changes: --remove forgets it"
            )
        found += [
            f"the journal {journal!r} cannot be reached from here, so what is behind in it is not known: {trouble}"
            for journal, trouble in self.journals_away.items()
        ]
        if self.parked:
            found.append(f"{self.parked} parked: see their errors, then --retry or --skip")
        late = self.behind_seconds > LATE_SECONDS and not self.filling
        if late and self.declared and not self.status.paused:
            found.append(f"late by {self.behind_seconds:.0f} s: is a node running that has its code?")
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "version": self.version,
            "state": self.state,
            "live": self.status.live,
            "paused": self.status.paused,
            "declared": self.declared,
            "of_this_server": self.status.is_of_this_server,
            "events": self.events,
            "behind_events": self.behind_events,
            "behind_more": self.behind_more,
            "behind_seconds": round(self.behind_seconds, 3),
            "waiting": self.waiting,
            "parked": self.parked,
            "problems": self.problems,
            "parts": [{**each._asdict(), "at": each.at.isoformat()} for each in self.status.parts],
        }


def look(name: str | None = None, most: int = control.COUNTED) -> list[ProjectionLook]:
    """Read all projections, or all versions of one; counts of each part end at `most`. Raises
    DatabaseError.
    """
    known = {(each.title, each.version) for each in projections.all().values()}
    found = control.status(name, most, in_journal)
    return [ProjectionLook(each, (each.name, each.version) in known) for each in found]


def look_if_allowed(name: str | None = None, most: int = control.COUNTED) -> list[ProjectionLook] | None:
    """Read them for a page or for metrics, within their time; None: this role may not read the
    rows. Raises DatabaseError.
    """
    with bounded_reads(), connections[journal_alias()].cursor() as cursor:
        ((allowed,),) = run_query(cursor, "projection_readable")
        return look(name, most) if allowed else None


def held(name: str, version: int, limit: int = 100) -> list[HeldEntity]:
    """Return the entities that wait after a failure, the parked ones first."""
    return control.held(name, version, limit)


def order(
    action: str,
    name: str,
    version: int,
    by: str,
    *,
    type_name: str = "",
    entity: str = "",
    number: int = 0,
    is_bounded: bool = False,
) -> bool:
    """Carry an order out, and note it in the timeline: both, or neither. False: the entity does not
    wait there. Raises DatabaseError, and ProjectionError if it cannot be done. It returns once a
    synchronous standby has the order.

    The timeline keeps no ids of entities. `is_bounded`: no statement takes longer than a page may;
    raises ReadTooLong.
    """
    note = partial(_note, action, f"{name}:{version}", _detail(type_name, number, by))
    if action == "reset":
        control.reset(name, version, beside=note, is_bounded=is_bounded)
        secure_here(journal_alias())
        return True
    with bounded_reads() if is_bounded else transaction.atomic(using=journal_alias()):
        if action in SIMPLE:
            SIMPLE[action](name, version)
        elif action == "retry":
            if not control.retry(name, version, type_name, entity):
                return False
        elif not control.skip(name, version, type_name, entity, number):
            return False
        note()
    secure_here(journal_alias())
    return True


def _detail(type_name: str, number: int, by: str) -> str:
    of = f"{type_name} #{number}" if number else type_name
    return f"{of}, by {by}" if of else f"by {by}"


def _note(action: str, subject: str, detail: str) -> None:
    with connections[journal_alias()].cursor() as cursor:
        cursor.execute(
            QUERIES["record"].decode(),
            {
                "actions": [f"projection_{action}"],
                "subjects": [subject],
                "details": [detail],
                "kept": TIMELINE_LINES,
            },
        )
