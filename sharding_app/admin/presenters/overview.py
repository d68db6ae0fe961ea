"""The first thing to see: is anything wrong, and what does the cluster do?"""

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from sharding_app.admin import words
from sharding_app.admin.presenters.homes import View, homes
from sharding_app.core.messages import Coordination
from sharding_app.http.collector import Look
from sharding_app.http.problems import judged, problems


def banner(look: Look) -> View:
    found = problems(look)
    joining = [each.name for each in look.rows.members if each.state == "joining"]
    leaving = [each.name for each in look.rows.members if each.state == "leaving"]
    moving = sum(row.step == "handoff" for row in look.rows.shards)
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
    notes += judged(look).notes
    return {
        "healthy": not found,
        "problems": found,
        "notes": notes,
        "title": _("The cluster is healthy.")
        if not found
        else ngettext("{} problem", "{} problems", len(found)).format(len(found)),
    }


def _coordination(look: Look) -> Coordination | None:
    answer = look.stats.get(look.rows.coordinator.incarnation or "")
    return None if answer is None else answer.coordination


def coordinator(look: Look) -> View:
    row = look.rows.coordinator
    work = _coordination(look)
    return {
        "home": homes(look).get(row.incarnation or ""),
        "term": row.term,
        "since": words.age(look.rows.elected, look.rows.now),
        "known": work is not None,
        "rebalancing": work is None or work.rebalancing,
        "handing_off": 0 if work is None else work.handing_off,
        "queued": 0 if work is None else work.queued,
        "starting": 0 if work is None else work.starting,
    }


def tiles(look: Look) -> list[View]:
    """The overview's figures."""
    total, who = look.total, coordinator(look)
    up = sum(each.state == "up" for each in look.rows.members)
    handing = sum(row.step == "handoff" for row in look.rows.shards)
    drops = sum(count for answer in look.stats.values() for _type, _why, count in answer.drops)
    known = bool(look.stats)
    return [
        _tile(
            "nodes", _("Nodes up"), f"{up} / {len(look.rows.members)}",
            bad=up < len(look.rows.members) or not up,
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
            else _("{} wait for their turn").format(words.count(who["queued"])),
            bad=not who["rebalancing"],
        ),
    ]  # fmt: skip


def _tile(key: str, label: str, value: str, note: str = "", *, chart: str = "", bad: bool = False) -> View:
    return {"key": key, "label": label, "value": value, "note": note, "chart": chart, "bad": bad}
