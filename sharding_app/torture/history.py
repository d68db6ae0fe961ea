"""The recorded history: one line of JSON for each call, with the moments at which it began and ended.

All times are of one clock, the system's monotonic one, which every process of the machine shares. What a call came to:

`ok`        answered with a value
`rejected`  the entity said no: nothing has changed
`refused`   it was told that it did not get as far as the entity (a full buffer, no host): nothing has changed
`unknown`   nobody can tell whether it took effect: a timeout, a fate that was not learnt
`told`      sent without a wish for an answer: it took effect once or not at all
`failed`    an error that no fault explains
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import msgspec

Outcome = Literal["ok", "rejected", "refused", "unknown", "told", "failed"]
Op = Literal["append", "read", "read_surely", "refuse", "tell"]
NEVER = float("inf")
PATIENT_SECONDS = 20.0
"""How long a patient caller waits: longer than any fault lasts."""


class Call(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One call of one caller. An attempt that is repeated under its command id belongs to the same call."""

    process: int
    "Which load process: calls of one go through one region."
    number: int
    "The order of the calls within the process."
    entity: str
    op: Op
    token: str = ""
    start: float
    end: float | None = None
    outcome: Outcome
    value: tuple[int, int] | None = None
    error: str = ""
    attempts: int = 1
    command_id: str = ""

    @property
    def until(self) -> float:
        """When it had taken effect at the latest, for all that the caller knows."""
        return NEVER if self.end is None or self.outcome in ("unknown", "told") else self.end

    @property
    def appends(self) -> bool:
        return self.op in ("append", "tell")


def given_up(call: Call, patience: float = PATIENT_SECONDS) -> bool:
    """Whether a caller of little patience has stopped to wait: on a busy machine it does, and nothing has failed."""
    timed_out = call.outcome == "unknown" and call.error.startswith("AskTimeout")
    return timed_out and call.end is not None and call.end - call.start < patience / 2


_decode = msgspec.json.Decoder(Call).decode
_encode = msgspec.json.Encoder().encode


def write_line(call: Call) -> bytes:
    return _encode(call) + b"\n"


def read_history(paths: Iterable[Path]) -> list[Call]:
    """Return the calls of all files, in the order in which they began. A line that was cut off is no call's end."""
    calls = []
    for path in paths:
        lines = path.read_bytes().split(b"\n")
        calls += [_decode(line) for line in lines[:-1] if line]
    return sorted(calls, key=lambda call: call.start)


def by_entity(calls: Iterable[Call]) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for call in calls:
        found.setdefault(call.entity, []).append(call)
    return found


def export(calls: Iterable[Call], path: Path) -> None:
    """Write the history as other checkers read it: a list of invocations and completions, in the order of time.

    Each is {"process", "type": "invoke" | "ok" | "fail" | "info", "f", "key", "value", "time"}, time in nanoseconds;
    a process of the list is one that has one call under way at a time, as such checkers assume.
    """
    ends: list[float] = []
    entries: list[tuple[float, int, dict[str, object]]] = []
    for call in calls:
        # The first free lane; one whose call never ended for certain is not free again.
        lane = next((number for number, end in enumerate(ends) if end < call.start), len(ends))
        ends[lane : lane + 1] = [call.until]
        base: dict[str, object] = {"process": lane, "f": call.op, "key": call.entity}
        entries.append((call.start, 0, {**base, "type": "invoke", "value": call.token or None}))
        if call.end is None:
            continue
        kind = {"ok": "ok", "rejected": "fail", "refused": "fail"}.get(call.outcome, "info")
        done = {
            **base,
            "type": kind,
            "value": call.value,
            "token": call.token or None,
            "error": call.error or None,
        }
        entries.append((call.end, 1, done))
    entries.sort(key=lambda entry: entry[:2])
    lines = [
        _encode({**entry, "index": index, "time": int(at * 1e9)})
        for index, (at, _, entry) in enumerate(entries)
    ]
    path.write_bytes(b"[" + b",\n".join(lines) + b"]\n")
