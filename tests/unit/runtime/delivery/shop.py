"""Entities that send messages and set timers, and what their handlers have seen."""

from datetime import timedelta
from typing import ClassVar

from sharding_app import Entity, EventSourced, Rejected, applies, command, event, query
from sharding_app.entities.failure import Failure


@event(name="delivery.took")
class Took:
    text: str


class Owner(EventSourced, name="delivery.Owner"):
    """Sends, and notes what comes back."""

    noted: list[str]

    def __init__(self) -> None:
        self.noted = []

    @applies(Took)
    def _took(self, found: Took) -> None:
        self.noted.append(found.text)

    @command
    def send_to(self, target: str, texts: list[str]) -> None:
        for text in texts:
            self.send(Target.ref(target).take, text)

    @command
    def ask(self, target: str, text: str) -> None:
        self.persist(Took("asked"))
        self.send(Target.ref(target).take, text).reply_to(self.replied).on_failure(self.refused)

    @command
    def tell_memory(self, target: str, text: str) -> None:
        self.send(Passing.ref(target).take, text)

    @command
    def fail_after_sending(self, target: str) -> None:
        self.send(Target.ref(target).take, "never")
        raise Rejected("changed my mind")

    @command
    async def send_large(self, target: str, count: int, at_once: bool) -> None:
        if not at_once:
            await self.persist(Took("first"))
        self.send(Target.ref(target).take, "x" * count)
        if not at_once:
            await self.persist(Took("second"))

    @command
    def ask_for(self, target: str, text: str, times: int) -> None:
        self.send(Target.ref(target).repeat_to, text, times).reply_to(self.remind).on_failure(self.refused)

    @command
    def store_for(self, target: str) -> None:
        Target.ref(target).take.durably("never")

    @command
    async def store_for_later(self, target: str) -> None:
        await Target.ref(target).take.later(timedelta(seconds=1), "never")

    @command(thread=True)
    def store_in_a_thread(self, target: str) -> None:
        Target.ref(target).take.durably("never")

    @command
    def replied(self, number: int) -> None:
        self.persist(Took(f"reply {number}"))

    @command
    def refused(self, failure: Failure) -> None:
        self.persist(Took(f"refused {failure.code} {failure.arguments['text']}"))

    @command
    def step_to(self, target: str, text: str) -> None:
        self.send(Target.ref(target).take_in_steps, text)

    @command
    def tick(self) -> None:
        self.persist(Took("tick"))

    @command
    def repeat(self, seconds: float) -> None:
        self.schedule(self.ref.tick, key="ticking", every=timedelta(seconds=seconds))

    @command
    def remind(self, text: str) -> None:
        self.persist(Took(text))

    @command
    def schedule_in(self, seconds: float, text: str, key: str = "closing") -> None:
        self.schedule(self.ref.remind.bind(text), key=key, after=seconds)

    @command
    def cancel_it(self, key: str = "closing") -> None:
        self.cancel(key)

    @query
    def seen(self) -> list[str]:
        return self.noted


class Target(EventSourced, name="delivery.Target"):
    """Takes texts, unless it is told to fail."""

    failing: ClassVar[int] = 0
    attempts: ClassVar[list[str]] = []
    noted: list[str]

    def __init__(self) -> None:
        self.noted = []

    @applies(Took)
    def _took(self, found: Took) -> None:
        self.noted.append(found.text)

    @command
    def take(self, text: str) -> int:
        cls = type(self)
        cls.attempts.append(text)
        if text == "bad":
            raise Rejected("not that", code="bad_text")
        if cls.failing:
            cls.failing -= 1
            raise RuntimeError("out of order")
        if text != "silent":
            sender = self.context.sender
            self.persist(Took(text if sender is None else f"{text} from {sender.entity_id}"))
        return len(self.noted)

    @command
    async def take_in_steps(self, text: str) -> int:
        await self.persist(Took(f"{text} 1"))
        if type(self).failing:
            raise RuntimeError("out of order")
        await self.persist(Took(f"{text} 2"))
        return 2

    @command
    def repeat_to(self, text: str, times: int) -> str:
        self.persist(Took(text))
        return text * times

    @query
    def seen(self) -> list[str]:
        return self.noted


class Passing(Entity, name="delivery.Passing"):
    """In memory: takes and passes on."""

    taken: ClassVar[list[str]] = []

    @command
    def take(self, text: str) -> None:
        type(self).taken.append(text)

    @command
    def pass_on(self, target: str, text: str) -> None:
        self.send(Target.ref(target).take, text)

    @command
    def rest(self) -> None:
        self.context.passivate()
