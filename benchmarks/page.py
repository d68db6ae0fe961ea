"""`python -m benchmarks.page results.jsonl…`: put the tables of docs/benchmarks.md in, made from
lines of JSON.

The lines are those that `manage.py sharding_bench --json`, `benchmarks/peers.py --json` and
`benchmarks.growth` print, in any order. What stands between the marks `<!-- table:NAME -->` and
`<!-- end -->` is replaced; the text around it is not touched. A table without lines says so.
`--check` writes nothing and ends with exit code 1 if the page would change.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
MARK = re.compile(r"<!-- table:(?P<name>[\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
EMPTY = "*Not measured yet: run the commands above.*"

Line = Mapping[str, Any]
Column = tuple[str, Callable[[Line], object]]


def key(name: str) -> Callable[[Line], object]:
    return lambda line: line.get(name)


def ratio(name: str) -> Callable[[Line], object]:
    return lambda line: (line.get("ratio") or {}).get(name)


TIMES: list[Column] = [
    ("in flight", key("in_flight")),
    ("ops/s", key("ops_per_s")),
    ("p50 ms", key("p50_ms")),
    ("p99 ms", key("p99_ms")),
]
PROBE: list[Column] = [
    ("of the socket probe", ratio("sockets_ops_per_s")),
    ("its p50", ratio("sockets_p50_ms")),
    ("its p99", ratio("sockets_p99_ms")),
    ("of the Redis probe", ratio("redis_ops_per_s")),
    ("p50 of that", ratio("redis_p50_ms")),
    ("p99 of that", ratio("redis_p99_ms")),
]
COSTS: list[Column] = [
    ("client µs", key("client_cpu_us")),
    ("nodes µs", key("node_cpu_us")),
    ("messages", key("messages_per_op")),
    ("rows", key("rows_per_op")),
    ("commits", key("commits_per_op")),
]
MEMORY: list[Column] = [("node MB", key("node_mb")), ("at most", key("node_mb_most"))]
WHAT: Column = ("workload", key("workload"))
NOTE: Column = ("", key("note"))


def ours(*names: str) -> Callable[[Line], bool]:
    return lambda line: line.get("workload") in names and "peer" not in line


TABLES: dict[str, tuple[Callable[[Line], bool], list[Column]]] = {
    "speed": (ours("ask", "durable"), [WHAT, *TIMES, *PROBE]),
    "others": (
        ours("django", "hot", "wide", "recover", "remembered"),
        [WHAT, *TIMES, ("ratio", lambda line: _pairs(line.get("ratio"))), NOTE],
    ),
    "messages": (
        ours("messages", "timers"),
        [WHAT, ("nodes", key("nodes")), ("pending", key("entities")), ("count", key("count")), *TIMES,
         ("ratio", lambda line: _pairs(line.get("ratio"))), ("s", key("balanced_s")), ("node MB", key("node_mb")), NOTE],
    ),
    "memory": (
        ours("memory"),
        [("entities", key("entities")), ("bytes for each", key("bytes_per_entity")), NOTE],
    ),
    "moving": (
        ours("failover", "rebalance"),
        [WHAT, ("nodes", key("nodes")), ("shards", key("count")), ("p50 ms", key("p50_ms")), ("p99 ms", key("p99_ms")),
         ("failed", key("failed")), ("balanced s", key("balanced_s")), NOTE],
    ),
    "scale": (ours("scale"), [("nodes", key("nodes")), ("ops/s", key("ops_per_s")), *COSTS,
                              ("to one node's", lambda line: _pairs(line.get("ratio"))), NOTE]),
    "growth": (
        ours("growth"),
        [("step", key("step")), ("nodes", key("nodes")), ("shards", key("shards")), ("count", key("count")),
         ("CPU s", key("cpu_s")), ("µs each", key("cpu_us_each")), ("messages each", key("messages_each"))],
    ),
    "idle": (ours("idle"), [("nodes", key("nodes")), ("% of a core", key("cpu_percent")),
                            ("queries/s", key("queries_per_s")), NOTE]),
    "live": (
        ours("live"),
        [("browsers", key("browsers")), ("first ms", key("first_ms")), ("p50 ms", key("p50_ms")),
         ("p99 ms", key("p99_ms")), ("last ms", key("last_ms")), ("web process µs each", key("web_cpu_us")), NOTE],
    ),
    "load": (ours("flood", "soak", "starved"), [WHAT, *TIMES[1:], ("failed", key("failed")), ("rejected", key("rejected")),
                                     ("% of a core", key("cpu_percent")), ("rows/s", key("node_rows_per_s")),
                                     *MEMORY, ("ratio", lambda line: _pairs(line.get("ratio"))), NOTE]),
    "peers": (lambda line: "peer" in line, [("peer", key("peer")), WHAT, *TIMES, NOTE]),
}  # fmt: skip
SERVER = ("server_version", "fsync", "full_page_writes", "synchronous_commit")


def _pairs(value: object) -> str:
    if not isinstance(value, Mapping):
        return ""
    return ", ".join(f"{name} {_shown(number)}" for name, number in value.items())


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value).replace("|", "/")


def table(lines: Iterable[Line], columns: Sequence[Column]) -> str:
    """A table in Markdown, without the columns that no line fills."""
    rows = [[_shown(value(line)) for _, value in columns] for line in lines]
    if not rows:
        return EMPTY
    kept = [number for number in range(len(columns)) if any(row[number] for row in rows)]
    text = [
        [columns[number][0] for number in kept],
        ["---"] * len(kept),
        *([row[number] for number in kept] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in text)


def server(lines: Iterable[Line]) -> str:
    """On what servers it was measured: a line for each kind that the results name."""
    found = {", ".join(f"{name} {line.get(name)}" for name in SERVER) for line in lines if SERVER[0] in line}
    return "\n".join(f"PostgreSQL: {each}." for each in sorted(found)) or EMPTY


def filled(page: str, lines: Sequence[Line]) -> str:
    """The page with its tables made anew. Raises KeyError where it names one that there is not."""

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name == "server":
            text = server(lines)
        else:
            wanted, columns = TABLES[name]
            text = table([line for line in lines if wanted(line)], columns)
        return f"<!-- table:{name} -->\n{text}\n<!-- end -->"

    return MARK.sub(fill, page)


def read(paths: Iterable[Path]) -> list[Line]:
    """The results of all files; lines that are not JSON (progress, warnings) are passed over."""
    found = []
    for path in paths:
        for line in path.read_text().splitlines():
            if line.startswith("{"):
                with suppress(ValueError):  # one that was cut off
                    found.append(json.loads(line))
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, help="files with lines of JSON")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--check", action="store_true", help="write nothing")
    given = parser.parse_args(arguments)
    before = given.page.read_text()
    if not MARK.search(before):
        parser.error(f"{given.page} has no mark of a table")
    after = filled(before, read(given.results))
    if given.check:
        return int(after != before)
    given.page.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
