"""Commands of a cluster with two journals, where something is in the way: the database that failed
is named, what was interrupted goes on, and what is forced is no more than was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

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
    pay,
    sql,
)
from tests.support.live import until

JOURNAL_TABLES = ("event", "snapshot", "remembered", "message")
KNOWN = """
INSERT INTO sharding_type (name, kind, number_of_shards, extractor, hash_version, role, store_mode)
VALUES (%s, 'event_sourced', %s, '', 'crc32-1', '', 'postgres')
"""
PLACED = """
INSERT INTO sharding_shard (type_id, shard, epoch, home, step, journal)
SELECT t.id, s.shard, 1, NULL, 'stopped', s.journal
FROM sharding_type t, unnest(%s::integer[], %s::text[]) AS s (shard, journal) WHERE t.name = %s
"""


def place(two: Two) -> None:
    """Let the shards of a type lie in both journals, without a node."""
    sql(two.database_url, "INSERT INTO sharding_cluster (cluster_id) VALUES ('c1') ON CONFLICT DO NOTHING")
    for name in (TYPE, "purses.Owner"):
        sql(two.database_url, KNOWN, name, SHARDS)
        journals = [journal_of(name, shard, WEIGHTS) for shard in range(SHARDS)]
        sql(two.database_url, PLACED, list(range(SHARDS)), journals, name)


@pytest.mark.slow
def test_an_error_names_the_database_that_has_failed(two: Two, tmp_path: Path) -> None:
    place(two)
    entity = THERE[0]
    commands = {
        "export": ("sharding_export", TYPE, "--to", str(tmp_path / "export")),
        "erase": ("sharding_erase", TYPE, entity, "--dry-run"),
        "erase for good": ("sharding_erase", TYPE, entity, "--yes"),
        "remove_journal": ("sharding_remove_journal", TYPE, "--dry-run"),
        "remove_data": ("sharding_remove_data", "--dry-run"),
        "archive": ("sharding_archive", TYPE, "--older-than", "0"),
        "archive entities": ("sharding_archive", TYPE, "--entities-older-than", "0"),
        "export_subject": ("sharding_export_subject", "ann", "--to", str(tmp_path / "ann"), "--yes"),
        "partition": ("sharding_partition", "--journal", "journal_b"),
        "entity": ("sharding_entity", TYPE, entity),
    }
    for table in JOURNAL_TABLES:
        sql(two.other, f"ALTER TABLE sharding_{table} RENAME TO away_{table}")
    told = {name: two.manage(*command) for name, command in commands.items()}
    wrong = {
        name: done.stderr
        for name, done in told.items()
        if done.returncode == 0 or "journal_b" not in done.stderr or "'default'" in done.stderr
    }
    assert wrong == {}
    # The other way round, and with a database of its own for what may not go through a pooler.
    for table in JOURNAL_TABLES:
        sql(two.other, f"ALTER TABLE away_{table} RENAME TO sharding_{table}")
        sql(two.database_url, f"ALTER TABLE sharding_{table} RENAME TO away_{table}")
    here = two.manage("sharding_export", TYPE, "--to", str(tmp_path / "here"))
    assert "DATABASES['default']" in here.stderr, here.stderr
    direct = two.manage("sharding_export", TYPE, "--to", str(tmp_path / "direct"), LIFELINE_DATABASE="direct")
    assert "DATABASES['direct']" in direct.stderr, direct.stderr


@pytest.fixture
def paid(two: Two) -> Two:
    """Both journals have purses; no node runs any more."""
    with two.program("sharding_node", "--name", "one") as one:
        one.wait_line("^node one is up$")
        until(
            lambda: all(each["usable"] for each in two.asked("sharding_journals")["journals"]), 30, "usable"
        )
        pay(two)
        one.stop()
    assert two.count(ROWS["event"]) == (3 * len(HERE), 3 * len(THERE))
    return two


@pytest.mark.slow
def test_an_interrupted_export_of_two_journals_goes_on(paid: Two, tmp_path: Path) -> None:
    whole = tmp_path / "whole.jsonl"
    written = paid.asked("sharding_export", TYPE, "--to", str(whole))
    content = whole.read_bytes()
    rows = [json.loads(line) for line in content.splitlines()]
    kinds = [each["row"] for each in rows]
    # Behind the first line, within each kind of rows, in the middle of a line, and before the end.
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    middles = [
        (kinds.index(kind) + len(kinds) - kinds[::-1].index(kind)) // 2 for kind in dict.fromkeys(kinds[1:-1])
    ]
    assert len(middles) == 3, "snapshots, events, remembered ids"
    ends = [starts[1], *(starts[each] for each in middles), starts[middles[1]] + 9, starts[-2]]
    for number, end in enumerate(ends):
        broken = tmp_path / f"broken-{number}.jsonl"
        broken.write_bytes(content[:end])
        again = paid.asked("sharding_export", TYPE, "--to", str(broken), "--resume")
        assert (again["rows"], again["sha256"]) == (written["rows"], written["sha256"]), end
        assert broken.read_bytes() == content, end
    assert {each["entity"] for each in rows if each["row"] == "event"} == set(EVERY)


@pytest.fixture
def moved(paid: Two) -> Iterator[Two]:
    """The same cluster with a copy of its second journal, which is not adopted yet."""
    name = f"moved_{uuid4().hex}"
    try:
        yield copied(paid, paid.database_url, name)
    finally:
        sql(paid.database_url, f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


ADOPT = ("sharding_journals", "--adopt", "journal_b", "--yes")


@pytest.mark.slow
def test_a_forced_adoption_passes_over_nodes_that_wait_for_it_and_over_none_that_uses_the_journal(
    paid: Two, moved: Two
) -> None:
    with moved.program("sharding_node", "--name", "late") as late:
        late.wait_line("^node late is up$")
        late.wait_line("cannot be used: the cluster knows the journal 'journal_b' as the database")
        assert moved.manage("shell", "-v0", "-c", AGAIN.format(HERE[0])).stdout.strip() == "4"
        refused = moved.manage(*ADOPT)
        assert refused.returncode == 1
        assert "Nodes are running: late." in refused.stderr
        adopted = moved.asked(*ADOPT, "--force")["journals"][1]
        assert (adopted["usable"], adopted["place"]) == (True, adopted["known_place"])
        used = "SELECT 1 FROM sharding_node WHERE journals ? 'journal_b'"
        until(lambda: sql(moved.database_url, used), 30, "the node uses the journal")
        again = moved.manage("shell", "-v0", "-c", AGAIN.format(THERE[0]))
        assert again.stdout.strip() == "4", again.stderr
        back = paid.manage(*ADOPT, "--force")
        assert back.returncode == 1
        assert "Nodes use 'journal_b' at its former place: late." in back.stderr
        assert moved.asked("sharding_journals")["journals"][1]["usable"]
        late.stop()


@pytest.mark.slow
def test_a_forced_adoption_passes_over_shards_that_the_copy_lacks_and_over_no_later_epoch(moved: Two) -> None:
    assert moved.manage("sharding_journals", "--force").returncode == 1, "--force alone means nothing"
    sql(moved.other, "UPDATE sharding_shard SET epoch = epoch + 9")
    ahead = moved.manage(*ADOPT, "--force")
    assert ahead.returncode == 1
    assert "have later epochs there than in the cluster's own database" in ahead.stderr
    sql(moved.other, "UPDATE sharding_shard SET epoch = epoch - 9")
    ((lacking,),) = sql(moved.other, "SELECT min(shard) FROM sharding_event e WHERE e.entity = %s", THERE[0])
    sql(moved.other, "DELETE FROM sharding_shard WHERE shard = %s", lacking)
    refused = moved.manage(*ADOPT)
    assert refused.returncode == 1
    assert "is it a whole copy?" in refused.stderr
    assert moved.asked(*ADOPT, "--force")["journals"][1]["usable"]
    with moved.program("sharding_node", "--name", "two") as node:
        node.wait_line("^node two is up$")
        again = moved.manage("shell", "-v0", "-c", AGAIN.format(THERE[0]))
        assert again.stdout.strip() == "4", again.stderr
        node.stop()
