"""Plans about messages and timers: the rows are changed, and the homes of their owners are told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from django.db import DatabaseError
from django.http import QueryDict
from django.utils.translation import gettext as _

from sharding_app.adapters.django.database import READ_SECONDS, ReadTooLong
from sharding_app.admin.operator_plans.plan import Plan, Refused
from sharding_app.dashboard import messages as shown
from sharding_app.dashboard import words
from sharding_app.dashboard.keyset import storable
from sharding_app.dashboard.messages import Found
from sharding_app.dashboard.pages.messages import types_with_messages, without
from sharding_app.errors import PartiallyApplied
from sharding_app.models import Message
from sharding_app.operations import messages
from sharding_app.operations.cache import Look
from sharding_app.operations.each_journal import Down
from sharding_app.operations.messages import AnswerLost, Changed, PartlyDone
from sharding_app.ports.deliveries import PARTLY_APPLIED, PARTLY_ELSEWHERE

MOST = 500
"""The most of one request."""
_OF_A_PAGE = ("state", "type", "entity", "after")
"""What says which page of the list an operator has come from."""


def run(look: Look, given: QueryDict) -> Plan:
    chosen = _Chosen(look, given, lambda each: not each.parked)
    return chosen.plan(
        _("Run {} now"),
        [
            _("Each is delivered at once: a timer before its time, a message without the rest of its pause. Its failures are counted from 0 again."),
            _("A message that has to wait for an earlier one of its sender to the same target goes on waiting for that one."),
            *([_("A timer that repeats every so often goes on from now. A daily one fires at its next time of day too.")] if chosen.repeats else []),
        ],
        partial(messages.run_now, chosen.ids, parked=False, journals=look.cluster.journal_names),
    )  # fmt: skip


def retry(look: Look, given: QueryDict) -> Plan:
    chosen = _Chosen(look, given, lambda each: each.parked)
    warned = given.get("partly", "")
    if warned.isdecimal() and len(warned) < 10 and chosen.partly > int(warned):
        raise Refused(_("Some of these have taken effect in part since this page was made: look again."))
    plan = chosen.plan(
        _("Retry {}"),
        [
            _("Each is delivered again at once. If it fails as often as the settings allow, it is parked again."),
            _("Messages of the same sender to the same target that were sent later have gone ahead of it."),
            *([_("{} of these took effect in part: their handlers run again from the beginning. Check first what is stored already, and that no handler still runs.").format(chosen.partly)] if chosen.partly else []),
        ],
        partial(messages.run_now, chosen.ids, parked=True, journals=look.cluster.journal_names),
        danger=bool(chosen.partly),
    )  # fmt: skip
    plan.fields = [*(plan.fields or ()), ("partly", str(chosen.partly))]
    return plan


def discard(look: Look, given: QueryDict) -> Plan:
    chosen = _Chosen(look, given, lambda each: True)
    return chosen.plan(
        _("Discard {}"),
        [
            _("Each is deleted, and has no effect. Its sender is not told: neither its reply nor its failure handler is called."),
            _("One that is under way either is discarded first, or has taken effect: the outcome says how many were gone. A target that is in memory only may have handled it all the same."),
            *([_("One to an entity in another journal may have taken effect there, and its row be left for a moment.")] if len(look.cluster.journal_names) > 1 else []),
            *([_("A timer that repeats ends. One of a singleton's schedule (@every) is set again when the singleton next starts.")] if chosen.repeats else []),
            _("This cannot be undone."),
        ],
        partial(messages.discard, chosen.ids, look.cluster.journal_names),
        danger=True,
    )  # fmt: skip


class _Chosen:
    """The messages that are meant: those that are named, or all of a list. Raises Refused."""

    def __init__(self, look: Look, given: QueryDict, fits: Callable[[Message], bool]) -> None:
        self._look = look
        self._given = given
        self._all = "all" in given
        self._down: dict[str, Down] = {}
        found = self._of_a_list() if self._all else self._named()
        self._messages = [each for each in found if fits(each)]
        if not self._messages:
            raise Refused(
                _(
                    "None of these waits in that way any more: they have taken effect, or were changed meanwhile."
                )
                if found or given.getlist("message")
                else _("Choose at least one message or timer.")
            )

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self._messages]

    @property
    def _pages_on(self) -> bool:
        """Whether all of a list are meant from a later page on. The list of an entity has one."""
        return self._all and bool(self._given.get("after")) and not self._given.get("entity")

    @property
    def repeats(self) -> bool:
        return any(each.every for each in self._messages)

    @property
    def partly(self) -> int:
        return sum(_is_partly_applied(each.error) for each in self._messages)

    def plan(
        self, title: str, consequences: list[str], work: Callable[[], list[Changed]], *, danger: bool = False
    ) -> Plan:
        count = len(self._messages)
        more = _("A list has more: at most {} at a time.").format(MOST) if self._all and count == MOST else ""
        place = _("Those of earlier pages are not meant.") if self._pages_on else ""
        return Plan(
            title=title.format(self._name()),
            consequences=[
                self._about(),
                *([place] if place else []),
                *([more] if more else []),
                *([without([*self._down.values()])] if self._down else []),
                *consequences,
            ],
            work=partial(_outcome, work, count),
            fields=[
                *((name, self._given.get(name, "")) for name in _OF_A_PAGE if name in self._given),
                *(("message", each) for each in self.ids),
            ],
            back=self._back(),
            danger=danger,
        )

    def _named(self) -> list[Message]:
        ids = self._given.getlist("message")
        if len(ids) > MOST:
            raise Refused(_("At most {} messages at a time.").format(MOST))
        return self._noted(
            shown.read_chosen([each for each in ids if shown.is_id(each)], self._look.cluster.journal_names)
        )

    def _of_a_list(self) -> list[Message]:
        state, number, entity = (self._given.get(each, "") for each in ("state", "type", "entity"))
        if state not in shown.STATES or not storable(entity):
            raise Refused(_("Choose at least one message or timer."))
        types = [each for each in types_with_messages(self._look) if number in ("", str(each.number))]
        journals = self._look.cluster.journal_names
        if not entity:
            # From the first row of the page on, which the operator has seen.
            after = self._given.get("after", "")
            place = shown.parse_place(after) if after else None
            if after and place is None:
                raise Refused(_("Choose at least one message or timer."))
            return self._noted(shown.read_page(types, state, place, MOST, journals))
        found = []
        for each in types:
            of_entity = shown.read_entity(each, entity, journals)
            found += of_entity.messages
            self._down |= {one.name: one for one in of_entity.down}
        return shown.in_state(found, state, self._look.cluster.now)[:MOST]

    def _noted(self, found: Found) -> list[Message]:
        self._down |= {each.name: each for each in found.down}
        return found.messages

    def _name(self) -> str:
        """Return a name for the title; one that names an entity ends with it (`sharding_erase`)."""
        if len(self._messages) > 1:
            return _("{} messages and timers").format(words.count(len(self._messages)))
        (one,) = self._messages
        of = f"{self._type(one)} {one.entity}"
        return (
            _("the timer {key} of {of}").format(key=one.key, of=of)
            if one.key
            else _("a message of {}").format(of)
        )

    def _about(self) -> str:
        """Return how many there are of each command."""
        counted = Counter((self._type(each), each.target_type, each.command) for each in self._messages)
        told = [
            _("{count} of {type} to {target}.{command}").format(
                count=words.count(count), type=of, target=target, command=command
            )
            for (of, target, command), count in counted.most_common(5)
        ]
        return _("Meant: {}").format("; ".join([*told, *(["…"] if len(counted) > 5 else [])]))

    def _type(self, message: Message) -> str:
        names = {each.number: each.config.name for each in self._look.cluster.types}
        return names.get(message.type_id, str(message.type_id))

    def _back(self) -> str:
        query = QueryDict(mutable=True)
        for name in _OF_A_PAGE:
            if self._given.get(name):
                query[name] = self._given.get(name, "")
        return f"messages/?{query.urlencode()}" if query else "messages/"


def _is_partly_applied(error: str) -> bool:
    """Tell whether the error of a row says that it took effect in part, here or in another
    journal.
    """
    return error in (PARTLY_APPLIED, PARTLY_ELSEWHERE) or error.startswith(f"{PartiallyApplied.kind}:")


def _outcome(work: Callable[[], list[Changed]], count: int) -> tuple[bool, str]:
    """Carry it out; return whether all went well, and the outcome in words."""
    try:
        done = len(work())
    except PartlyDone as error:
        if error.moving:
            return False, _(
                "{done} done. {moving} change over to another journal just now with their shards, and may come back unchanged: look"
                " at them again in some seconds."
            ).format(done=words.count(len(error.changed)), moving=words.count(error.moving))
        return bool(error.changed), _("{done} done. Nothing else is changed: {why}.").format(
            done=words.count(len(error.changed)), why=str(error).rstrip(".")
        )
    except ReadTooLong:
        return False, _(
            "nothing is changed: other transactions hold these rows for more than {:g} s."
        ).format(READ_SECONDS)
    except AnswerLost as error:
        return False, _("it is not known whether anything is changed: {}. Look at them again.").format(
            str(error).partition("\n")[0].rstrip(".")
        )
    except DatabaseError as error:
        return False, _("nothing is changed: {}").format(str(error).partition("\n")[0])
    if done == count:
        return True, _("done")
    return done > 0, _("{done} done. {gone} were gone or changed meanwhile: they have taken effect, or were cancelled, replaced or parked.").format(
        done=words.count(done), gone=words.count(count - done)
    )  # fmt: skip
