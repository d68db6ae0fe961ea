"""What goes wrong, and what was decided: drops and failures with their reasons, lines of the
timeline.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _

from sharding_app.dashboard import words
from sharding_app.dashboard.decision_tones import TONES
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look
from sharding_app.protocol.ids import Incarnation


def troubles(look: Look, type_name: str = "", entity: str = "") -> list[View]:
    """What has failed in the nodes lately, newest first."""
    shown = homes(look)
    numbers = {each.config.name: each.number for each in look.cluster.types}
    stuck = [
        (failed.since_seconds, node, of.type, failed)
        for node, answer in look.stats.items()
        for of in answer.types
        for failed in of.failed_starts
        if type_name in ("", of.type) and entity in ("", failed.entity)
    ]
    found = [
        (trouble.age_seconds, node, trouble)
        for node, answer in look.stats.items()
        for trouble in answer.troubles
        if type_name in ("", trouble.type) and entity in ("", trouble.entity)
    ]
    return [
        {
            "ago": words.duration(seconds) if seconds < 1 else _ago(seconds),
            "home": shown.get(node),
            "type": of,
            "number": numbers.get(of),
            "entity": failed.entity,
            "command": words.NOTHING,
            "reason": _("cannot start: {error}, tried {count} times").format(
                error=failed.error, count=words.count(failed.attempts)
            ),
        }
        for seconds, node, of, failed in sorted(stuck, key=lambda item: item[0])
    ] + [
        {
            "ago": words.duration(seconds) if seconds < 1 else _ago(seconds),
            "home": shown.get(node),
            "type": trouble.type,
            "number": numbers.get(trouble.type),
            "entity": trouble.entity,
            "command": trouble.command or words.NOTHING,
            "reason": reason(trouble.reason),
        }
        for seconds, node, trouble in sorted(found, key=lambda item: item[0])[:100]
    ]


def _ago(seconds: float) -> str:
    return words.span(timedelta(seconds=seconds))


def drops(look: Look) -> list[View]:
    """What was not delivered, refused or failed, by type and reason, over all nodes since their
    starts.
    """
    counted: Counter[tuple[str, str]] = Counter()
    for answer in look.stats.values():
        for type_name, why, number in answer.drops:
            counted[type_name, why] += number
        for each in answer.types:
            for name, number in each.counters.items():
                if name in DROP_COUNTERS and number:
                    counted[each.type, name] += number
    most = max(counted.values(), default=1)
    return [
        {
            "type": type_name,
            "reason": reason(why),
            "count": words.count(number),
            "width": round(100 * number / most, 1),
        }
        for (type_name, why), number in counted.most_common()
    ]


DROP_COUNTERS = frozenset(
    (
        "handler_failed", "mailbox_full", "journal_still", "recovery_failed", "recovery_refused", "stopped_by_force",
        "stop_handler_failed", "after_commit_failed",
        "not_committed_fenced", "not_committed_refused", "not_committed_superseded",
    )
)  # fmt: skip


def reason(code: str) -> str:
    """A reason in plain words; an error's class is its own word."""
    known = {
        "timeout": _("no answer in time"),
        "buffer_full": _("the caller's buffer was full"),
        "mailbox_full": _("too many commands waited for one entity"),
        "journal_still": _("too many calls of one process waited for a journal that did not go on"),
        "no_host": _("no node hosts the type"),
        "fate_unknown": _("its node died while it was in flight"),
        "home_died": _("the node of its target died while it was in flight"),
        "poisonous": _("two nodes died while it was in flight"),
        "stopped": _("the caller's process left"),
        "stopped_under_way": _("the caller's process left while it was in flight"),
        "handler_failed": _("the handler raised"),
        "recovery_failed": _("the entity cannot be recovered"),
        "recovery_refused": _("the entity recently failed to recover"),
        "stop_handler_failed": _("the stop handler raised: the entity has stopped"),
        "after_commit_failed": _("a function of after_commit() raised: what the command stored stays"),
        "stopped_by_force": _("it ignored its stop message"),
        "not_committed_fenced": _("the shard had moved on"),
        "not_committed_refused": _("PostgreSQL refused its events"),
        "not_committed_superseded": _("a commit before it failed"),
    }
    return known.get(code, code)


_INCARNATION = re.compile(r"\bn-[0-9a-z]+\b")


def _named(incarnation: str, shown: Mapping[Incarnation, View]) -> str:
    home = shown.get(incarnation)
    return home["name"] if home else incarnation


def decision_rows(rows: Iterable[Any], shown: Mapping[Incarnation, View], now: datetime) -> list[View]:
    """Lines of the timeline. A subject that is a living node is shown as one."""
    return [
        {
            "id": row.id,
            "at": row.at,
            "ago": words.age(row.at, now),
            "term": row.term,
            "action": row.action.replace("_", " "),
            "code": row.action,
            "tone": TONES.get(row.action, "plain"),
            "home": shown.get(row.subject),
            "subject": row.subject,
            **_detail(_INCARNATION.sub(lambda match: _named(match[0], shown), row.detail)),
        }
        for row in rows
    ]


_NUMBERS = re.compile(r"[\d,-]+(?= )")
SHORT_DETAIL = 40


def _detail(text: str) -> View:
    """A long list of shards is told by its length first."""
    found = _NUMBERS.match(text)
    if found is None or len(found[0]) <= SHORT_DETAIL:
        return {"detail": text}
    return {
        "short": _("{} shards").format(words.count(_shards(found[0]))) + text[found.end() :],
        "detail": found[0].replace(",", ", "),
    }


def _shards(numbers: str) -> int:
    """How many there are in 1-4,7."""
    ends = [each.partition("-") for each in numbers.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, _dash, last in ends if first.isdecimal())


LANES = ("coordinator", "nodes", "shards")
STRIP_WIDTH, LANE_HEIGHT = 600, 26


def strip(decisions: Sequence[View], now: datetime) -> View | None:
    """The timeline as a picture: three lanes, the oldest line at the left, now at the right."""
    if not decisions:
        return None
    oldest = decisions[-1]["at"]
    passed = max(1.0, (now - oldest).total_seconds())
    return {
        "width": STRIP_WIDTH,
        "height": LANE_HEIGHT * len(LANES),
        "oldest": oldest,
        "passed": words.age(oldest, now),
        "lanes": [
            {"name": name, "y": LANE_HEIGHT * number + LANE_HEIGHT // 2}
            for number, name in enumerate((_("Coordinator"), _("Nodes"), _("Shards")))
        ],
        "marks": [
            {
                "x": round(90 + (STRIP_WIDTH - 100) * (1 - (now - each["at"]).total_seconds() / passed), 1),
                "y": LANE_HEIGHT * _lane(each["code"]) + LANE_HEIGHT // 2,
                "tone": each["tone"],
                "text": f"{_local(each['at']):%H:%M:%S} {each['action']} {each['home']['name'] if each['home'] else each['subject']}",
            }
            for each in decisions
        ],
    }


def _local(at: datetime) -> datetime:
    """Return a moment by the site's clock, as templates show it."""
    return localtime(at) if is_aware(at) else at


def _lane(action: str) -> int:
    if action.startswith(("coordinator", "rebalancing")):
        return 0
    return 1 if action.startswith("node") else 2
