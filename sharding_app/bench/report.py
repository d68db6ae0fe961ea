"""The command's output: one JSON line for each result, or a table at the end; progress beside
it.
"""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TextIO

from sharding_app.bench.result import Result
from sharding_app.operations.console import columns

HEADINGS = {
    "workload": "workload", "in_flight": "in flight", "nodes": "nodes", "ops_per_s": "ops/s", "p50_ms": "p50 ms",
    "p99_ms": "p99 ms", "client_cpu_us": "client us/op", "node_cpu_us": "node us/op",
}  # fmt: skip
"""The columns that most results have; the other values of a result follow them."""
HIDDEN = {"count", "rows_per_op", "commits_per_op", "messages_per_op", "frames_per_op", "max_ms"}
"""In the JSON only, except where a result is about them."""


def json_line(result: Result, facts: Mapping[str, str]) -> str:
    return json.dumps({**result.as_json(), **facts})


def table(results: Sequence[Result], facts: Mapping[str, str], machine: str) -> str:
    shown = [result.as_json() for result in results]
    kept = [name for name in HEADINGS if any(name in each for each in shown)]
    rows = [[HEADINGS[name] for name in kept]]
    for each in shown:
        rest = [
            _named(name, value) for name, value in each.items() if name not in kept and name not in HIDDEN
        ]
        rows.append([_plain(each.get(name)) for name in kept] + [", ".join(rest)])
    server = ", ".join(f"{name}={value}" for name, value in facts.items())
    return "\n".join([*columns(rows, ""), "", f"Server: {server}", f"Machine: {machine}"])


def _plain(value: object) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, (int, float)) else str(value)


def _named(name: str, value: object) -> str:
    if name == "note":
        return str(value)
    if isinstance(value, dict):
        return ", ".join(f"{other} {number:g}" for other, number in value.items())
    return f"{name} {_plain(value)}"


class Progress:
    """One line that changes, on a terminal; else a line for each step."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._begun = time.monotonic()

    def __call__(self, text: str) -> None:
        if self._live:
            self._stream.write(f"\r\x1b[K{time.monotonic() - self._begun:4.0f} s  {text}")
        else:
            self._stream.write(f"{text}\n")
        self._stream.flush()

    def done(self) -> None:
        if self._live:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
