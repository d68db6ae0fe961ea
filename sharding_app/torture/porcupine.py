"""A second judge: Porcupine, a third-party checker of linearizability, built in `tools/porcupine`.

Its answer has to be that of `linear`, which reads the same operations.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from sharding_app.torture.history import NEVER, Call, by_entity
from sharding_app.torture.linear import operations_of

NANOSECONDS = 1e9
SECONDS = 600.0
"""The program gives up after a tenth of this time."""


class Disagreement(AssertionError):
    """Porcupine finds a history illegal that our own judge has passed, or cannot be run."""


class Line(msgspec.Struct):
    """One operation, as the program reads it."""

    entity: str
    token: str
    start: int
    end: int | None
    value: tuple[int, int] | None


class Verdict(msgspec.Struct):
    """The program's answer. Undecided histories took too long."""

    linearizable: int
    illegal: list[str]
    undecided: list[str]


def lines_of(calls: Iterable[Call]) -> list[Line]:
    """Return the operations of all entities, without calls that changed nothing and show
    nothing.
    """
    found = []
    for entity, history in by_entity(calls).items():
        for each in operations_of(history):
            end = None if each.end == NEVER else int(each.end * NANOSECONDS)
            found.append(Line(entity, each.token, int(each.start * NANOSECONDS), end, each.value))
    return found


def judge(program: Path, calls: Iterable[Call], place: Path) -> Verdict:
    """Run the program on a history. Raises Disagreement if it fails."""
    file = place / "operations.jsonl"
    file.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines_of(calls)))
    # A name without a folder would be looked up on the PATH.
    done = subprocess.run(
        [program.absolute(), file],
        capture_output=True,
        check=False,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise Disagreement(f"{program} ended with {done.returncode}: {done.stderr.decode(errors='replace')}")
    return msgspec.json.decode(done.stdout, type=Verdict)


def check(program: Path, calls: Iterable[Call], place: Path) -> Verdict:
    """Judge a history that our own judge has passed. Raises Disagreement."""
    verdict = judge(program, calls, place)
    if verdict.illegal:
        raise Disagreement(f"Porcupine finds no order for the calls of {', '.join(verdict.illegal[:6])}")
    return verdict


def opinion(program: Path, calls: Iterable[Call], place: Path) -> str:
    """Return the program's answer on a history that our own judge has found wrong, in words."""
    try:
        verdict = judge(program, calls, place)
    except (Disagreement, OSError, ValueError, subprocess.SubprocessError) as error:
        return f"Porcupine cannot judge it: {error}"
    if verdict.illegal:
        return f"Porcupine finds no order either for the calls of {', '.join(verdict.illegal[:6])}"
    undecided = f", and {len(verdict.undecided)} undecided" if verdict.undecided else ""
    return f"Porcupine finds an order for the calls of {verdict.linearizable} entities{undecided}"
