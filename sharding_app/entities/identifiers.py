"""Identifiers: the rules for ids and names, checked where they enter, and how names are derived."""

from __future__ import annotations

import sys
from uuid import UUID

from sharding_app.errors import DeclarationError, InvalidCall, InvalidEntityId, ShardingError, WrongContext
from sharding_app.protocol.command_ids import OURS, is_ours

MAX_ID_BYTES = 512
MAX_COMMAND_ID_BYTES = 255
MAX_KEY_BYTES = 255
MAX_NAME_CHARS = 200


def entity_id(value: str | int | UUID) -> str:
    """Return `value` as an entity id, or raise `InvalidEntityId`."""
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
        raise InvalidEntityId(
            f"an entity id must be a str, int or UUID, not {kind.__qualname__} ({_short(value)})"
        )
    if isinstance(value, str):
        return _checked(str.__str__(value))
    return _number(int(value)) if isinstance(value, int) else str(value)


def _number(value: object) -> str:
    try:
        text = str(value)
    except ValueError as error:  # more digits than Python turns into text
        raise InvalidEntityId(f"an entity id must have at most {MAX_ID_BYTES} bytes") from error
    return _checked(text)


def command_id(value: object) -> str:
    """Return a caller's command id, or raise `InvalidCall`.

    It is stored with the command's events.
    """
    if not isinstance(value, str):
        raise InvalidCall(f"a command id must be a str, not {_short(value)}")
    text = _checked(str.__str__(value), "a command id", InvalidCall, MAX_COMMAND_ID_BYTES)
    if is_ours(text):
        raise InvalidCall(f"a command id must not begin with {OURS!r}, which is reserved: {_short(text)}")
    return text


def id_prefix(value: object) -> str:
    """Return the beginning of ids, or raise `InvalidCall`. It may be empty: all ids begin so."""
    if not isinstance(value, str):
        raise InvalidCall(f"a prefix of ids must be a str, not {_short(value)}")
    return _checked(str.__str__(value), "a prefix of ids", InvalidCall) if value else ""


def timer_key(key: object) -> str:
    """Return the key of a durable timer, or raise `InvalidCall`."""
    if not isinstance(key, str):
        raise InvalidCall(f"the key of a timer must be a str, not {_short(key)}")
    text = _checked(str.__str__(key), "the key of a timer", InvalidCall, MAX_KEY_BYTES)
    if text[0] == "?":
        raise InvalidCall(f"the key of a timer must not begin with '?', which is reserved: {_short(text)}")
    return text


def _checked(
    text: str,
    what: str = "an entity id",
    error: type[ShardingError] = InvalidEntityId,
    most: int = MAX_ID_BYTES,
) -> str:
    if not text:
        raise error(f"{what} must not be empty")
    if "\0" in text:
        raise error(f"{what} must not contain NUL: {_short(text)}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as cause:
        raise error(f"{what} must not contain lone surrogates: {_short(text)}") from cause
    if size > most:
        raise error(f"{what} must have at most {most} bytes of UTF-8, not {size}: {_short(text)}")
    return text


def declared_name(name: object, what: str) -> str:
    """Return an explicit name of a type, event or message, or raise `DeclarationError`."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME_CHARS:
        raise DeclarationError(
            f"the name of {what} must be a str of 1 to {MAX_NAME_CHARS} characters, not {_short(name)}"
        )
    if not name.isprintable() or name != name.strip():
        raise DeclarationError(
            f"the name of {what} must be printable, without leading or trailing spaces: {name!r}"
        )
    if name[0] in "?~":
        raise DeclarationError(f"the name of {what} must not begin with {name[0]!r}, which is reserved")
    return name


def app_label(module: str) -> str:
    """Return the label of the Django app that `module` belongs to, else its top package.

    Labels are known only after Django has read INSTALLED_APPS; asking earlier would bake in a wrong
    name.
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
    """Tell whether Django has read INSTALLED_APPS, so that a name worked out now is right."""
    registry = sys.modules.get("django.apps")
    return registry is not None and bool(registry.apps.apps_ready)


def _short(value: object) -> str:
    text = ascii(value) if not isinstance(value, int) or abs(value) < 10**40 else "a huge int"
    return text if len(text) <= 60 else f"{text[:57]}..."
