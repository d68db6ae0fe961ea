"""`sharding_status`: what counts as a problem, how it is shown, and what scripts get."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from django.core.management.color import color_style, no_style

from sharding_app import __version__
from sharding_app.management import status_text
from sharding_app.operations.console import age_text
from sharding_app.operations.diagnosis.finding import Finding
from sharding_app.operations.snapshot import ClusterSnapshot, NodeAnswers, TypeRow, Unsettled
from sharding_app.operations.status import Report, report, still_missing
from sharding_app.protocol.messages import (
    AnyMessage,
    FailedStart,
    GetShardRegionState,
    RegionState,
    ShardRegionState,
)
from sharding_app.protocol.records import CoordinatorRow, Member, ShardRow, TypeConfig
from sharding_app.runtime.asking.queries import Queries
from tests.acceptance.commands.terminal import on_terminal
from tests.support.live import Live, look_again, until
from tests.support.shard_groups import groups_of
from tests.unit.operations.looks import holding, term_of

NOW = datetime(2026, 5, 4, 12, 0, 0, tzinfo=UTC)
CART = TypeConfig("shop.Cart", "event_sourced", 10, "hash:crc32-1", "crc32-1", "", "postgres")


def member(name: str, age: int, **changes: object) -> Member:
    return Member(
        **{
            "incarnation": f"n-{name}", "name": name, "host": "h", "pid": age, "age": age, "state": "up",
            "types": ("shop.Cart",), "locks": 2, **changes,
        }  # type: ignore[arg-type]
    )  # fmt: skip


def answer(*shards: tuple[int, int], refused: dict[str, str] | None = None) -> ShardRegionState:
    numbers, entities = [each[0] for each in shards], [each[1] for each in shards]
    return ShardRegionState(
        1, [RegionState("shop.Cart", numbers, [1] * len(numbers), entities)], refused or {}
    )


ROWS = [
    ShardRow("shop.Cart", 0, 1, "n-a", "home"),
    ShardRow("shop.Cart", 1, 1, "n-b", "home"),
    ShardRow("shop.Cart", 2, 1, "n-b", "home"),
    ShardRow("shop.Cart", 3, 2, "n-a", "handoff"),
]
LOST = ShardRow("shop.Cart", 5, 1, "n-x", "home")
STOPPED = [ShardRow("shop.Cart", number, 1, None, "stopped") for number in (5, 6)]
HEALTHY = ClusterSnapshot(
    now=NOW,
    cluster_id="c1",
    members=[member("a", 1, app_version="2.1"), member("b", 2, roles=("backend",), app_version="2.1")],
    coordinator=CoordinatorRow(4, "n-a"),
    types=[TypeRow(1, CART, NOW)],
    shards=groups_of(ROWS),
    joined={"n-a": NOW - timedelta(hours=3), "n-b": NOW - timedelta(seconds=5)},
    elected=NOW - timedelta(minutes=10),
    events=1234,
    unsettled=[Unsettled(ROWS[3], 1.0)],
)
ANSWERS = NodeAnswers(regions={"n-a": answer((0, 3)), "n-b": answer((1, 0), (2, 7))})


def judge(cluster: ClusterSnapshot = HEALTHY, **answers: Any) -> Report:
    return report(cluster, replace(ANSWERS, **answers))


def told(found: list[Finding]) -> list[str]:
    return [each.what for each in found]


def test_a_healthy_cluster_has_no_problem_and_says_who_holds_what() -> None:
    report = judge()
    assert report.healthy
    assert (report.coordinator, report.term, report.entities, report.events) == ("a", 4, 10, 1234)
    assert [(node.name, node.shards, node.entities) for node in report.nodes] == [("a", 2, 3), ("b", 2, 7)]
    (cart,) = report.types
    assert (cart.placed, cart.handing_off, cart.stopped, cart.homeless) == (3, 1, 0, 0)
    assert cart.homes == {"a": 1, "b": 2}


def test_a_node_of_an_application_without_a_version_shows_none() -> None:
    cluster = replace(HEALTHY, members=[member("a", 1), member("b", 2, app_version="2.1")])
    first, second = (
        line.split() for line in status_text.page(judge(cluster), no_style()).splitlines() if " up " in line
    )
    assert (first[7], second[7]) == ("-", "2.1")
    assert judge(cluster).as_json()["release"] == __version__
    (note,) = (each for each in judge(cluster).notes if each.id == "sharding.D168")
    assert "(2.1: b; none: a)" in note.what


LEFT = [ShardRow("shop.Former", 0, 3, None, "stopped"), ShardRow("shop.Former", 1, 3, "n-x", "home")]
FORMER = replace(
    HEALTHY,
    types=[*HEALTHY.types, TypeRow(2, msgspec.structs.replace(CART, name="shop.Former"), NOW)],
    shards=groups_of([*ROWS, *LEFT]),
    unsettled=[*HEALTHY.unsettled, *(Unsettled(row, 5.0) for row in LEFT)],
)


def test_a_type_that_no_live_node_declares_is_a_note() -> None:
    report = judge(FORMER)
    assert report.healthy
    text = "No node hosts shop.Former: commands to it fail. 2 shards of it had a home before."
    assert told(report.notes) == [text]
    assert (
        f"Notes\nnote sharding.D171, type shop.Former\n  {text}\n  To do: Start a node"
        in status_text.page(report, no_style())
    )
    (note,) = report.as_json()["notes"]
    assert (note["id"], note["severity"], note["what"]) == ("sharding.D171", "note", text)
    assert "sharding_remove_data shop.Former" in note["fix"]
    assert still_missing(report, None) == "1 shard on the move"


def test_peers_that_are_reached_over_the_channel_layer_are_a_note() -> None:
    roundabout = ShardRegionState(1, [], by_layer=1)
    report = judge(HEALTHY, regions={"n-a": roundabout, "n-b": answer()})
    assert report.healthy
    assert told(report.notes) == [
        "Node a reaches 1 peer over the channel layer: no direct connection can be made."
    ]


def test_a_failover_of_the_database_and_a_full_node_are_notes() -> None:
    moved_on = CoordinatorRow(term_of(datetime(2026, 5, 3, 9, 30, tzinfo=UTC)), "n-a")
    settled = replace(HEALTHY, coordinator=moved_on)
    report = judge(settled, regions={"n-a": holding(95), "n-b": answer()})
    assert report.healthy
    first, second = told(report.notes)
    assert first.startswith("PostgreSQL has continued from another copy since 2026-05-03 09:30 UTC")
    assert second == "Node a holds 95 entities of shop.Cart, of at most 100."
    assert judge(replace(settled, now=NOW + timedelta(days=7)), regions={}).notes == []


def test_it_is_a_problem_while_callers_ask_for_it() -> None:
    asked = ShardRegionState(1, [], {}, ["shop.Former"])
    report = judge(FORMER, regions={"n-a": asked, "n-b": answer()})
    assert told(report.problems) == ["Commands for shop.Former fail: no node hosts it."]


def test_what_a_release_waits_for() -> None:
    settled = replace(HEALTHY, shards=groups_of(ROWS[:3]))
    assert still_missing(judge(settled), None) == still_missing(judge(settled), "a") == ""
    assert still_missing(judge(), "a") == "1 shard on the move"
    assert still_missing(judge(settled), "c") == "node c is not up"
    late = judge(settled, silent=frozenset({"n-b"}))
    assert still_missing(late, "a") == ""
    assert still_missing(late, "b") == "node b does not answer"
    assert still_missing(late, None) == "Node b did not answer within a second."
    joining = replace(settled, members=[member("a", 1), member("b", 2, state="joining")])
    assert still_missing(judge(joining), "b") == "node b is not up"
    refusing = {"n-a": answer(), "n-b": answer(refused={"shop.Cart": "why"})}
    assert still_missing(judge(settled, regions=refusing), "b") == "why"


def test_status_waits_until_all_is_well(live_cluster: Live) -> None:
    done = live_cluster.manage("sharding_status", "--wait", "--timeout", "60")
    assert done.returncode == 0, done.stdout
    late = live_cluster.manage("sharding_status", "--wait", "--node", "nowhere", "--timeout", "0.5")
    assert late.returncode == 1
    assert "Not ready within 0.5 s: node nowhere is not up" in late.stderr
    wrong = live_cluster.manage("sharding_status", "--node", "a")
    assert wrong.returncode == 1
    assert "--node requires --wait" in wrong.stderr


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"members": []}, "No node is running: every command fails."),
        (
            {"coordinator": CoordinatorRow(0, None)},
            "There is no coordinator (none has been elected yet). Shards with a home work; others wait.",
        ),
        (
            {"coordinator": CoordinatorRow(5, "n-x")},
            "There is no coordinator (the last one is gone). Shards with a home work; others wait.",
        ),
        (
            {"members": [member("a", 1, locks=1), member("b", 2)]},
            "Node a is suspect: it holds only one of its two locks in PostgreSQL.",
        ),
        (
            {"members": [member("a", 1), member("b", 2, locks=0)]},
            "Node b is suspect: it holds neither of its locks in PostgreSQL.",
        ),
        (
            {"members": [member("a", 1), member("b", 2, deaf=True)]},
            "Node b is deaf: no messages of other processes reach it.",
        ),
        (
            {
                "regions": {
                    "n-a": answer(),
                    "n-b": answer(refused={"shop.Cart": "'shop.Cart' is refused: why"}),
                }
            },
            "Node b may not host shop.Cart: 'shop.Cart' is refused: why.",
        ),
        ({"silent": frozenset({"n-b"})}, "Node b did not answer within a second."),
        (
            {
                "shards": groups_of([*ROWS, LOST]),
                "unsettled": [Unsettled(LOST, 0.1)],
            },
            "1 shard (5) of shop.Cart at home on a node that is gone.",
        ),
        (
            {
                "shards": groups_of(STOPPED),
                "unsettled": [Unsettled(row, 0.1) for row in STOPPED],
            },
            "2 shards (5-6) of shop.Cart without a home.",
        ),
        (
            {
                "regions": {
                    "n-a": answer(),
                    "n-b": ShardRegionState(
                        1,
                        [
                            RegionState(
                                "shop.Cart",
                                [1],
                                [1],
                                [0],
                                1,
                                [FailedStart("alice", 1, "LookupError", 3, 9.0, 2.0)],
                            )
                        ],
                    ),
                }
            },
            "1 entity of shop.Cart cannot start: 'alice': LookupError, 3 times in 9 s.",
        ),
    ],
)
def test_each_problem_is_named(changes: dict[str, object], problem: str) -> None:
    rows = {key: value for key, value in changes.items() if key not in ("regions", "silent")}
    answers = {key: value for key, value in changes.items() if key not in rows}
    report = judge(replace(HEALTHY, **rows), **answers)  # type: ignore[arg-type]
    assert told(report.problems) == [problem]
    assert not report.healthy


def test_a_node_that_is_joining_needs_no_locks_yet() -> None:
    assert judge(
        replace(HEALTHY, members=[*HEALTHY.members, member("c", 3, state="joining", locks=0)])
    ).healthy


def test_nodes_of_one_name_are_told_apart() -> None:
    same = [member("a", 1), member("a", 2, incarnation="n-0123456789")]
    assert [node.name for node in judge(replace(HEALTHY, members=same, shards=[])).nodes] == [
        "a(n-a)",
        "a(n-012345)",
    ]


def test_the_page_shows_all_of_it() -> None:
    page = status_text.page(judge(silent=frozenset({"n-b"})), no_style())
    assert page.splitlines() == [
        "The cluster has 1 problem, see below.",
        f"a coordinates for 10 min, term 4. About 1234 events in the journal. Cluster c1, sharding_app {__version__}.",
        "",
        "  NODE  STATE  AGE  LOCKS  SHARDS  ENTITIES  ROLES    VERSION  HOST  PID  SINCE  INCARNATION",
        "  a     up     1    2/2    2       3         -        2.1      h     1    3 h    n-a",
        "  b     up     2    2/2    2       7         backend  2.1      h     2    5 s    n-b",
        "",
        "  TYPE       PLACED  HANDING OFF  STOPPED  ENTITIES  ROLE  CONFIGURATION                        HOMES",
        "  shop.Cart  3/10    1            0        10        -     event_sourced, hash:crc32-1 crc32-1  a 1, b 2",
        "",
        "Problems",
        "error sharding.D167, node b (h, process 2)",
        "  Node b did not answer within a second.",
        "  To do: It is busy, frozen, or does not hear this process. Check that it has the same SHARDING['KEYS'], LINKS",
        "    and CHANNEL_LAYERS as here. Its log names handlers that block the event loop.",
    ]


def test_colours_change_nothing_but_colours() -> None:
    report = judge()
    coloured = status_text.page(report, color_style(force_color=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == status_text.page(report, no_style())


def test_a_line_says_it_in_one() -> None:
    assert status_text.line(judge()) == (
        "2026-05-04T12:00:00Z healthy nodes=2/2 coordinator=a term=4 shards=3 moving=1 entities=10"
    )
    assert status_text.line(judge(silent=frozenset({"n-b"}))).endswith(
        "entities=10 | sharding.D167 Node b did not answer within a second."
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (-1, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert age_text(seconds) == text


# -- Asking nodes ----------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_who_is_late_is_named_and_its_late_word_ignored() -> None:
    asked: list[tuple[str, GetShardRegionState]] = []

    def put(node: str, message: AnyMessage) -> bool:
        assert isinstance(message, GetShardRegionState)
        asked.append((node, message))
        if node == "n-a":
            queries.told("n-b", ShardRegionState(message.request, []))  # not the one who was asked
            queries.told("n-a", ShardRegionState(message.request, [RegionState("T", [1], [1], [2])]))
        return node != "n-full"

    queries = Queries(put)
    states = await queries.region_states(["n-a", "n-late", "n-full"], ["T"], timeout=0.05)
    assert list(states.answers) == ["n-a"]
    assert states.answers["n-a"].regions[0].entities == [2]
    assert states.failed == {"n-late", "n-full"}
    assert [message.types for _, message in asked] == [["T"]] * 3
    queries.told("n-late", ShardRegionState(asked[1][1].request, []))
    assert (await queries.region_states([])).failed == frozenset()


# -- The command -----------------------------------------------------------------------------------

BUY = "from project.shop.entities import Cart\nfor n in range(20): Cart.ref(f'status-{n}').sync.add('book')"


def test_the_command_on_a_real_cluster(live_cluster: Live) -> None:
    assert live_cluster.manage("shell", "-v0", "-c", BUY).returncode == 0

    answer = look_again(live_cluster.manage, "sharding_status")
    assert answer.returncode == 0, answer.stdout
    assert answer.stdout.startswith("The cluster is healthy.\none coordinates for ")
    assert answer.stderr == ""
    assert "\x1b" not in answer.stdout

    found = json.loads(look_again(live_cluster.manage, "sharding_status", "--json").stdout)
    (node,) = found["nodes"]
    assert (node["name"], node["state"], node["locks"], node["deaf"], node["refused"]) == (
        "one",
        "up",
        2,
        False,
        {},
    )
    assert node["entities"] >= 20
    assert found["healthy"]
    assert found["coordinator_incarnation"] == node["incarnation"]
    cart = next(each for each in found["types"] if each["name"] == "shop.Cart")
    assert cart["homes"] == {"one": cart["placed"]}
    assert cart["entities"] >= 20


def test_without_a_node_it_says_what_to_start(live_tables: Live) -> None:
    answer = live_tables.manage("sharding_status")
    assert answer.returncode == 1
    assert "No node is running: every command fails." in answer.stdout
    assert "To do: Start `manage.py sharding_node`" in answer.stdout


def test_a_frozen_node_is_listed_as_silent(live_tables: Live) -> None:
    with live_tables.program("sharding_node", "--name", "cold") as node:
        node.wait_line("^node cold is up$")
        os.kill(node.pid, signal.SIGSTOP)
        try:
            answer = live_tables.manage("sharding_status", "--json")
        finally:
            os.kill(node.pid, signal.SIGCONT)
        found = json.loads(answer.stdout)
        assert answer.returncode == 1
        assert found["failed"] == ["cold"]
        assert "Node cold did not answer within a second." in [each["what"] for each in found["problems"]]


def test_a_node_of_another_configuration_is_shown_with_the_difference(live_cluster: Live) -> None:
    with live_cluster.program(
        "sharding_node", "--name", "odd", TEST_SHARDING='{"NUMBER_OF_SHARDS": 7}'
    ) as node:
        node.wait_line("^node odd is up$")
        said = "Node odd may not host shop.Cart: 'shop.Cart' is refused: number_of_shards is 7 here and 1000 in the cluster."

        def shown() -> bool:
            answer = live_cluster.manage("sharding_status")
            assert answer.returncode == 1
            return said in answer.stdout

        # On a busy machine the node may be too late for one look, and then its answer is missing.
        until(shown, 30, "the difference is shown")
        assert node.stop() == 0
    again = look_again(live_cluster.manage, "sharding_status")
    assert again.returncode == 0, again.stdout


def test_watching_through_a_pipe_gives_a_line_each_time(live_cluster: Live) -> None:
    with live_cluster.program("sharding_status", "--watch", "0.2") as watch:
        healthy = r"\S+Z healthy nodes=1/1 coordinator=one "
        until(lambda: sum(bool(re.match(healthy, each)) for each in watch.lines) >= 3, 30, "three lines")
        assert watch.stop(signal.SIGINT) == 0
        assert all(re.match(r"\S+Z (un)?healthy ", each) for each in watch.lines)
    with live_cluster.program("sharding_status", "--watch", "0.2", "--json") as watch:
        until(
            lambda: sum(json.loads(each)["healthy"] for each in watch.lines) >= 2, 30, "it is healthy twice"
        )


def test_watching_on_a_terminal_draws_the_page_anew(live_cluster: Live) -> None:
    with on_terminal(live_cluster, "sharding_status", "--watch", "0.2") as terminal:
        # Until the verdict is green: on a busy machine the node may be late for the first looks.
        terminal.read_until(
            lambda seen: seen.count(b"\x1b[H\x1b[2J") >= 3 and re.search(rb"\x1b\[(1;)?32(;1)?m", seen)
        )
        terminal.interrupt()
        assert terminal.exit_code() == 0
    assert b"every 0.2 s; Ctrl-C ends." in terminal.seen


def test_help_shows_examples_and_exit_codes(live_tables: Live) -> None:
    text = live_tables.manage("sharding_status", "--help").stdout
    assert "  manage.py sharding_status --watch 5 " in text
    assert "Exit codes: 0 healthy, 1 problems found, 2 a server cannot be reached." in text


def test_a_watch_without_time_is_refused(live_tables: Live) -> None:
    answer = live_tables.manage("sharding_status", "--watch", "0")
    assert answer.returncode == 1
    assert "--watch must be greater than 0." in answer.stderr
