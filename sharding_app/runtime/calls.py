"""Who called whom: the chain of entities whose commands led to this one.

An entity handles one command at a time. One that awaits an answer of itself, or of an entity that waits for it, would
wait for ever: such a cycle is found before the call is sent, and named. Whoever only told waits for nothing: it begins a
new chain, marked, and is known there as the sender alone.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token

from sharding_app.errors import WrongContext

TOLD = "~"
"""Stands before an entity that told and does not wait."""

Call = tuple[tuple[str, ...], str, str]
"""The chain that led to an entity, its type and its id."""

_call: ContextVar[Call | None] = ContextVar("sharding_call", default=None)


def chain() -> tuple[str, ...]:
    """Entities whose commands led to the present call, outermost first."""
    call = _call.get()
    if call is None:
        return ()
    called_by, type_name, entity_id = call
    return (*called_by, f"{type_name}/{entity_id}")


def sender() -> tuple[str, str] | None:
    """Type and id of the entity whose command led to the one that runs now."""
    call = _call.get()
    if call is None or not call[0]:
        return None
    type_name, _, entity_id = call[0][-1].removeprefix(TOLD).partition("/")
    return type_name, entity_id


enter: Callable[[Call], Token[Call | None]] = _call.set
"""Everything called from now on is called by this entity, until `leave`: for handlers that are run at once."""
leave: Callable[[Token[Call | None]], None] = _call.reset


@contextlib.contextmanager
def within(called_by: tuple[str, ...], type_name: str, entity_id: str) -> Iterator[None]:
    """Everything called inside is called by this entity."""
    token = _call.set((called_by, type_name, entity_id))
    try:
        yield
    finally:
        _call.reset(token)


def told(called_by: tuple[str, ...]) -> tuple[str, ...]:
    """The chain of what is only told: nobody in it waits."""
    return (TOLD + called_by[-1],) if called_by else ()


def refuse_cycle(called_by: tuple[str, ...], type_name: str, entity_id: str, command: str) -> None:
    """Raise if that entity waits for this very call."""
    target = f"{type_name}/{entity_id}"
    if target in called_by:
        way = " -> ".join((*called_by[called_by.index(target) :], f"{target}.{command}"))
        raise WrongContext(
            f"a cycle of calls would wait for ever: {way}. Use .tell(), or ask from outside",
            code="call_cycle",
        )
