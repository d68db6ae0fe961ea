"""Call chains: the entities whose commands led to the present one.

An entity handles one command at a time. One that awaits an answer of itself, or of an entity that
waits for it, would wait for ever. Such a cycle is found before the call is sent, and the error
names it. An entity that only tells waits for nothing: its message begins a new chain, which holds
the sender alone, marked.
"""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar, Token

from sharding_app.errors import WrongContext
from sharding_app.protocol.call import Call

TOLD = "~"
"""Marks an entity that told and does not wait."""

Caller = tuple[tuple[str, ...], str, str]
"""The chain that led to an entity, its type and its id."""

_caller: ContextVar[Caller | None] = ContextVar("sharding_caller", default=None)


def chain() -> tuple[str, ...]:
    """Return the entities whose commands led to the present call, outermost first."""
    caller = _caller.get()
    if caller is None:
        return ()
    called_by, type_name, entity_id = caller
    return (*called_by, f"{type_name}/{entity_id}")


def sender() -> tuple[str, str] | None:
    """Return type and id of the entity whose command led to the present one."""
    caller = _caller.get()
    if caller is None or not caller[0]:
        return None
    type_name, _, entity_id = caller[0][-1].removeprefix(TOLD).partition("/")
    return type_name, entity_id


enter: Callable[[Caller], Token[Caller | None]] = _caller.set
"""Make this entity the caller of all calls until `leave`: for handlers that are run at once."""
leave: Callable[[Token[Caller | None]], None] = _caller.reset


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Make no entity the caller of the calls inside."""
    token = _caller.set(None)
    try:
        yield
    finally:
        _caller.reset(token)


@contextlib.contextmanager
def within(called_by: tuple[str, ...], type_name: str, entity_id: str) -> Iterator[None]:
    """Make this entity the caller of all calls inside."""
    token = _caller.set((called_by, type_name, entity_id))
    try:
        yield
    finally:
        _caller.reset(token)


def told(called_by: tuple[str, ...]) -> tuple[str, ...]:
    """Return the chain for a message that is only told. No entity in it waits."""
    return (TOLD + called_by[-1],) if called_by else ()


def refuse_cycle(call: Call) -> None:
    """Raise if the called entity waits for this very call."""
    chain, target = call.chain, f"{call.type}/{call.entity}"
    if target in chain:
        way = " -> ".join((*chain[chain.index(target) :], f"{target}.{call.command}"))
        raise WrongContext(
            f"a cycle of calls would wait for ever: {way}. Use .tell(), or ask from outside",
            code="call_cycle",
        )
