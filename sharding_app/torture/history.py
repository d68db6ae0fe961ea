"""The recorded history: one line of JSON for each call, with the times of its begin and end.

All times are of one clock, the system's monotonic one, which every process of the machine shares.
The outcomes:

`ok`        answered with a value
`rejected`  the entity said no: nothing has changed
`refused`   an error said that it did not reach the entity (a full buffer, no host): nothing has
            changed
`unknown`   it may have taken effect or not: a timeout, an unknown fate
`told`      sent without asking for an answer: it took effect once or not at all
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
"""Time for which a patient caller waits: longer than any fault lasts."""


class Call(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One call of one caller. An attempt that is repeated under its command id belongs to the same
    call.
    """

    process: int
    "The load process. Calls of one process go through one region."
    number: int
    "Order of the call within its process."
    entity: str
    op: Op
    token: str = ""
    start: float
    end: float | None = None
    outcome: Outcome
    value: tuple[int, int] | None = None
    error: str = ""
    timed_out: bool = False
    "The last attempt ended by the caller's own time limit."
    attempts: int = 1
    command_id: str = ""

    @property
    def until(self) -> float:
        """Latest time at which it took effect, as far as the caller knows."""
        return NEVER if self.end is None or self.outcome in ("unknown", "told") else self.end

    @property
    def appends(self) -> bool:
        return self.op in ("append", "tell")


def given_up(call: Call, patience: float = PATIENT_SECONDS) -> bool:
    """Whether a caller of little patience has stopped waiting, as it does on a busy machine.

    Nothing has failed then.
    """
    return call.timed_out and call.end is not None and call.end - call.start < patience / 2


_decode = msgspec.json.Decoder(Call).decode
_encode = msgspec.json.Encoder().encode


def write_line(call: Call) -> bytes:
    return _encode(call) + b"\n"


def read_history(paths: Iterable[Path]) -> list[Call]:
    """Return the calls of all files, ordered by their begin. A line that was cut off is ignored."""
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
    """Write the history for other checkers: a list of invocations and completions, ordered by time.

    Each is {"process", "type": "invoke" | "ok" | "fail" | "info", "f", "key", "value", "time"},
    time in nanoseconds. A process of the list has one call under way at a time, as such checkers
    assume.
    """
    ends: list[float] = []
    entries: list[tuple[float, int, dict[str, object]]] = []
    for call in calls:
        # Take the first free lane. A lane whose call has no certain end never becomes free.
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
