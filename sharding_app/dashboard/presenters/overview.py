"""The first thing to see: is anything wrong, and what does the cluster do?"""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from sharding_app.dashboard import words
from sharding_app.dashboard.presenters.homes import View, homes
from sharding_app.operations.cache import Look
from sharding_app.operations.snapshot import MOST_COUNTED
from sharding_app.operations.status import findings
from sharding_app.protocol.messages import Coordination


def banner(look: Look) -> View:
    trouble = look.trouble and _("This process cannot ask the nodes: {}").format(look.trouble)
    found = findings(look.cluster, look.answers, trouble)
    problems = [each for each in found if each.is_severe]
    joining = [each.name for each in look.cluster.members if each.state == "joining"]
    leaving = [each.name for each in look.cluster.members if each.state == "leaving"]
    moving = look.cluster.moving
    notes = []
    if joining:
        notes.append(_("{} joins.").format(", ".join(joining)))
    if leaving:
        notes.append(_("{} hands its shards over.").format(", ".join(leaving)))
    if moving:
        notes.append(
            ngettext("{} shard is moving.", "{} shards are moving.", moving).format(words.count(moving))
        )
    coordination = _coordination(look)
    if coordination is not None and not coordination.rebalancing:
        notes.append(_("Rebalancing is paused."))
    notes += [each.what for each in found if not each.is_severe]
    return {
        "healthy": not problems,
        "problems": problems,
        "notes": notes,
        "title": _("The cluster is healthy.")
        if not problems
        else ngettext("{} problem", "{} problems", len(problems)).format(len(problems)),
    }


def _coordination(look: Look) -> Coordination | None:
    answer = look.stats.get(look.cluster.coordinator.incarnation or "")
    return None if answer is None else answer.coordination


def coordinator(look: Look) -> View:
    row = look.cluster.coordinator
    work = _coordination(look)
    return {
        "home": homes(look).get(row.incarnation or ""),
        "term": row.term,
        "since": words.age(look.cluster.elected, look.cluster.now),
        "known": work is not None,
        "rebalancing": work is None or work.rebalancing,
        "handing_off": 0 if work is None else work.handing_off,
        "queued": 0 if work is None else work.queued,
        "starting": 0 if work is None else work.starting,
    }


def tiles(look: Look) -> list[View]:
    """The overview's figures."""
    total, who = look.total, coordinator(look)
    up = sum(each.state == "up" for each in look.cluster.members)
    handing = look.cluster.moving
    drops = sum(count for answer in look.stats.values() for _type, _why, count in answer.drops)
    known = bool(look.stats)
    return [
        _tile(
            "nodes", _("Nodes up"), f"{up} / {len(look.cluster.members)}",
            bad=up < len(look.cluster.members) or not up,
        ),
        _tile(
            "coordinator", _("Coordinator"), who["home"]["name"] if who["home"] else _("none"),
            _("term {term}, for {age}").format(term=who["term"], age=who["since"]), bad=who["home"] is None,
        ),
        _tile("entities", _("Entities in memory"), words.count(total.entities if known else None)),
        _tile("commands", _("Commands / s"), words.rate(total.commands), chart="commands"),
        _tile(
            "latency", _("Latency p50 / p99"), f"{words.duration(total.p50)} / {words.duration(total.p99)}",
            _("in the nodes, sampled"), chart="p99",
        ),
        _tile(
            "appends", _("Journal appends / s"), words.rate(total.appends),
            _("{events} events / s, each commit {time}").format(
                events=words.rate(total.events), time=words.duration(total.append_p50)
            ),
            chart="appends",
        ),
        _tile(
            "failures", _("Failures / s"), words.rate(total.failures),
            _("{} commands not delivered so far").format(words.count(drops if known else None)),
            bad=bool(total.failures and total.failures >= 1),
        ),
        _tile(
            "moving", _("Shards in motion"), words.count(handing),
            _("rebalancing is paused") if not who["rebalancing"]
            else _("{} waiting").format(words.count(who["queued"])),
            bad=not who["rebalancing"],
        ),
        *_messages(look),
    ]  # fmt: skip


def _messages(look: Look) -> list[View]:
    """Return a tile about messages and timers, where there have ever been any."""
    rows, label = look.cluster.message_counts, _("Messages overdue / parked")
    if look.cluster.uncounted:
        return [
            _tile("messages", label, words.NOTHING, _("the database takes too long to count them"), bad=True)
        ]
    if not rows:
        return []
    overdue, parked = sum(each.overdue for each in rows), sum(each.parked for each in rows)
    capped = any(max(each.overdue, each.parked) >= MOST_COUNTED for each in rows)
    more = "+" if capped else ""
    return [
        _tile(
            "messages", label, f"{words.count(overdue)} / {words.count(parked)}{more}",
            _("about {} on their way").format(words.count(look.cluster.messages)), bad=bool(overdue or parked),
        )
    ]  # fmt: skip


def _tile(key: str, label: str, value: str, note: str = "", *, chart: str = "", bad: bool = False) -> View:
    return {"key": key, "label": label, "value": value, "note": note, "chart": chart, "bad": bad}
