"""The history for people: the last lines before a promise broke, and counts of the events."""

from __future__ import annotations

import logging
from asyncio import events
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sharding_app.testing.simulation.loop import SimLoop

KEPT_LINES = 4000
SHOWN_LINES = 60
MISTAKES = frozenset({"internal_error", "job_failed", "lifeline_failed", "link.deliver_error"})
"""Actions that the runtime logs when its own code has failed."""


class Trace:
    """A ring of lines. `note` is cheap: text is made only when it is shown."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lines: deque[tuple[float, str, str | None, str, tuple[object, ...]]] = deque(maxlen=KEPT_LINES)

    def note(self, who: str, about: str | None, text: str, *values: object) -> None:
        """Add a line. `about` names the entity that it concerns; None: it concerns all."""
        self._lines.append((self._now(), who, about, text, values))

    def lines(self, about: str | None = None, count: int = SHOWN_LINES) -> list[str]:
        """Return the last lines, without those that concern another entity."""
        wanted = [line for line in self._lines if about is None or line[2] is None or line[2] == about]
        return [f"{at:9.4f}  {who:<6} {_text(text, values)}" for at, who, _, text, values in wanted[-count:]]


def _text(text: str, values: tuple[object, ...]) -> str:
    return text % values if values else text


class _Listener(logging.Handler):
    """Turns log records into lines, and hands on those that report a mistake of ours."""

    def __init__(self, trace: Trace, mistake: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._trace = trace
        self._mistake = mistake

    def emit(self, record: logging.LogRecord) -> None:
        loop = events._get_running_loop()
        who = loop.process.name if isinstance(loop, SimLoop) else "world"
        arguments = record.args if isinstance(record.args, tuple) else ()
        self._trace.note(who, None, f"log: {record.msg}", *arguments)
        if getattr(record, "action", "") in MISTAKES:
            cause = record.exc_info[1] if record.exc_info else None
            self._mistake(f"{record.getMessage()} ({cause!r})")


@contextmanager
def listening(trace: Trace, mistake: Callable[[str], None]) -> Iterator[None]:
    """Send the runtime's log into the trace, and nowhere else."""
    logger = logging.getLogger("sharding")
    listener = _Listener(trace, mistake)
    before = logger.level, logger.propagate, logger.handlers
    logger.handlers = [listener]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.level, logger.propagate, logger.handlers = before
        logger.setLevel(before[0])


class Coverage:
    """Counts of each fault, message and transition."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.messages: Counter[str] = Counter()
        self.transitions: Counter[tuple[str, str, str]] = Counter()
        "(machine, from, to)"

    def add(self, other: Coverage) -> None:
        self.faults += other.faults
        self.messages += other.messages
        self.transitions += other.transitions

    @contextmanager
    def watching(self, machine: str, cls: type, attribute: str, *, presence: bool = False) -> Iterator[None]:
        """Count the transitions of an attribute of all instances while the block runs.

        `presence`: count only whether it is there.
        """
        before = cls.__dict__.get(attribute)
        kind = _WatchedSlot if hasattr(before, "__set__") else _Watched
        setattr(cls, attribute, kind(self.transitions, machine, attribute, before, presence))
        try:
            yield
        finally:
            if before is None:
                delattr(cls, attribute)
            else:
                setattr(cls, attribute, before)


class _Watched:
    """An attribute that counts its changes. Its value stays in the instance's dict: without a
    `__get__` here Python reads it from there.
    """

    def __init__(
        self,
        counts: Counter[tuple[str, str, str]],
        machine: str,
        attribute: str,
        slot: Any,
        presence: bool,
    ) -> None:
        self._name = _presence if presence else _name
        self._counts = counts
        self._machine = machine
        self._attribute = attribute
        self._slot = slot

    def __set__(self, instance: Any, value: Any) -> None:
        try:
            before = self._name(self._read(instance))
        except (AttributeError, KeyError):
            before = ""
        after = self._name(value)
        if before != after:
            self._counts[self._machine, before, after] += 1
        self._write(instance, value)

    def _read(self, instance: Any) -> Any:
        return instance.__dict__[self._attribute]

    def _write(self, instance: Any, value: Any) -> None:
        instance.__dict__[self._attribute] = value


class _WatchedSlot(_Watched):
    """The same of a slot, in which the value stays."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self._slot.__get__(instance)

    def _read(self, instance: Any) -> Any:
        return self._slot.__get__(instance)

    def _write(self, instance: Any, value: Any) -> None:
        self._slot.__set__(instance, value)


def _name(value: object) -> str:
    """Return a state's name; of other values only whether they are there."""
    if isinstance(value, str):
        return value
    if value is None or value is False:
        return "no"
    return getattr(value, "name", "yes")


def _presence(value: object) -> str:
    return "yes" if value else "no"
