"""One machine, and short ways to write messages and timers."""

from itertools import count

from sharding_app.protocol.delivery.deliveries import BackOff, Deliveries, Message, Send
from sharding_app.protocol.delivery.memory import Memory

BACK_OFF = BackOff(failures=3, first_seconds=1.0, most_seconds=60.0, again_seconds=0.1)


def message(
    name: str, seq: int = 1, *, owner: str = "a", target: str = "b", due: float = 0.0, on_failure: str = ""
) -> Message:
    return Message(
        name, owner, seq, 0, "shop.Target", target, "take", b"", due, on_failure=on_failure or None
    )


def timer(name: str, due: float, *, owner: str = "a", key: str = "closing", every: str = "") -> Message:
    return Message(name, owner, 1, 0, "shop.Owner", owner, "close", b"", due, key=key, every=every or None)


def machine(*, complete: bool = True, memory: Memory | None = None) -> Deliveries:
    numbers = count(1)
    return Deliveries(memory or Memory(), lambda: f"new-{next(numbers)}", BACK_OFF, complete=complete)


def sent(of: Deliveries) -> list[str]:
    """Return the ids of the messages that it sends, and forget all its effects."""
    effects, of.out = of.out, []
    return [each.message.id for each in effects if isinstance(each, Send)]
