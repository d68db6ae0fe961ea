"""Commands and pages of a cluster with two journals, on real nodes: nothing is missing, and nothing
is wrong.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from sharding_app.embedded import OwnPostgres
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.journals import journal_of
from tests.acceptance.commands.two_journals import (
    AGAIN,
    EVERY,
    HERE,
    ROWS,
    SHARDS,
    THERE,
    TYPE,
    WEIGHTS,
    Two,
    copied,
    number_of,
    paid_in,
    pay,
    sql,
)
from tests.support.live import until
from tests.support.slack import SLACK

REMIND = """
from datetime import timedelta
from tests.acceptance.purses.entities import Purse
Purse.ref({0!r}).sync.remind()
Purse.ref({1!r}).sync.remind()
Purse.ref({1!r}).pay.later(timedelta(days=9), 1)
"""
ADMIN = "/admin/sharding/"
DASHBOARD = f"{ADMIN}cluster/"


@pytest.mark.slow
def test_commands_and_pages_see_both_journals_while_nodes_run(two: Two, tmp_path: Path) -> None:
    with two.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        until(
            lambda: all(each["usable"] for each in two.asked("sharding_journals")["journals"]), 30, "usable"
        )
        pay(two)
        assert two.count(ROWS["event"]) == (3 * len(HERE), 3 * len(THERE))
        assert two.manage("shell", "-v0", "-c", REMIND.format(HERE[0], THERE[0])).returncode == 0

        # One entity, wherever it lies, with its messages from outside.
        for entity, journal, messages in ((HERE[0], "default", 1), (THERE[0], "journal_b", 2)):
            shown = two.asked("sharding_entity", TYPE, entity, "--content")
            assert (shown["last_event"], shown["journal"], shown["node"]) == (4, journal, "one")
            assert len(shown["messages"]) == messages
            assert json.loads(shown["state"]["paid"]) == 3
            found = two.asked("sharding_entity", TYPE, entity, "--command-id", f"id-{entity}-1")["events"]
            assert found == two.asked("sharding_entity", "--command-id", f"id-{entity}-1")["events"]
            assert [each["seq"] for each in found] == [2]

        number = number_of(two)
        ids = [
            each
            for url in (two.database_url, two.other)
            for (each,) in sql(url, "SELECT id FROM sharding_message ORDER BY id")
        ]
        assert len(set(ids)) == 3
        listed, of_one, database, events, one_page, timers, metrics, shards, of_type, shard = two.pages(
            f"{DASHBOARD}messages/?state=pending",
            f"{DASHBOARD}messages/?state=pending&entity={THERE[0]}",
            f"{DASHBOARD}database/",
            f"{ADMIN}event/?q={THERE[1]}",
            f"{DASHBOARD}types/{number}/entity/?id={THERE[1]}",
            f"{DASHBOARD}messages/one/?id={ids[-1]}",
            "/sharding/metrics",
            f"{ADMIN}shard/",
            f"{DASHBOARD}types/{number}/",
            f"{DASHBOARD}types/{number}/shards/{shard_of(THERE[1], SHARDS)}/",
        )
        assert all(each in listed[1] for each in ids)
        assert sum(each in of_one[1] for each in ids) == 2
        assert "Tables of journal_b" in database[1]
        assert "Journals" in database[1]
        assert events[1].count(f">{THERE[1]}<") == 3
        assert events[1].count('field-lies_in">journal_b<') == 3
        assert "id-" not in events[1]
        assert set(re.findall(r'field-lies_in">(\w+)<', shards[1])) == {"default", "journal_b"}
        assert "<td>journal_b</td></tr>" in of_type[1]
        assert "<td>default</td></tr>" in of_type[1]
        assert "<dt>Journal</dt><dd>journal_b</dd>" in shard[1]
        assert one_page[1].count("Paid") == 3
        assert "<dt>Journal</dt><dd>journal_b</dd>" in one_page[1]
        assert timers[0] == 200
        assert "reminder" in timers[1]
        assert 'sharding_journal_up{journal="journal_b"} 1' in metrics[1]

        # A timer of the other journal is discarded on its page.
        (timer,) = [each for (each,) in sql(two.other, "SELECT id FROM sharding_message")]
        asked, _ = two.pages(
            f"{DASHBOARD}steer/discard/?message={timer}", f"{DASHBOARD}steer/discard/ message={timer}"
        )
        assert f"timer reminder of {TYPE} {THERE[0]}" in asked[1]
        assert sql(two.other, "SELECT id FROM sharding_message") == []

        # Its home erases an entity of the other journal, with what came from outside.
        erased = two.asked("sharding_erase", TYPE, THERE[0], "--yes")["erased"]
        assert (erased["events"], erased["messages"]) == (4, 1)
        assert sql(two.other, "SELECT FROM sharding_event WHERE entity = %s", THERE[0]) == []

        doctor = two.manage("sharding_doctor", "--json")
        judged = {each["id"] for each in json.loads(doctor.stdout)["findings"]}
        assert not judged & {f"sharding.D1{each}" for each in ("04", "05", "14", "15", "16", "17", "18")}

        file = tmp_path / "purses.jsonl"
        written = two.asked("sharding_export", TYPE, "--to", str(file))
        entities = [json.loads(line).get("entity") for line in file.read_text().splitlines()]
        assert {each for each in entities if each} == set(EVERY) - {THERE[0]}
        one.stop()

    # No node runs: all is removed, in both journals, and put back from the file.
    counted = two.asked("sharding_remove_journal", TYPE, "--dry-run")["deleted"]
    assert counted["events"] == 3 * (len(EVERY) - 1) + 1
    assert two.manage("sharding_remove_journal", TYPE, "--yes-delete-the-journal-of", TYPE).returncode == 0
    assert {two.count(query) for query in ROWS.values()} == {(0, 0)}
    put = two.asked("sharding_import", str(file))
    assert put["stored"] == written["rows"]
    assert two.asked("sharding_import", str(file))["stored"] == 0
    assert two.count(ROWS["event"]) == (3 * len(HERE) + 1, 3 * (len(THERE) - 1))
    # Each database has a layout of its own.
    unnamed = two.manage("sharding_partition", "--by-type", "--yes")
    assert unnamed.returncode == 1
    assert "add --journal with one of default, journal_b" in unnamed.stderr
    assert "There is no journal 'x'" in two.manage("sharding_partition", "--journal", "x").stderr
    assert two.asked("sharding_partition", "--journal", "journal_b", "--by-type", "--yes")["partitioned"]
    assert not two.asked("sharding_partition")["partitioned"]
    again = tmp_path / "again.jsonl"
    two.asked("sharding_export", TYPE, "--to", str(again))
    assert again.read_bytes() == file.read_bytes()
    with two.program("sharding_node", "--name", "two") as node:
        node.wait_line("^node two is up$")
        pay(two)
        assert sql(two.other, "SELECT max(seq) FROM sharding_event WHERE entity = %s", THERE[1]) == [(3,)]
        node.stop()


@pytest.mark.slow
def test_a_journal_that_is_down_is_named_and_the_other_one_is_shown(
    apart: Two, own_postgres: OwnPostgres
) -> None:
    with paid_in(apart) as one:
        assert apart.manage("shell", "-v0", "-c", REMIND.format(HERE[0], THERE[0])).returncode == 0
        own_postgres.stop()

        told = apart.asked("sharding_journals", code=2)["journals"]
        assert [(each["name"], each["reachable"]) for each in told] == [
            ("default", True),
            ("journal_b", False),
        ]
        assert apart.asked("sharding_entity", TYPE, HERE[0])["last_event"] == 4
        away = apart.manage("sharding_entity", TYPE, THERE[0])
        assert away.returncode == 2
        assert "The journal 'journal_b' cannot be read" in away.stderr
        found = apart.asked("sharding_entity", "--command-id", f"id-{HERE[0]}-1")
        assert ([each["seq"] for each in found["events"]], [*found["journals_down"]]) == (
            [2],
            ["journal_b"],
        )
        lost = apart.manage("sharding_entity", "--command-id", f"id-{THERE[0]}-1")
        assert lost.returncode == 2, "nothing was found, and not all was searched"

        for command in (
            ("sharding_export", TYPE, "--to", "/nonexistent/file"),
            ("sharding_erase", TYPE, THERE[0], "--dry-run"),
            ("sharding_remove_journal", TYPE, "--dry-run"),
            ("sharding_remove_data", "--dry-run"),
            ("sharding_archive", TYPE, "--older-than", "0"),
        ):
            tried = apart.manage(*command)
            assert tried.returncode != 0, command
            assert "DATABASES['journal_b']" in tried.stderr, (command, tried.stderr)
        assert apart.asked("sharding_erase", TYPE, HERE[1], "--dry-run")["erased"]["events"] == 3

        judged = {
            each["id"] for each in json.loads(apart.manage("sharding_doctor", "--json").stdout)["findings"]
        }
        assert "sharding.D104" in judged
        listed, database, events, metrics, page = apart.pages(
            f"{DASHBOARD}messages/?state=pending",
            f"{DASHBOARD}database/",
            f"{ADMIN}event/?q={HERE[1]}",
            "/sharding/metrics",
            f"{DASHBOARD}types/{number_of(apart)}/entity/?id={THERE[0]}",
        )
        for status, text in (listed, database, events):
            assert status == 200
            assert "The journal journal_b does not answer" in text
        assert "stored from outside" in listed[1] or "pending" in listed[1]
        assert "sharding_event" in database[1]
        assert events[1].count(f">{HERE[1]}<") == 3
        assert 'sharding_journal_up{journal="journal_b"} 0' in metrics[1]
        assert "cannot be shown" in page[1]

        # A process without the setting says so, and does not take a part for the whole.
        less = apart.manage("sharding_doctor", "--json", WITHOUT_JOURNALS="1")
        assert "sharding.D105" in {each["id"] for each in json.loads(less.stdout)["findings"]}
        export = apart.manage("sharding_export", TYPE, WITHOUT_JOURNALS="1")
        assert export.returncode == 1
        assert "SHARDING['JOURNALS'] of this process does not name it" in export.stderr

        own_postgres.start()
        until(lambda: apart.manage("sharding_journals").returncode == 0, 60, "it answers again")
        one.stop()
    moved = copied(apart, own_postgres.url)
    with apart.program("sharding_node", "--name", "late") as late:
        late.wait_line("^node late is up$")
        refused = moved.manage("sharding_journals", "--adopt", "journal_b", "--yes")
        assert "Nodes are running: late." in refused.stderr
        late.stop()
    for given in (
        ("sharding_erase", TYPE, THERE[0], "--yes"),
        ("sharding_move_journal", TYPE, "--to", "default", "--yes"),
    ):
        refused = moved.manage(*given)
        assert refused.returncode == 1, refused.stdout
        assert "leads to another database than the cluster knows" in refused.stderr
    elsewhere = moved.manage("sharding_journals")
    assert elsewhere.returncode == 1
    assert "run: manage.py sharding_journals --adopt journal_b" in elsewhere.stdout
    sql(own_postgres.url, "CREATE DATABASE empty")
    empty = Two(apart, urlunsplit(urlsplit(apart.other)._replace(path="/empty")))
    assert "migrations are missing" in empty.manage("sharding_journals", "--adopt", "journal_b").stderr
    assert empty.manage("migrate", "--database", "journal_b", "sharding", "-v0").returncode == 0
    assert "it says no owner" in empty.manage("sharding_journals", "--adopt", "journal_b", "--yes").stderr
    adopted = moved.asked("sharding_journals", "--adopt", "journal_b", "--yes")["journals"][1]
    assert (adopted["usable"], adopted["place"]) == (True, adopted["known_place"])
    with moved.program("sharding_node", "--name", "apart") as node:
        node.wait_line("^node apart is up$")
        assert moved.asked("sharding_entity", TYPE, THERE[0])["last_event"] == 4
        again = moved.manage("shell", "-v0", "-c", AGAIN.format(THERE[0]))
        assert again.stdout.strip() == "4", again.stderr
        node.stop()


FLOOD = f"""
import asyncio
from collections import Counter
from tests.acceptance.purses.entities import Purse

async def ends():
    flood = [asyncio.ensure_future(Purse.ref(each, timeout={6 * SLACK}).pay(1)) for each in {THERE!r} * 200]
    for _ in range(5):
        print("paid", await asyncio.gather(*(Purse.ref(each, timeout={6 * SLACK}).pay(1) for each in {HERE!r})))
    ended = await asyncio.gather(*flood, return_exceptions=True)
    print("flood", sorted(Counter(type(each).__name__ for each in ended).items()))

asyncio.run(ends())
"""
SMALL = "65536"


@pytest.mark.slow
def test_commands_for_one_journal_go_on_while_many_wait_for_another(
    apart: Two, own_postgres: OwnPostgres
) -> None:
    """Far more than the link's window holds."""
    with paid_in(apart, LINK_WINDOW=SMALL) as one:
        own_postgres.stop()
        flooded = apart.manage("shell", "-v0", "-c", FLOOD, LINK_WINDOW=SMALL)
        assert flooded.returncode == 0, flooded.stderr
        paid = [line for line in flooded.stdout.splitlines() if line.startswith("paid")]
        assert paid == [f"paid {[cents] * len(HERE)}" for cents in range(4, 9)]
        ended = re.search(
            r"^flood \[\('AskTimeout', (\d+)\), \('BufferFull', (\d+)\)\]$", flooded.stdout, re.MULTILINE
        )
        assert ended is not None, flooded.stdout
        assert int(ended[1]) + int(ended[2]) == 200 * len(THERE)
        own_postgres.start()
        again = apart.manage("shell", "-v0", "-c", AGAIN.format(THERE[0]))
        assert again.returncode == 0, again.stderr
        one.stop()


REGISTER = """
from tests.acceptance.purses.entities import Owner
for each in {0!r}:
    Owner.ref(each).sync.register(f'Ann of {{each}}')
"""


@pytest.mark.slow
def test_entities_go_on_where_they_were_when_rows_of_shards_are_lost(
    apart: Two, own_postgres: OwnPostgres
) -> None:
    """As after a failover to a standby that lacks these rows. The weights are others by then, and
    the journal is down when the first node comes.
    """
    with paid_in(apart):
        pass
    assert apart.count(ROWS["event"]) == (3 * len(HERE), 3 * len(THERE))
    sql(apart.database_url, "DELETE FROM sharding_shard WHERE journal <> ''")
    sql(apart.database_url, "UPDATE sharding_coordinator SET lineage = 'former/1'")
    own_postgres.stop()
    with apart.program("sharding_node", "--name", "next", WEIGHT_OF_B="0") as node:
        node.wait_line("^node next is up$")
        again = apart.manage("shell", "-v0", "-c", AGAIN.format(HERE[0]))
        assert again.stdout.strip() == "4", again.stderr
        judged = {
            each["id"] for each in json.loads(apart.manage("sharding_doctor", "--json").stdout)["findings"]
        }
        assert "sharding.D108" in judged
        refused = apart.manage("sharding_resize", TYPE, "--shards", str(2 * SHARDS))
        assert refused.returncode == 2
        assert "which shards lie in the journals journal_b" in refused.stderr
        own_postgres.start()
        again = apart.manage("shell", "-v0", "-c", AGAIN.format(THERE[0]), seconds=60)
        assert again.stdout.strip() == "4", again.stderr
    assert apart.count(ROWS["event"]) == (3 * len(HERE) + 1, 3 * len(THERE) + 1)


def test_a_person_is_shown_and_erased_in_the_journal_that_has_the_data(two: Two, tmp_path: Path) -> None:
    by_journal = {
        journal_of("purses.Owner", shard_of(each, SHARDS), WEIGHTS): each for each in ("ann", *EVERY)
    }
    persons = [by_journal[name] for name in WEIGHTS]
    with two.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        made = two.manage("shell", "-v0", "-c", REGISTER.format(persons))
        assert made.returncode == 0, made.stderr
        assert two.count(ROWS["event"]) == two.count(ROWS["message"]) == (1, 1)
        for person in persons:
            file = tmp_path / f"{person}.jsonl"
            told = two.manage("sharding_export_subject", person, "--to", str(file), "--yes")
            assert told.returncode == 0, told.stderr
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            assert [each["row"] for each in rows] == ["person", "event", "message", "end"]
            assert f"Ann of {person}" in json.dumps(rows)
        for person in persons:
            erased = two.manage("sharding_erase_subject", person, "--yes", "--json")
            assert erased.returncode == 0, erased.stdout + erased.stderr
            counted = json.loads(erased.stdout)["entities"]["purses.Owner"]
            assert (counted["events"], counted["messages"]) == (1, 1)
        assert two.count(ROWS["event"]) == two.count(ROWS["message"]) == (0, 0)
        one.stop()
