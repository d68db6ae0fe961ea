"""From the value of a view to what a browser shows: JSON, a text, or HTML of a template."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
from django.template.loader import render_to_string
from django.utils import translation

from sharding_app.entities.codecs.values import enc_hook
from sharding_app.live.topics import Topic

SAFE_INTEGER = 2**53 - 1
"""JavaScript changes larger ones; they are sent as texts."""
_FIXED_BELOW = 21
_FIXED_ABOVE = -6


def plain(value: Any) -> Any:
    """Return a value as JSON has it, without numbers that JavaScript would change."""
    return _safe(msgspec.to_builtins(value, enc_hook=enc_hook, str_keys=True))


def _safe(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _safe(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(each) for each in value]
    if isinstance(value, int) and not -SAFE_INTEGER <= value <= SAFE_INTEGER:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_of(value: Any) -> str:
    """Return the JSON of a plain value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def field_of(value: Any, path: str) -> Any:
    """Return a part of a plain value: ``leader.name``, ``bids.0``. None: there is none."""
    for name in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isascii() and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def text_of(value: Any) -> str:
    """Return a plain value as the script writes it, so that the first look is what follows it."""
    if value is None:
        return ""
    if isinstance(value, float):
        return _number(value)
    return value if isinstance(value, str) else json_of(value)


def _number(value: float) -> str:
    """Write a number as JavaScript does: the same digits, another place for the point."""
    if value == 0:
        return "0"
    sign, digits, exponent = _decimal(value)
    before = exponent + len(digits)
    if len(digits) <= before <= _FIXED_BELOW:
        return f"{sign}{digits}{'0' * (before - len(digits))}"
    if 0 < before <= _FIXED_BELOW:
        return f"{sign}{digits[:before]}.{digits[before:]}"
    if _FIXED_ABOVE < before <= 0:
        return f"{sign}0.{'0' * -before}{digits}"
    rest = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{rest}e{before - 1:+d}"


def _decimal(value: float) -> tuple[str, str, int]:
    """Return sign, digits and exponent of the shortest decimal number that means this one."""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    shift = int(exponent or 0) - len(fraction)
    kept = digits.rstrip("0")
    return "-" if value < 0 else "", kept, shift + len(digits) - len(kept)


def html_of(topic: Topic, value: Any) -> str:
    """Render the topic's template with the value, which is the one that the view returned."""
    context = {"value": value, "entity_id": topic.source.entity}
    with translation.override(topic.language or None):
        return render_to_string(topic.template, context)
