"""Errors for arguments, replies and states that are too large.

A node raises them, and so does a test that runs an entity without a cluster: in the same words.
"""

from sharding_app.errors import NotSerializable
from sharding_app.protocol.ids import EntityId


def arguments_too_large(type_name: str, command: str, size: int, limit: int) -> NotSerializable:
    return NotSerializable(
        f"{type_name}.{command}: the arguments have {size} bytes, more than the {limit} of a message:"
        " send less at a time, or store the data elsewhere and send a reference",
        code="arguments_too_large",
    )


def reply_not_sent(size: int, limit: int) -> NotSerializable:
    """Return the error for a reply of a command that stores nothing."""
    return NotSerializable(
        f"the reply has {size} bytes, more than the {limit} of a message: return less of it at a time",
        code="reply_too_large",
    )


def reply_not_kept(
    type_name: str, command: str, size: int, limit: int, *, partly: bool = False
) -> NotSerializable:
    """Return the error for a reply that is too large to be kept beside the events. `partly`: former
    commits of the command are stored.
    """
    return NotSerializable(
        f"{type_name}.{command}: its reply has {size} bytes, more than {limit}:"
        f" {'no more' if partly else 'nothing'} of the command is stored. Return less of it at a time, or raise"
        " MAX_REPLY_BYTES",
        code="reply_too_large",
    )


def state_too_large(type_name: str, entity: EntityId, size: int, limit: int) -> NotSerializable:
    return NotSerializable(
        f"{type_name} {entity!r}: its state has {size} bytes, more than the {limit} of MAX_STATE_BYTES:"
        " nothing of the command is stored",
        code="state_too_large",
    )
