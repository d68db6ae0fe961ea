"""A clock with durable timers, and a singleton with a schedule. Each stored event names the process
and the object that wrote it.
"""

import os
from datetime import timedelta
from itertools import count
from typing import Literal

from sharding_app import EventSourced, Singleton, applies, command, event, every, on_start, query

_numbers = count(1)


@event
class Rang:
    key: str
    process: int
    instance: int


class Ringing(EventSourced):
    """Counts what has rung."""

    abstract = True

    def __init__(self) -> None:
        self.rung: list[str] = []
        self.instance = next(_numbers)
        self.started = False

    @on_start
    def begin(self) -> None:
        self.started = True

    def ring(self, key: str) -> None:
        assert self.started
        self.persist(Rang(key, os.getpid(), self.instance))

    @query
    def all(self) -> list[str]:
        return self.rung

    @applies(Rang)
    def on_rang(self, happened: Rang) -> None:
        self.rung.append(happened.key)


class Clock(Ringing):
    @command
    def set(self, key: str, seconds: float, leave: bool = False) -> None:
        """Ring once, after some seconds, whether in memory meanwhile or not."""
        self.schedule(self.ref.rings.bind(key), key=key, after=seconds)
        if leave:
            self.context.passivate()

    @command
    def repeat(self, key: str, seconds: float, missed: Literal["once", "all", "skip"]) -> None:
        self.schedule(self.ref.rings.bind(key), key=key, every=timedelta(seconds=seconds), missed=missed)

    @command
    def unset(self, key: str) -> None:
        self.cancel(key)

    @command
    def rings(self, key: str) -> None:
        self.ring(key)

    @command
    def chime(self) -> None:
        self.ring("chime")


class Digest(Singleton, Ringing):
    """Rings each second."""

    @every(seconds=1)
    @command
    def send_out(self) -> None:
        self.ring("digest")

    @command
    def ring_now(self, key: str) -> None:
        self.ring(key)
