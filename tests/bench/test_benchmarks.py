"""The page is made from results, the machines are measured at any size, and a peer without its
package is named.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from benchmarks import growth, page
from benchmarks.measuring import Calls, Peer, measure
from benchmarks.peer.store import Journal, create_table, drop_table
from benchmarks.peers import PEERS, parse
from sharding_app.embedded import OwnPostgres
from tests.support.slack import SLACK

ROOT = Path(__file__).resolve().parents[2]
LINES = [
    {"workload": "durable", "in_flight": 64, "ops_per_s": 12345.6, "p50_ms": 4.5, "p99_ms": 9.0,
     "ratio": {"sockets_ops_per_s": 0.61}, "fsync": "on", "full_page_writes": "on", "synchronous_commit": "on",
     "server_version": "18.1"},
    {"peer": "ray", "workload": "durable", "in_flight": 64, "ops_per_s": 1000, "p50_ms": 1.0, "p99_ms": 2.0,
     "note": "one | actor"},
]  # fmt: skip


def test_the_pages_tables_are_made_from_results() -> None:
    text = "before\n<!-- table:speed -->\nold\n<!-- end -->\nbetween\n<!-- table:idle -->\n<!-- end -->\n"
    made = page.filled(text, LINES)
    assert "| durable | 64 | 12,346 | 4.5 | 9 | 0.61 |" in made
    assert "old" not in made
    assert "its p50" not in made, "a column that no line fills is left out"
    assert made.count(page.EMPTY) == 1
    assert made.startswith("before\n")
    assert page.filled(made, LINES) == made
    assert "| ray | durable | 64 | 1,000 | 1 | 2 | one / actor |" in page.filled(
        "<!-- table:peers -->\n<!-- end -->", LINES
    )
    assert "18.1, fsync on" in page.filled("<!-- table:server -->\n<!-- end -->", LINES)


def test_the_real_page_names_tables_that_there_are(tmp_path: Path) -> None:
    names = re.findall(r"<!-- table:([\w-]+) -->", page.PAGE.read_text())
    assert set(names) == {*page.TABLES, "server"}
    results, copy = tmp_path / "results.jsonl", tmp_path / "page.md"
    results.write_text("a warning\n" + "\n".join(json.dumps(line) for line in LINES))
    copy.write_text(page.PAGE.read_text())
    assert page.main([str(results), "--page", str(copy), "--check"]) == 1
    assert page.main([str(results), "--page", str(copy)]) == 0
    assert page.main([str(results), "--page", str(copy), "--check"]) == 0
    assert "12,346" in copy.read_text()


def test_the_machines_at_two_sizes() -> None:
    small, large = growth.measure(3, 30), growth.measure(30, 300)
    for lines in (small, large):
        assert [line["step"] for line in lines] == ["place", "a node dies", "a node joins", "a region sends"]
        assert all(line["cpu_s"] >= 0 for line in lines)
    assert small[0]["count"] == 30
    assert large[0]["count"] == 300
    assert large[1]["count"] == pytest.approx(10, abs=1), "only what the dead node had gets a new home"


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_that_is_not_installed_is_named(name: str) -> None:
    """With the standard library's places alone, none of them is found."""
    code = (
        "import sys, importlib.util as u; found = u.find_spec\n"
        f"u.find_spec = lambda name, *rest: None if name == {name!r} else found(name, *rest)\n"
        f"import runpy; sys.argv = ['benchmarks/peers.py', {name!r}]\n"
        "runpy.run_path('benchmarks/peers.py', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60 * SLACK,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert f"not installed: {name}. Run: pip install" in done.stderr
    assert re.search(rf"^{name}[\[=]", (ROOT / "benchmarks/requirements.txt").read_text(), re.MULTILINE)


def test_wrong_peers_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["celery"])
    assert "there is no peer 'celery': choose from eventsourcing, ray, xoscar" in capsys.readouterr().err


def test_a_peer_is_measured_and_its_events_are_committed(own_postgres: OwnPostgres) -> None:
    """The journal that peers without one are given, through the same steps as they."""

    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Calls]:
        create_table(url)
        journal = await Journal(url).open()

        def durable(number: int) -> Awaitable[object]:
            numbers.append(number)
            return journal.append("c", len(numbers))

        yield {"durable": durable}
        await journal.close()
        with psycopg.connect(url) as connection:
            counted.extend(
                connection.execute("SELECT count(*), max(seq) FROM benchmark_peer_event").fetchall()
            )
        drop_table(url)

    async def run() -> list[dict[str, Any]]:
        peer = SimpleNamespace(
            NAME="this", NOTE="itself", WORKLOADS=("durable",), MOST_IN_FLIGHT=8, opened=opened
        )
        return [line async for line in measure(cast(Peer, peer), own_postgres.url, (1, 8, 64), 0.2)]

    numbers: list[int] = []
    counted: list[Any] = []
    lines = asyncio.run(run())
    assert [line["in_flight"] for line in lines] == [1, 8], "no more callers than it can have"
    assert all(line["ops_per_s"] > 0 and line["fsync"] == "on" for line in lines)
    assert counted == [(len(numbers), len(numbers))], "each is there once"
