"""Each examination by data: silent on a healthy look, and heard, with a way out, when its own thing
is wrong.
"""

from __future__ import annotations

import dataclasses
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
import pytest
from django.core import checks
from django.core.management.color import color_style, no_style

from sharding_app.adapters.django.projections import PartStatus, ProjectionStatus
from sharding_app.errors import UnreadableEvent
from sharding_app.management.commands.sharding_doctor import exit_code
from sharding_app.operations.connectivity import trouble
from sharding_app.operations.database_health import Health, LockWait, TableHealth
from sharding_app.operations.diagnosis import text
from sharding_app.operations.diagnosis.examinations import judge
from sharding_app.operations.diagnosis.gather import _meaning
from sharding_app.operations.diagnosis.look import (
    Clock,
    FurtherLook,
    JournalLook,
    Limits,
    Look,
    Prepared,
    RedisLook,
    ReplicationSlot,
    Session,
    Unreadable,
)
from sharding_app.operations.diagnosis.read_journal import reason
from sharding_app.operations.journals import JournalFacts, Moves
from sharding_app.operations.projections import ProjectionLook
from sharding_app.operations.snapshot import JournalCounts, MessageCounts, NodeAnswers, TypeRow
from sharding_app.ports.store import StoreUnavailable
from sharding_app.ports.transport import TransportError
from sharding_app.protocol.messages import Coordination, NodeStats, ShardRegionState
from sharding_app.protocol.records import CoordinatorRow, NumberOfWorkers, TypeConfig
from sharding_app.runtime.node.process import WireRefused
from tests.support.live import ROOT
from tests.unit.operations.looks import (
    closed,
    cluster,
    database,
    failing,
    holding,
    layer,
    look,
    member,
    nodes,
    term_of,
    unsettled,
)

CORE, PUBSUB = "channels_redis.core.RedisChannelLayer", "channels_redis.pubsub.RedisPubSubChannelLayer"


def table(dead: int) -> TableHealth:
    return TableHealth(
        name="sharding_event",
        table_bytes=1,
        index_bytes=1,
        live_rows=500_000,
        dead_rows=dead,
        vacuumed_seconds=None,
        age=1,
    )


def wait(seconds: float) -> LockWait:
    return LockWait(
        pid=7, application="sharding/n-a/journal", user="node", seconds=seconds, tables="sharding_shard", holder_pid=8,
        holder="psql", holder_user="dba", holder_state="idle in transaction", holder_seconds=60.0,
    )  # fmt: skip


def health(**found: Any) -> Look:
    return look(database=database(health=Health(**found)))


def said(**settings: str) -> Look:
    return look(database=database(settings={**database().settings, **settings}))


def session(**changes: Any) -> Session:
    given: dict[str, Any] = {
        "pid": 7, "application": "report", "user": "bob", "state": "idle in transaction", "transaction_seconds": None,
        "holds_snapshot": False, **changes,
    }  # fmt: skip
    return Session(**given)


def rescaled() -> TypeRow:
    config = TypeConfig("workers:imports", "memory", 4, "worker:1", "1/0", "", "postgres")
    return TypeRow(1, config, datetime(2026, 1, 1, tzinfo=UTC), NumberOfWorkers(config.name, 4, 8))


def resized(*, wanted: int = 0) -> tuple[TypeRow, ...]:
    config = TypeConfig(
        "shop.Cart",
        "event_sourced",
        6,
        "hash:crc32-1",
        "crc32-1",
        "",
        "postgres",
        wanted,
        2 if wanted else 0,
        3,
    )
    return (TypeRow(1, config, datetime(2026, 1, 1, tzinfo=UTC)),)


def projecting(*, declared: bool = True, here: bool = True, **changes: Any) -> Look:
    given = {
        "first_slice": 0, "last_slice": 127, "events": 0, "is_filling": False, "fill_after": "",
        "at": datetime(2026, 1, 1, tzinfo=UTC), "behind_events": 0, "behind_more": False, "behind_seconds": 0.0,
        "waiting": 0, "parked": 0, **changes,
    }  # fmt: skip
    status = ProjectionStatus("shop.Open", 1, True, False, here, [PartStatus(**given)])
    return look(projections=(ProjectionLook(status, declared),))


def journal(**changes: Any) -> JournalLook:
    return JournalLook(**{"type": "shop.Cart", "installed": True, "looked_at": 9, **changes})


def coordinating(**changes: Any) -> NodeStats:
    return NodeStats(1, 1.0, {}, {}, {}, [], [], [], Coordination(1, True, 0, 0, 0, 0, **changes))


def counted(**changes: Any) -> Look:
    return look(cluster=cluster(message_counts=(MessageCounts(type="shop.Cart", **changes),)))


def bad(what: str = "event 'Added' of version 1", kind: Literal["event", "snapshot"] = "event") -> Unreadable:
    return Unreadable(type="shop.Cart", entity="alice", seq=4, kind=kind, what=what, why="no such class")


def second(own: str = "1/1", **changes: Any) -> Look:
    """A look at two journals, the second of which is changed so."""
    more = {
        name: changes.pop(name)
        for name in ("unfenced", "lost_triggers", "room", "refuted", "deserted")
        if name in changes
    }
    given = {"database": changes.pop("database")} if "database" in changes else {}
    first = FurtherLook(facts=JournalFacts(name="", weight=1.0, place=own))
    facts = JournalFacts(**{"name": "b", "weight": 1.0, "place": "7/1", "owner": "c1", **changes})
    return look(further=(first, FurtherLook(facts=facts, **more)), **given)


def moves(**changes: Any) -> Moves:
    return Moves("T", "b", "", are_over=False, shards=2, seconds=1200.0, at_work=False)._replace(**changes)


CASES: list[tuple[str, str, Look, str]] = [
    ("D101", "error", Look(database_trouble="PostgreSQL at h:1 cannot be used"), "cannot be used"),
    ("D102", "error", look(nodes_trouble="The channel layer carries no messages"), "carries no messages"),
    ("D103", "error", look(seals_broken=3), "3 messages"),
    (
        "D104",
        "error",
        look(
            cluster=cluster(journals=[JournalCounts(name="b", shards=4, trouble="it is away")]),
            limits=Limits(journals=("b",)),
        ),
        "4 shards lie in it: it is away",
    ),
    ("D105", "error", look(cluster=cluster(journals=[JournalCounts(name="b", shards=1)])), "1 shard lies in"),
    ("D108", "error", look(cluster=cluster(has_unread_journals=True)), "No shard gets its first home"),
    ("D111", "error", look(database=database(missing_migrations=("0002_x",))), "0002_x"),
    ("D112", "note", look(database=database(unknown_migrations=("0009_y",))), "0009_y"),
    ("D113", "error", look(database=database(other_place="other of ...")), "another database"),
    ("D114", "error", second(missing_migrations=("0001_initial",)), "0001_initial"),
    ("D115", "error", second(owner="c2"), "a journal of the cluster c2"),
    ("D115", "error", second(own_cluster=True), "a cluster of its own"),
    ("D115", "error", second(other="c"), "leads to the database of the journal 'c'"),
    ("D116", "error", second(known_place="7/2"), "knows that journal at 7/2"),
    ("D117", "error", second(unfenced=("sharding_event",)), "sharding_event"),
    ("D117", "error", second(lost_triggers=("sharding_x on sharding_type",)), "sharding_x on sharding_type"),
    ("D106", "note", second(moves=(moves(are_over=True),)), "2 shards of T have left a copy"),
    ("D107", "warning", second(moves=(moves(),)), "for 20 min, and no command is at work"),
    ("D119", "error", second(refuted=(("T", 3, "c"),)), "1 shard lies in the journal 'b', but that says"),
    ("D120", "error", second(deserted=(("T", 3, ""),)), "Homes had 1 shard in the journal 'b', and"),
    ("D118", "warning", second(room=10), "no room"),
    ("D128", "warning", second(own="7/9", database=database(settings={"max_connections": "26"})), "no room"),
    ("D121", "error", said(session_replication_role="replica"), "fence does not fire"),
    ("D122", "error", said(default_transaction_read_only="on"), "nothing can be written"),
    ("D123", "error", said(autovacuum="off"), "autovacuum is off"),
    ("D124", "error", look(database=database(unvacuumed=("sharding_shard",))), "sharding_shard"),
    ("D125", "note", said(synchronous_commit="off"), "'off'"),
    ("D127", "error", look(database=database(sessions=(session(),) * 90)), "90 of 97"),
    ("D128", "warning", said(max_connections="17"), "no room"),
    ("D128", "warning", look(limits=Limits(journal_connections=60)), "no room"),
    ("D129", "note", look(database=database(superuser=True)), "superuser"),
    ("D130", "note", look(database=database(public_may_connect=True)), "may connect"),
    (
        "D131",
        "warning",
        look(database=database(sessions=(session(transaction_seconds=7200.0, holds_snapshot=True),))),
        "open for 2 h",
    ),
    ("D132", "warning", look(database=database(prepared=(Prepared(name="x1", seconds=9e4),))), "'x1'"),
    (
        "D133",
        "warning",
        look(database=database(slots=(ReplicationSlot(name="old", active=False, holds_snapshot=True),))),
        "'old'",
    ),
    (
        "D134",
        "warning",
        look(database=database(sessions=(session(transaction_seconds=9.0, holds_up="sharding_shard"),))),
        "locks in sharding_shard for up to 9 s",
    ),
    ("D141", "warning", look(layer=layer(backend=PUBSUB, config={"hosts": [{"socket_timeout": 5}]})), "5 s"),
    ("D142", "warning", look(layer=layer(backend=CORE, config={"expiry": 3})), "expiry is 3 s"),
    ("D146", "note", look(layer=layer(backend=CORE)), "three times as long"),
    (
        "D143",
        "warning",
        look(layer=layer(backend=CORE, redis=(RedisLook(host="r:1", policy="allkeys-lru"),))),
        "allkeys-lru",
    ),
    ("D144", "error", look(layer=layer(redis=(RedisLook(host="r:1", max_memory=100, used_memory=95),))), "95 % full"),
    ("D145", "error", look(layer=layer(strangers=("n-x",))), "n-x"),
    (
        "D151",
        "warning",
        look(clocks=(Clock(who="PostgreSQL", ahead_seconds=-5.0, uncertain_seconds=0.1),)),
        "5.0 s behind that of this machine",
    ),
    (
        "D152",
        "error",
        look(clocks=(Clock(who="node a", ahead_seconds=0, uncertain_seconds=0.1, rate=0.9, rate_uncertain=0.01),)),
        "0.90 times",
    ),
    ("D147", "warning", look(nodes=nodes(regions={"n-a": ShardRegionState(1, [], by_layer=2)})), "Node a reaches 2 peers over the channel layer"),
    ("D149", "warning", look(layer=layer(trouble="Connection refused")), "for this process (Connection refused). Direct links go on"),
    (
        "D148", "warning",
        look(cluster=cluster(members=(member("a", addresses=("unix:/s",)), member("b", host="other")))),
        "Node a takes connections from its own machine only",
    ),
    ("D161", "error", look(cluster=cluster(members=())), "No node"),
    ("D162", "error", look(cluster=cluster(coordinator=CoordinatorRow(4, "n-x"))), "no coordinator (the last one is gone)"),
    (
        "D162", "error",
        look(cluster=cluster(members=(member("a", locks=0), member("b", locks=0)))),
        "no coordinator (the last one is gone)",
    ),
    ("D163", "note", look(cluster=cluster(members=(member("a"), member("a", incarnation="n-c")))), "2 nodes"),
    ("D164", "note", look(cluster=cluster(members=(member("a", asked="prepare"),))), "shutdown"),
    ("D165", "error", look(cluster=cluster(members=(member("a", locks=1),))), "only one of its two"),
    ("D166", "error", look(cluster=cluster(members=(member("a", deaf=True),))), "deaf"),
    (
        "D135",
        "note",
        look(cluster=cluster(coordinator=CoordinatorRow(term_of(datetime(2026, 5, 3, 9, 30, tzinfo=UTC)), "n-a"))),
        "another copy since 2026-05-03 09:30 UTC",
    ),
    (
        "D177",
        "note",
        look(nodes=nodes(regions={"n-b": holding(90)})),
        "Node b holds 90 entities of shop.Cart, of at most 100",
    ),
    ("D167", "error", look(nodes=nodes(silent=frozenset({"n-b"}))), "Node b did not answer"),
    (
        "D168",
        "warning",
        look(cluster=cluster(members=(member("a", app_version="1"), member("b", app_version="2")))),
        "1: a; 2: b",
    ),
    (
        "D169",
        "error",
        look(nodes=nodes(regions={"n-b": ShardRegionState(1, [], {"shop.Cart": "7 here and 10 there"})})),
        "Node b may not host shop.Cart: 7 here and 10 there",
    ),
    ("D170", "error", look(refused_here={"shop.Cart": "7 here, 10 there"}), "This project"),
    ("D171", "note", look(cluster=cluster(members=(member("a", types=()),))), "No node hosts shop.Cart"),
    ("D178", "error", look(nodes=nodes(regions={"n-a": ShardRegionState(1, [], {}, ["shop.Former"])})), "Commands for shop.Former fail"),
    ("D179", "error", look(nodes=nodes(silent=frozenset({"n-a", "n-b"}))), "No node answers"),
    ("D172", "note", look(cluster=cluster(members=(member("a"), member("b", types=())))), "1 node up"),
    (
        "D173",
        "error",
        look(cluster=cluster(members=(member("a"), member("b", state="joining", wire=(8, 9, 9))))),
        "Node b is refused: it writes wire version 9",
    ),
    ("D175", "error", look(nodes=failing(4.0)), "3 entities of shop.Cart cannot start: 'alice'"),
    ("D176", "warning", look(nodes=failing(-1.0)), "LookupError, 7 times in 12 s"),
    ("D174", "error", look(refused="This process is refused: it writes wire version 9."), "writes wire version 9"),
    ("D136", "error", health(age=1_200_000_000), "1,200,000,000 transactions old"),
    ("D136", "warning", health(age=500_000_000), "VACUUM does not keep up"),
    ("D137", "warning", health(tables=[table(dead=300_000)]), "300,000 dead rows beside 500,000; its last vacuum was"),
    ("D138", "warning", health(waits=[wait(7.0)]), "waited 7 s for a lock in sharding_shard, behind psql of role 'dba'"),
    ("D139", "warning", look(database=database(health=Health(), copying_journal=True)), "has stopped in the middle"),
    ("D139", "warning", look(database=database(health=Health(), former_journal=True)), "sharding_event_before"),
    ("D139", "note", look(database=database(health=Health(), unpartitioned=True)), "PARTITION_JOURNAL is True"),
    ("D181", "error", look(cluster=unsettled(home="n-x", step="home")), "node that is gone"),
    ("D182", "error", look(cluster=unsettled(home=None, step="stopped")), "without a home"),
    ("D188", "note", look(cluster=closed(5.0)), "of shop.Cart closed for a move to two, for 5 s."),
    ("D188", "warning", look(cluster=closed(90.0)), "closed for a move to two, for 90 s."),
    ("D183", "error", look(cluster=unsettled()), "for 300 s and not stopped at a"),
    ("D185", "warning", look(cluster=cluster(types=(rescaled(),))), "being rescaled from 4 to 8 workers: all have stopped"),
    ("D186", "warning", look(cluster=cluster(types=resized(wanted=12))), "from 6 to 12 shards: 2 of 6 groups are done"),
    ("D187", "note", look(cluster=cluster(types=resized()), declared_shards={"shop.Cart": 3}), "its code says 3"),
    ("D184", "warning", look(nodes=nodes(stats={"n-a": coordinating(failing={"shop.Cart": "allocate raised"})})), "allocate raised"),
    ("D189", "warning", look(journals=(JournalLook(type="shop.Cart", installed=True, is_unread=True),)), "shop.Cart was not sampled"),
    ("D191", "note", look(journals=(journal(installed=False),)), "not installed"),
    ("D192", "error", look(journals=(journal(unreadable=(bad(),)),)), "'alice' #4"),
    ("D193", "error", look(journals=(journal(gaps=(("alice", 3),)),)), "no event 3"),
    ("D194", "warning", look(journals=(journal(unreadable=(bad("snapshot", "snapshot"),)),)), "A snapshot of"),
    ("D195", "note", look(journals=(journal(remembered=2),)), "remembered"),
    ("D196", "error", look(journals=(journal(remembers=True, unreadable_ids=(("x", "KeyError"),)),)), "KeyError"),
    ("D197", "note", look(journals=(journal(remembers=True, moved_ids=2),)), "2 remembered ids"),
    ("D190", "error", look(database=database(unfinished_imports=("shop.Cart",))), "An import of shop.Cart has begun"),
    ("D198", "warning", look(journals=(journal(long=(("alice", 123_456),)),)), "'alice' has 123,456 events"),
    ("D199", "warning", look(journals=(journal(kept=("alice",)),)), "such as those of 'alice'"),
    ("D201", "error", counted(overdue=3, oldest_seconds=400.0), "3 messages and timers of shop.Cart should have gone out, the oldest 7 min ago."),
    ("D201", "warning", counted(overdue=1, oldest_seconds=90.0), "1 message or timer of shop.Cart should"),
    ("D201", "warning", counted(overdue=1000, oldest_seconds=9e9, failing=1), "1,000 or more messages and timers of shop.Cart"),
    ("D211", "warning", projecting(parked=1), "1 entity is parked in shop.Open 1"),
    ("D212", "warning", projecting(behind_events=7, behind_seconds=90.0), "shop.Open 1 is behind by 7 events"),
    ("D212", "error", projecting(behind_events=7, behind_seconds=900.0), "the oldest 15 min old"),
    ("D213", "error", projecting(here=False), "are of another server"),
    ("D214", "warning", projecting(declared=False), "its class is not installed here"),
    ("D215", "warning", projecting(journal="journal_b", trouble="no route"), "'journal_b' cannot be reached from here"),
    ("D221", "error", look(database=database(locked_keys=2)), "2 keys of personal data"),
    ("D222", "warning", look(database=database(unfinished_erasures=1)), "1 erasure of persons did not end"),
    ("D203", "warning", look(cluster=dataclasses.replace(cluster(), uncounted=["two"])), "The messages and timers of the journal 'two' are not counted"),
    ("D202", "warning", counted(parked=1), "1 message or timer of shop.Cart is parked"),
]  # fmt: skip


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert judge(look()) == []


@pytest.mark.parametrize(("number", "severity", "given", "told"), CASES, ids=[each[0] for each in CASES])
def test_each_thing_is_found(number: str, severity: str, given: Look, told: str) -> None:
    found = [each for each in judge(given) if each.id == f"sharding.{number}"]
    assert [each.severity for each in found] == [severity]
    assert told in found[0].what
    assert found[0].where
    assert len(found[0].fix) > 10
    assert judge(given, [f"sharding.{number}"]) == [each for each in judge(given) if each not in found]


def test_every_finding_has_a_case_here_and_a_section_on_the_page() -> None:
    made = {
        number
        for path in (ROOT / "sharding_app" / "operations" / "diagnosis").glob("*.py")
        for number in re.findall(r'"(D\d\d\d)"', path.read_text())
    }
    assert made == {each[0] for each in CASES}
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    described = re.findall(r"^\| `sharding\.(D\d\d\d)` \|", page, re.MULTILINE)
    assert len(described) == len(set(described))
    assert set(described) == made


@pytest.mark.parametrize(
    "given",
    [
        look(cluster=unsettled(seconds=20.0)),
        look(cluster=unsettled(home=None, step="stopped", seconds=1.0)),
        look(cluster=unsettled(type="gone.Type", home="n-x", step="home", types=())),
        look(cluster=cluster(members=(member("a"), member("b", state="joining", locks=0)))),
        look(database=database(sessions=(session(transaction_seconds=5.0, holds_snapshot=True),))),
        look(database=database(slots=(ReplicationSlot(name="s", active=True, holds_snapshot=True),))),
        look(clocks=(Clock(who="node a", ahead_seconds=1.5, uncertain_seconds=1.0, rate=1.2, rate_uncertain=0.3),)),
        look(layer=layer(backend=PUBSUB, redis=(RedisLook(host="r", policy="allkeys-lru"),))),
        look(layer=layer(backend=PUBSUB, config={"hosts": ["redis://h"], "expiry": 60})),
    ],
)  # fmt: skip
def test_what_passes_by_itself_is_left_alone(given: Look) -> None:
    assert judge(given) == []


def test_moves_and_copies_of_a_journal_that_is_lost_have_a_way_out() -> None:
    out = second(trouble="it is away", moves=(moves(source="b", target="c"), moves(are_over=True)))
    ways = {each.id: each.fix for each in judge(out)}
    assert ways["sharding.D107"].endswith("if 'c' is lost for good, with --cancel --gone c.")
    assert ways["sharding.D106"].endswith("If 'b' is lost for good, add --gone b")


@pytest.mark.parametrize("whose", [{"own_cluster": True}, {"owner": "c2"}, {"other": "c"}])
def test_what_another_database_says_of_shards_is_no_loss_of_this_cluster(whose: dict[str, Any]) -> None:
    """The remedy would lead this cluster's shards away."""
    found = judge(second(deserted=(("T", 3, ""),), refuted=(("T", 3, "c"),), **whose))
    assert [each.id for each in found] == ["sharding.D115"]


def test_a_node_is_compared_with_the_server_and_not_with_us() -> None:
    ours_is_wrong = (
        Clock(who="PostgreSQL", ahead_seconds=100.0, uncertain_seconds=0.1),
        Clock(who="node a", ahead_seconds=100.2, uncertain_seconds=0.1),
    )
    assert [each.where for each in judge(look(clocks=ours_is_wrong))] == ["PostgreSQL"]


def test_system_checks_keep_their_ids_and_a_guess_gives_way_to_what_was_asked() -> None:
    guess = checks.Warning("at port 6432", hint="If a pooler listens there.", id="sharding.W001")
    known = checks.Error("a transaction pooler", hint="Name an alias.", id="sharding.E011")
    assert [(each.id, each.severity, each.fix) for each in judge(look(checks=(guess, known)))] == [
        ("sharding.E011", "error", "Name an alias.")
    ]
    assert [each.id for each in judge(Look(checks=(guess,)))] == ["sharding.W001"]


def test_the_worst_comes_first_and_notes_are_no_problems() -> None:
    found = judge(
        look(limits=Limits(), cluster=cluster(members=(member("a", asked="prepare"), member("b", deaf=True))))
    )
    assert [each.severity for each in found] == ["error", "note"]
    page = text.page(found, no_style())
    assert page.splitlines()[0] == "error sharding.D166, node b (h, process 1)"
    assert page.splitlines()[-1] == "1 problem found (1 note)."
    coloured = text.page(found, color_style(force_color=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == page != coloured
    assert text.line(found).startswith("unhealthy findings=1 | sharding.D166 Node b is deaf")
    assert text.line(judge(look())) == "healthy"
    assert text.page([], no_style()) == "No problems found."


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (UnreadableEvent("Cart: the journal has an unknown event 'Gone'"), "Cart: the journal has an unknown event 'Gone'"),
        (msgspec.ValidationError("Expected `int`, got `str` - at `$.quantity`"), "Expected `int`, got `str` - at `$.quantity`"),
        (msgspec.ValidationError("Object missing required field `sku`"), "Object missing required field `sku`"),
        (msgspec.ValidationError("Invalid enum value 'secret'"), "ValidationError (its text"),
        (KeyError("secret"), "KeyError (its text"),
    ],
)  # fmt: skip
def test_reasons_hold_no_content(error: Exception, told: str) -> None:
    said = reason(error)
    assert said.startswith(told)
    assert "secret" not in said
    wrapped = UnreadableEvent(f"an event cannot be read: {error}")
    wrapped.__cause__ = error
    assert "secret" not in reason(wrapped)


def test_why_this_process_could_not_join_is_told_apart() -> None:
    for cause, number, code in (
        (WireRefused("this process is refused: it reads 1"), "D174", 1),
        (TransportError("no process hears"), "D102", 2),
        (StoreUnavailable("gone"), "D101", 2),
    ):
        error = trouble(cause)
        error.__cause__ = cause
        trouble_of: dict[str, Any] = {_meaning(error): str(error)}
        given = Look(**trouble_of)
        found = judge(given)
        assert [each.id for each in found] == [f"sharding.{number}"]
        assert exit_code(given, found) == code == error.returncode


@pytest.mark.parametrize("days", [0, 6, 8])
def test_a_failover_is_named_for_a_week(days: int) -> None:
    here = cluster()
    moved_on = cluster(coordinator=CoordinatorRow(term_of(here.now - timedelta(days=days)), "n-a"))
    found = [each.id for each in judge(look(cluster=moved_on))]
    assert found == (["sharding.D135"] if days < 7 else [])


def test_a_node_with_room_is_not_full() -> None:
    assert judge(look(nodes=nodes(regions={"n-b": holding(89)}))) == []


def test_a_layer_that_is_away_is_one_finding_with_the_names_of_nodes_and_no_outage() -> None:
    away = {f"n-{number}": ShardRegionState(1, [], layer_away_seconds=5) for number in range(7)}
    away["n-restarted"] = ShardRegionState(1, [], layer_away_seconds=4)
    given = look(nodes=nodes(regions=away))
    (found,) = judge(given)
    assert found.what == (
        "The channel layer carries no messages for n-0, n-1, n-2, n-3, n-4 and 2 more. Direct links go on."
    )
    assert not found.is_severe


SEVEN = [f"n-{number}" for number in range(7)]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (
            nodes(regions={each: ShardRegionState(1, [], {"shop.Cart": "7 here and 10 there"}) for each in SEVEN}),
            "Nodes n-0, n-1, n-2, n-3, n-4 and 2 more may not host shop.Cart: 7 here and 10 there.",
        ),
        (
            nodes(regions={each: holding(90 + place) for place, each in enumerate(SEVEN[:3])}),
            "Nodes n-0, n-1, n-2 hold up to 92 entities of shop.Cart, of at most 100.",
        ),
        (
            nodes(regions=dict.fromkeys(SEVEN, failing(4.0).regions["n-a"])),
            "21 entities of shop.Cart cannot start: 'alice': LookupError, 7 times in 12 s.",
        ),
        (
            nodes(stats=dict.fromkeys(SEVEN, failing(-1.0).stats["n-a"])),
            "21 entities of shop.Cart cannot start: 'alice': LookupError, 7 times in 12 s.",
        ),
    ],
)  # fmt: skip
def test_the_same_of_many_nodes_is_one_finding(given: NodeAnswers, what: str) -> None:
    (found,) = judge(look(nodes=given))
    assert found.what == what
    assert found.where.startswith("nodes n-0, n-1, n-2")


def test_entities_that_cannot_start_are_told_apart_by_their_node() -> None:
    both = nodes(
        regions=dict(failing(4.0).regions), stats={each: failing(4.0).stats["n-a"] for each in ("n-a", "n-b")}
    )
    assert [(each.id, each.where) for each in judge(look(nodes=both))] == [
        ("sharding.D175", "node a"),
        ("sharding.D176", "node b"),
    ]


@pytest.mark.parametrize("changes", [{"at_work": True}, {"seconds": 30.0}])
def test_a_move_that_goes_on_is_no_finding(changes: dict[str, Any]) -> None:
    assert judge(second(moves=(moves(**changes),))) == []


@pytest.mark.parametrize("heard", [["n-a"], ["n-a", "n-b"]])
def test_of_a_silent_node_it_says_whether_the_coordinator_has_heard_it(heard: list[str]) -> None:
    stats = {"n-a": coordinating(heard=heard)}
    (found,) = judge(look(nodes=nodes(silent=frozenset({"n-b"}), stats=stats)))
    assert found.id == "sharding.D167"
    assert ("gets no shards" in found.what) is ("n-b" not in heard)


@pytest.mark.parametrize(("kind", "code"), [("event", "D192"), ("snapshot", "D194")])
def test_an_unreadable_record_is_judged_by_its_kind_however_it_is_worded(
    kind: Literal["event", "snapshot"], code: str
) -> None:
    given = look(journals=(journal(unreadable=(bad("record of the third kind", kind),)),))
    assert [each.id for each in judge(given)] == [f"sharding.{code}"]
