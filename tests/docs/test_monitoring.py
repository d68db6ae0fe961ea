"""Alert rules and the board for Grafana ask for metrics and labels that docs/metrics.md lists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.docs.test_metrics_page import LINE, PAGE

FOLDER = PAGE.parent / "monitoring"
OF_HISTOGRAMS = ("_bucket", "_count", "_sum")
METRIC = re.compile(r"\bsharding_\w+")
SELECTOR = re.compile(r"(?P<metric>\bsharding_\w+)\{(?P<labels>[^}]*)\}")
GROUPING = re.compile(r"\bby \((?P<labels>[^)]*)\)")
RULE = re.compile(r"^      - alert: (\w+)\n        expr: (.*(?:\n          .*)*)\n        for: \d+[smh]\n"
                  r"        labels: \{severity: (?:page|ticket)\}\n        annotations:\n"
                  r"          summary: .+\n          remedy: .+$", re.MULTILINE)  # fmt: skip


def listed() -> dict[str, set[str]]:
    """The labels of each metric; those of nodes have `node`, and buckets `le`."""
    page = PAGE.read_text()
    of_the_site = page.index("## Of the site")
    found: dict[str, set[str]] = {}
    for line in LINE.finditer(page):
        labels = set(re.findall(r"`(\w+)`", line["labels"]))
        labels |= {"node"} if line.start() < of_the_site else set()
        found[line["name"]] = labels
        if line["kind"] == "histogram":
            found.update({line["name"] + part: labels | {"le"} for part in OF_HISTOGRAMS})
    return found


def unknown(expression: str) -> Iterator[str]:
    """Names of metrics and labels in an expression that are not listed."""
    known = listed()
    names = METRIC.findall(expression)
    yield from (name for name in names if name not in known)
    labels: set[str] = set().union(*(known.get(name, set()) for name in names))
    for group in GROUPING.finditer(expression):
        yield from (each for each in re.split(r",\s*", group["labels"]) if each not in labels)
    for one in SELECTOR.finditer(expression):
        wanted = re.findall(r"(\w+)\s*[=!]", one["labels"])
        yield from (each for each in wanted if each not in known.get(one["metric"], set()))


def expressions(name: str) -> dict[str, str]:
    text = (FOLDER / name).read_text()
    if name == "alerts.yml":
        rules = dict(RULE.findall(text))
        assert len(rules) == text.count("- alert:"), "each rule has all parts"
        return rules
    panels = json.loads(text)["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    places = [(each["gridPos"]["x"], each["gridPos"]["y"]) for each in panels]
    assert len(set(places)) == len(places), "no panel lies on another"
    return {f"{each['title']} {one['refId']}": one["expr"] for each in panels for one in each["targets"]}


@pytest.mark.parametrize(("name", "least"), [("alerts.yml", 15), ("grafana.json", 24)])
def test_each_expression_asks_for_metrics_and_labels_that_there_are(name: str, least: int) -> None:
    found = expressions(name)
    assert len(found) >= least
    assert {title: wrong for title, one in found.items() if (wrong := list(unknown(one)))} == {}


def test_an_unknown_metric_or_label_is_noticed() -> None:
    assert list(unknown("sum by (node) (rate(sharding_commands_total[1m]))")) == []
    assert list(unknown("sharding_comands_total > 0")) == ["sharding_comands_total"]
    assert list(unknown("sum by (reason) (sharding_commands_total)")) == ["reason"]
    assert list(unknown('sharding_messages_waiting{stat="parked"}')) == ["stat"]


def test_alerts_see_the_callers_of_the_site_and_a_site_that_does_not_answer() -> None:
    rules = expressions("alerts.yml")
    for name in ("sharding_dropped_total", "sharding_client_dropped_total"):
        assert name in rules["ShardingCommandsDropped"]
        assert any(name in one for one in expressions("grafana.json").values())
    sites = [job for job in re.findall(r"job_name: ([\w-]+)", PAGE.read_text()) if job.endswith("-site")]
    assert [f'up{{job="{job}"}}' in rules["ShardingDatabaseAway"] for job in sites] == [True]


def test_the_alert_of_a_blocked_loop_needs_no_scrape_at_that_moment() -> None:
    assert (
        "increase(sharding_loop_blocked_total[10m])" in expressions("alerts.yml")["ShardingEventLoopBlocked"]
    )
