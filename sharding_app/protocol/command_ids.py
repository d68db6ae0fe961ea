"""Ids of commands: those that callers give, and those made when a command has to be sent again."""

from sharding_app.protocol.ids import Incarnation

OURS = "?"
"""Prefix of ids made here; no caller may use it. An index of the journal leaves them out."""


def id_of_ours(source: Incarnation, request: int) -> str:
    """Return the id of a command whose caller gave none: the same at its asker, its home and its
    next home.
    """
    return f"{OURS}{source}:{request}"


def is_ours(command_id: str) -> bool:
    return command_id.startswith(OURS)
