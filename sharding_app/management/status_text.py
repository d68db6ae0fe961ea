"""The status report as text: a page for people, or one line for logs."""

from collections.abc import Callable
from datetime import datetime

from django.core.management.color import Style

from sharding_app.operations.console import age_text, columns, counted
from sharding_app.operations.diagnosis import text
from sharding_app.operations.status import NodeStatus, Report, TypeStatus


def page(report: Report, style: Style) -> str:
    lines = [_verdict(report, style), _coordinator(report)]
    if report.nodes:
        head = [
            "NODE",
            "STATE",
            "AGE",
            "LOCKS",
            "SHARDS",
            "ENTITIES",
            "ROLES",
            "VERSION",
            "HOST",
            "PID",
            "SINCE",
            "INCARNATION",
        ]
        lines += ["", *_table(head, [_node(each, report.at) for each in report.nodes], style.MIGRATE_HEADING)]
    if report.types:
        head = ["TYPE", "PLACED", "HANDING OFF", "STOPPED", "ENTITIES", "ROLE", "CONFIGURATION", "HOMES"]
        lines += ["", *_table(head, [_type(each) for each in report.types], style.MIGRATE_HEADING)]
    for title, findings in (("Problems", report.problems), ("Notes", report.notes)):
        if findings:
            lines += ["", style.MIGRATE_HEADING(title)]
            lines += [line for each in findings for line in text.entry(each, style)]
    return "\n".join(lines)


def line(report: Report) -> str:
    """Return the report in one line."""
    words = [
        f"{report.at:%Y-%m-%dT%H:%M:%SZ}",
        "healthy" if report.healthy else "unhealthy",
        f"nodes={sum(each.state == 'up' for each in report.nodes)}/{len(report.nodes)}",
        f"coordinator={report.coordinator or '-'}",
        f"term={report.term}",
        f"shards={sum(each.placed for each in report.types)}",
        f"moving={sum(each.handing_off + each.stopped for each in report.types)}",
        f"entities={report.entities}",
    ]
    return " ".join(words) + "".join(f" | {each.id} {each.what}" for each in report.problems)


def _verdict(report: Report, style: Style) -> str:
    if report.healthy:
        return style.SUCCESS("The cluster is healthy.")
    count = len(report.problems)
    return style.ERROR(f"The cluster has {count} problem{'s' if count > 1 else ''}, see below.")


def _coordinator(report: Report) -> str:
    since = "" if report.elected is None else f" for {_age(report.elected, report.at)}"
    who = "No node coordinates" if report.coordinator is None else f"{report.coordinator} coordinates{since}"
    copies = ", with copies that moves have made" if report.has_copies else ""
    return (
        f"{who}, term {report.term}. About {report.events} events in the journal{copies}. Cluster {report.cluster}, "
        f"sharding_app {report.release}."
    )


def _node(node: NodeStatus, now: datetime) -> list[str]:
    return [
        node.name,
        f"{node.state}, deaf" if node.deaf else node.state,
        str(node.age),
        f"{node.locks}/2",
        str(node.shards),
        "no answer" if node.entities is None else str(node.entities),
        ",".join(node.roles) or "-",
        node.version or "-",
        node.host,
        str(node.pid),
        "-" if node.since is None else _age(node.since, now),
        node.incarnation,
    ]


def _type(each: TypeStatus) -> list[str]:
    return [
        each.name,
        f"{each.placed}/{each.shards}",
        str(each.handing_off),
        str(each.stopped),
        str(each.entities),
        each.role or "-",
        _configuration(each),
        ", ".join(f"{name} {count}" for name, count in each.homes.items()) or "-",
    ]


def _configuration(each: TypeStatus) -> str:
    if each.workers is None:
        resize = ""
        if each.shards_wanted:
            done = f"{each.groups_resized} of {each.groups} groups are done"
            resize = f", being resized to {each.shards_wanted} shards: {done}"
        return f"{each.kind}, {each.extractor} {each.hash_version}{resize}"
    rescale = f", being rescaled to {each.workers_wanted}" if each.workers_wanted != each.workers else ""
    return f"{counted(each.workers, 'worker')}{rescale}"


def _table(head: list[str], rows: list[list[str]], heading: Callable[[str], str]) -> list[str]:
    first, *others = columns([head, *rows])
    return [heading(first), *others]


def _age(since: datetime, now: datetime) -> str:
    return age_text((now - since).total_seconds())
