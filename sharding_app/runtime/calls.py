"""Who called whom: the chain of entities whose commands led to this one.

An entity handles one command at a time. One that awaits an answer of itself, or of an entity that waits for it, would
wait for ever: such a cycle is found before the call is sent, and named.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from sharding_app.errors import WrongContext

_chain: ContextVar[tuple[str, ...]] = ContextVar("sharding_chain", default=())


def chain() -> tuple[str, ...]:
    """Entities whose commands led to the present call, outermost first."""
    return _chain.get()


@contextlib.contextmanager
def within(type_name: str, entity_id: str, called_by: tuple[str, ...]) -> Iterator[None]:
    """Everything called inside is called by this entity."""
    token = _chain.set((*called_by, f"{type_name}/{entity_id}"))
    try:
        yield
    finally:
        _chain.reset(token)


def refuse_cycle(called_by: tuple[str, ...], type_name: str, entity_id: str, command: str) -> None:
    """Raise if that entity waits for this very call."""
    target = f"{type_name}/{entity_id}"
    if target in called_by:
        way = " -> ".join((*called_by[called_by.index(target) :], f"{target}.{command}"))
        raise WrongContext(
            f"a cycle of calls would wait for ever: {way}. Use .tell(), or ask from outside",
            code="call_cycle",
        )
