"""`sharding_move_journal` on real nodes under load: each call takes effect once and in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.commands.two_journals import ROWS, TYPE, Two, sql
from tests.support.live import until

LOAD = """
import threading, time
from tests.acceptance.purses.entities import Purse
from sharding_app import ShardingError
ends, paid, wrong = threading.Event(), {}, []
def pays(each):
    while not ends.is_set():
        time.sleep(0.05)
        number = paid.get(each, 0) + 1
        try:
            got = Purse.ref(each, command_id=f'{each}-{number}').sync.pay(1)
        except ShardingError as error:
            continue  # the same again
        if got != number:
            wrong.append((each, number, got))
            return
        paid[each] = number
threads = [threading.Thread(target=pays, args=(f'p{number}',)) for number in range(24)]
for thread in threads:
    thread.start()
print('load', flush=True)
input()
ends.set()
for thread in threads:
    thread.join()
import json
print('paid', json.dumps(paid), 'wrong', json.dumps(wrong), flush=True)
"""


def moved(two: Two, *arguments: str, code: int = 0) -> dict[str, Any]:
    return two.asked("sharding_move_journal", *arguments, code=code)


def places(two: Two) -> set[str]:
    return {journal for (journal,) in sql(two.database_url, "SELECT DISTINCT journal FROM sharding_shard WHERE type_id ="
        " (SELECT id FROM sharding_type WHERE name = %s)", TYPE)}  # fmt: skip


@pytest.mark.slow
def test_all_shards_move_there_and_back_while_entities_are_called(two: Two) -> None:
    with (
        two.program("sharding_node", "--name", "one") as one,
        two.program("sharding_node", "--name", "two") as other,
    ):
        for node, name in ((one, "one"), (other, "two")):
            node.wait_line(f"^node {name} is up$")
        until(
            lambda: all(each["usable"] for each in two.asked("sharding_journals")["journals"]), 30, "usable"
        )
        with two.program("shell", "-v0", "-c", LOAD) as load:
            load.wait_line("^load$")
            until(lambda: two.count(ROWS["event"])[1] > 50, 30, "events")
            assert moved(two, TYPE, "--to", "journal_b")["moves"] == [], "it only says what it would do"
            pauses = []
            for target, journal in (("journal_b", "journal_b"), ("default", ""), ("journal_b", "journal_b")):
                done = moved(two, TYPE, "--to", target, "--at-once", "3", "--yes")
                pauses += done["pauses"]
                assert {each["step"] for each in done["moves"]} == {"moved"}
                assert places(two) == {journal}
                before = sum(two.count(ROWS["event"]))
                until(lambda before=before: sum(two.count(ROWS["event"])) > before + 50, 30, "events")  # type: ignore[misc]
                refusal = two.manage("sharding_move_journal", TYPE, "--to", "default", "--yes")
                if target != "default":
                    assert "have left a copy" in refusal.stderr
                assert moved(two, TYPE, "--delete-source", "--yes")["moves"] == []
            stdin = load.process.stdin
            assert stdin is not None
            stdin.write("\n")
            stdin.flush()
            match = load.wait_line(r"^paid (.*) wrong (.*)$")
            paid: dict[str, int] = json.loads(match[1])
            assert json.loads(match[2]) == []
        assert sum(paid.values()) == two.count(ROWS["event"])[1]
        assert two.count(ROWS["event"])[0] == 0
        stored = dict(sql(two.other, "SELECT entity, max(seq) FROM sharding_event GROUP BY entity"))
        assert stored == paid
        assert two.count(ROWS["remembered"]) == (0, len(paid))
        print("pauses", sorted(pauses))
        assert len(pauses) > 5
        without_a_journal_that_is_lost(two)


def without_a_journal_that_is_lost(two: Two) -> None:
    """One shard was on its way there, or has left a copy there."""
    lost = "INSERT INTO sharding_move (type_id, shard, source, target, step) SELECT id, 0, %s, %s, %s FROM sharding_type WHERE name = %s"
    for row, arguments, told in (
        (("journal_b", "journal_z", "copying"), ("--cancel",), "Not deleted: copies of shards 0"),
        (("journal_z", "journal_b", "moved"), ("--delete-source", "--yes"), "Forgotten: what shards 0"),
    ):
        sql(two.database_url, lost, *row, TYPE)
        assert two.manage("sharding_move_journal", TYPE, *arguments).returncode == 1
        done = two.manage("sharding_move_journal", TYPE, *arguments, "--gone", "journal_z")
        assert done.returncode == 0, done.stderr
        assert told in done.stdout
        assert sql(two.database_url, "SELECT FROM sharding_move") == []
