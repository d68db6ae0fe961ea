"""What takes two real nodes: rows beside events while a shard is handed over, and calls in a
circle.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import Group
from django.db import connection

from sharding_app import EntityFailed, ShardingError
from sharding_app.models import Event
from sharding_app.protocol.ids import shard_of
from sharding_app.testing import modes, real
from tests.integration.runtime.clubs import Caller, Club
from tests.integration.runtime.held_row import held_row
from tests.integration.runtime.test_real import one_look
from tests.support.live import until
from tests.support.slack import SLACK

HOME = "SELECT DISTINCT s.home FROM sharding_shard s JOIN sharding_event e USING (type_id, shard) WHERE e.entity = %s"
CALLERS_HOME = """
SELECT s.home FROM sharding_shard s JOIN sharding_type t ON t.id = s.type_id
WHERE t.name = 'entities.Caller' AND s.shard = %s::int
"""
WAITING = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database()"
    " AND application_name LIKE 'sharding/%%/also' AND wait_event_type = 'Lock'"
)


def ask(sql: str, *values: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        row = cursor.fetchone()
    return "" if row is None else str(row[0])


@pytest.mark.django_db(transaction=True)
def test_a_row_that_is_held_while_the_home_hands_its_shards_over() -> None:
    """Five seconds of a lock of the user's: no other entity waits, and in the end rows and event
    are both there or neither.
    """
    with (
        modes.real(),
        real.node() as one,
        real.node() as other,
        ThreadPoolExecutor(2) as pool,
        held_row("held") as row,
    ):
        assert Club.ref("slow").sync.join("first") == 1
        home = ask(HOME, "slow")
        leaving = next(
            each for each in (one, other) if each._runner and each._runner.node and each._runner.node.incarnation == home
        )  # fmt: skip
        held_up = pool.submit(lambda: Club.ref("slow", timeout=20 * SLACK).sync.join_and_touch("row", "held"))
        until(lambda: ask(WAITING), 5, "the command waits for the row")
        gone = pool.submit(leaving.stop)
        assert Club.ref("quick").sync.join("at once") == 1, "no other entity waits"
        row.hold_for(5)
        row.let_go()
        try:
            reply = held_up.result(30 * SLACK)
        except ShardingError:
            reply = None
        gone.result(30 * SLACK)
        assert ask(HOME, "quick") != home, "the other node has taken over"
        with one_look():
            stored = Event.objects.filter(entity="slow").count()
            assert stored == (2 if Group.objects.filter(name="row").exists() else 1), "both or neither"
        assert reply in (None, stored)
        assert Club.ref("slow", timeout=20 * SLACK).sync.join("after") == stored + 1
        assert ask(HOME, "slow") != home


@pytest.mark.django_db(transaction=True)
def test_a_circle_of_calls_over_two_nodes_is_named() -> None:
    with modes.real(), real.node(), real.node():
        until(lambda: ask("SELECT count(*) FROM sharding_node WHERE state = 'up'") == "2", 10, "both are up")
        here, there = "0", "0"

        def home(entity: str) -> str:
            count = int(ask("SELECT number_of_shards FROM sharding_type WHERE name = 'entities.Caller'"))
            return ask(CALLERS_HOME, str(shard_of(entity, count)))

        def elsewhere() -> bool:
            nonlocal there
            there = str(int(there) + 1)
            return Caller.ref(there).sync.ask([]) == 1 and home(there) != home(here)

        assert Caller.ref(here).sync.ask([]) == 1
        until(elsewhere, 10, "the coordinator knows of both nodes, and puts a shard on the other one")
        assert Caller.ref(here).sync.ask([there]) == 2
        way = f"entities.Caller/{here} -> entities.Caller/{there} -> entities.Caller/{here}.ask"
        with pytest.raises(EntityFailed, match=way):
            Caller.ref(here).sync.ask([there, here])
        assert Caller.ref(there).sync.ask([here]) == 2, "no caller waits for ever"
