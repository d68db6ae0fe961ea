"""Types that keep nothing in the journal: a remembered one, and a singleton with a schedule.

The tokens of an object are its state, as of all others, and end with it. The first one names its
life. No two objects have the same one, so an answer shows which object has given it. What they note
is judged in `memory_checker`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator

from sharding_app.entities.base import Singleton
from sharding_app.entities.handlers import command, every
from sharding_app.entities.registry import registry
from sharding_app.entities.settings import ShardingSettings
from sharding_app.testing.simulation import workload
from sharding_app.testing.simulation.message_checker import seconds_of
from sharding_app.testing.simulation.schedules import DAY_AT, TICK_SECONDS
from sharding_app.testing.simulation.senders import CLASSES, Echo
from sharding_app.testing.simulation.workload import (
    ROLE,
    ZONE,
    Book,
    Quit,
    ends,
    made_of,
    seen,
    singleton,
    told,
)

SEEDS = (49, 52, 55, 57, 66, 74, 79, 81, 82, 87, 89, 95)
"""Of 96 seeds those with these types: of both kinds, all with durable messages. Some have resizes,
closings, archives, workers or further journals too, and none has projections.
"""
LAMPS = 3


class Kept:
    """The result of a `keep` that waits for nothing."""

    def __await__(self) -> Generator[None, None, None]:
        return iter(())  # type: ignore[return-value]


# These classes are for virtual clusters only: a real process must not find them among its types.
with registry.isolated():

    class Memo(Book):
        """Notes tokens in its object alone."""

        abstract = True

        def __init__(self) -> None:
            super().__init__()
            if workload.observer is not None:
                self.tokens = [workload.observer.memory.life_begins(self)]

        def keep(self, *tokens: str) -> Awaitable[None]:
            for token in tokens:
                self.tokens.append(token)
                if workload.observer is not None:
                    workload.observer.memory.notes(self, token)
            return Kept()

        @command
        def fail(self, token: str) -> int:
            """Change the state and fail: the next message finds a new object."""
            with seen(self):
                self.tokens.append(token)
                raise ZeroDivisionError(token)

        @command
        def quit(self) -> tuple[int, str]:
            with seen(self):
                ends(self, "quit")
                self.context.stop()
                return told(self)

    class Lamp(Memo, Echo, name="sim.Lamp"):
        """Remembered: once it is lit, it burns until it goes to rest."""

        settings = ShardingSettings(number_of_shards=2, remember_entities=True)

        @command
        def rest(self) -> tuple[int, str]:
            with seen(self):
                ends(self, "rest")
                self.context.passivate()
                return told(self)

        @command
        def set_clock(self, token: str) -> str:
            """Set a timer, each time as another one. Return its token."""
            with seen(self):
                if workload.observer is not None:
                    token = workload.observer.messages.sets(self, token)
                self.schedule(self.ref.take.bind(token), key=token, after=seconds_of(token))
                return token

    class Bell(Singleton, Memo, name="sim.Bell"):
        """A singleton with a schedule, whose firings store nothing."""

        settings = ShardingSettings(
            number_of_shards=1, role=ROLE, passivate_after_seconds=0, stop_message=Quit()
        )

        async def receive(self, message: object) -> object:
            if isinstance(message, Quit):
                with seen(self):
                    ends(self, "terminated")
                    self.context.stop()
            return None

        def rings(self, name: str) -> None:
            with seen(self):
                if workload.observer is not None:
                    workload.observer.schedules.is_handled(name)

        @every(seconds=TICK_SECONDS)
        @command
        def tick(self) -> None:
            self.rings("tick")

        @every(day_at=DAY_AT, tz=ZONE)
        @command
        def begin_the_day(self) -> None:
            self.rings("begin_the_day")


LAMP, BELL = made_of(Lamp), singleton(made_of(Bell))
NAMES = frozenset({LAMP.name, BELL.name})


def is_in_memory(name: str) -> bool:
    """Tell by its name whether an entity keeps nothing in the journal."""
    return name.partition("/")[0] in NAMES


CLASSES[LAMP.name] = Lamp  # others send it messages, too
