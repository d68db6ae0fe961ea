"""One figure of a benchmark: a line of JSON for scripts, a row of the table for people."""

import dataclasses
from collections.abc import Sequence
from typing import Any


@dataclasses.dataclass(kw_only=True)
class Result:
    """Figures of one measurement. Only `workload` is always there; the others as they apply."""

    workload: str
    in_flight: int | None = None
    nodes: int | None = None
    entities: int | None = None
    ops_per_s: float | None = None
    p50_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    count: int | None = None
    "Number of operations, or of moved shards, behind the figures."
    failed: int | None = None
    rejected: int | None = None
    "Calls that were refused at once for lack of room."
    client_cpu_us: float | None = None
    "CPU time of the client's process for each operation, in microseconds."
    node_cpu_us: float | None = None
    "The same of all nodes together."
    bytes_per_entity: float | None = None
    node_mb: float | None = None
    "Resident memory of the largest node, in megabytes, at the end."
    node_mb_most: float | None = None
    "The same, at its most."
    client_mb: float | None = None
    "Resident memory of the client that is measured, at the end."
    browsers: int | None = None
    first_ms: float | None = None
    last_ms: float | None = None
    "Until the first, and the last, of these has a value: medians over all values."
    web_cpu_us: float | None = None
    "CPU time of the web process for each message to a browser."
    balanced_s: float | None = None
    cpu_percent: float | None = None
    "CPU time of the nodes, in percent of one core."
    node_rows_per_s: float | None = None
    "Events that the nodes stored each second, of all clients together."
    queries_per_s: float | None = None
    messages_per_op: float | None = None
    frames_per_op: float | None = None
    rows_per_op: float | None = None
    commits_per_op: float | None = None
    ratio: dict[str, float] | None = None
    "Ratio to the measurement beside it: the bare probe, or the same work done with Django's ORM."
    note: str | None = None

    def timed(self, seconds: Sequence[float]) -> "Result":
        """Note how long the operations took, if there was any."""
        if not seconds:
            return self
        ordered = sorted(seconds)
        self.p50_ms = ordered[len(ordered) // 2] * 1e3
        self.p99_ms = ordered[int(len(ordered) * 0.99)] * 1e3
        self.max_ms = ordered[-1] * 1e3
        return self

    def as_json(self) -> dict[str, Any]:
        return {
            name: _rounded(value) for name, value in dataclasses.asdict(self).items() if value is not None
        }


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if not isinstance(value, float):
        return value
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")
