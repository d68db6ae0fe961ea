"""Names and ids: what may be one, and how it is derived. Checked where it enters, so that nothing behind checks again."""

from __future__ import annotations

import sys
from uuid import UUID

from sharding_app.core.command_ids import OURS, is_ours
from sharding_app.errors import BadCall, BadEntityId, DeclarationError, ShardingError, WrongContext

MAX_ID_BYTES = 512
MAX_COMMAND_ID_BYTES = 255
MAX_NAME_CHARS = 200


def entity_id(value: str | int | UUID) -> str:
    """`value` as an entity id, or `BadEntityId`."""
    kind = type(value)
    if kind is str:
        text: str = value  # type: ignore[assignment]
        # Short ASCII is the usual case: isprintable rules out NUL at once.
        if text.isascii() and text.isprintable() and 0 < len(text) <= MAX_ID_BYTES:
            return text
        return _checked(text)
    if kind is int or kind is UUID:
        return _number(value) if kind is int else str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int, UUID)):
        raise BadEntityId(f"an entity id is a str, int or UUID, not {kind.__qualname__} ({_short(value)})")
    if isinstance(value, str):
        return _checked(str.__str__(value))
    return _number(int(value)) if isinstance(value, int) else str(value)


def _number(value: object) -> str:
    try:
        text = str(value)
    except ValueError as error:  # more digits than Python turns into text
        raise BadEntityId(f"an entity id has at most {MAX_ID_BYTES} bytes") from error
    return _checked(text)


def command_id(value: object) -> str:
    """A caller's command id, or `BadCall`: it is stored with the command's events."""
    if not isinstance(value, str):
        raise BadCall(f"a command id is a text, not {_short(value)}")
    text = _checked(str.__str__(value), "a command id", BadCall, MAX_COMMAND_ID_BYTES)
    if is_ours(text):
        raise BadCall(
            f"a command id does not begin with {OURS!r}: those are the framework's own ({_short(text)})"
        )
    return text


def _checked(
    text: str,
    what: str = "an entity id",
    error: type[ShardingError] = BadEntityId,
    most: int = MAX_ID_BYTES,
) -> str:
    if not text:
        raise error(f"{what} cannot be empty")
    if "\0" in text:
        raise error(f"{what} cannot contain NUL: {_short(text)}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as cause:
        raise error(f"{what} cannot contain lone surrogates: {_short(text)}") from cause
    if size > most:
        raise error(f"{what} has at most {most} bytes of UTF-8, this one has {size}: {_short(text)}")
    return text


def declared_name(name: object, what: str) -> str:
    """An explicit name of a type, event or message, or `DeclarationError`."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARS:
        raise DeclarationError(
            f"the name of {what} is a text of 1 to {MAX_NAME_CHARS} characters, not {_short(name)}"
        )
    if not name.isprintable() or name != name.strip():
        raise DeclarationError(f"the name of {what} is printable, without outer spaces: {name!r}")
    if name[0] in "?~":
        raise DeclarationError(
            f"the name of {what} does not begin with {name[0]!r}, which has a meaning of its own"
        )
    return name


def app_label(module: str) -> str:
    """The label of the Django app that `module` belongs to, else its top package.

    Labels are known only after Django has read INSTALLED_APPS; asking earlier would bake in a wrong name.
    """
    registry = sys.modules.get("django.apps")
    if registry is not None:
        apps = registry.apps
        if apps.apps_ready:
            config = apps.get_containing_app_config(module)
            if config is not None:
                return str(config.label)
        elif sys.modules["django.conf"].settings.configured and apps.app_configs:
            raise WrongContext(
                "entity names are known once Django has loaded its apps: call django.setup() first"
            )
    return module.partition(".")[0]


def labels_are_known() -> bool:
    """Whether Django has read INSTALLED_APPS, so that a name worked out now is the right one."""
    registry = sys.modules.get("django.apps")
    return registry is not None and bool(registry.apps.apps_ready)


def _short(value: object) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge int"
    return text if len(text) <= 60 else f"{text[:57]}..."
