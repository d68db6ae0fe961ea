"""Read `SHARDING = {...}` of Django's settings into a frozen, checked `Settings`.

Nothing is read at import. The error for an unknown key suggests the right one, the error for a
value of the wrong type names the key, and the error for values that conflict gives the reason.
`override_settings(SHARDING=...)` takes effect at the next `get_settings()`.
"""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from sharding_app.adapters.channels.seal import MIN_KEY_BYTES
from sharding_app.adapters.django.leases import lease_factory
from sharding_app.settings.real_databases import in_tests
from sharding_app.settings.schema import Knob, Settings

MIN_DIFFERENT_BYTES = 8
MEMORY_LAYER = "channels.layers.InMemoryChannelLayer"

CLOCK_DRIFT = 0.1
"The assumed bound on the difference between the clock rates of nodes and server."
FIELDS = {field.name.upper(): field for field in dataclasses.fields(Settings)}
_HINTS = get_type_hints(Settings)
_KINDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    tuple[str, ...]: "a list of strings",
    Mapping[str, int]: "a dict from names to whole numbers",
    Mapping[str, str]: "a dict of strings",
    bool | str: "True, False or the name of a role",
    bool | None: "True or False",
}


class Problem(NamedTuple):
    """One mistake in `SHARDING`, and how to correct it."""

    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.hint})" if self.hint else self.text


def read(raw: object, channel_layers: Mapping[str, object]) -> tuple[Settings, list[Problem]]:
    """Return the settings and all problems; a key with a wrong value gets its default."""
    if not isinstance(raw, Mapping):
        return read({}, channel_layers)[0], [Problem(f"SHARDING must be a dict, not {type(raw).__name__}.")]
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in raw.items():
        if key not in FIELDS:
            problems.append(_unknown(key))
        elif value is None and FIELDS[key].default is None:
            continue
        elif problem := _wrong(key, value):
            problems.append(problem)
        else:
            values[key.lower()] = msgspec.convert(value, _HINTS[key.lower()])
    values.setdefault("channel_layer", "sharding" if "sharding" in channel_layers else "default")
    values.setdefault("lifeline_database", values.get("database", Settings.database))
    result = Settings(**values)
    if result.links == "auto" and not _reaches_others(channel_layers.get(result.channel_layer)):
        result = dataclasses.replace(result, links="direct")
    if clashes := _clashes(result):
        problems += clashes
        result = read({}, channel_layers)[0]
    return result, problems


def _reaches_others(layer: object) -> bool:
    """Tell whether a layer's configuration is there, and is of one that joins processes."""
    return isinstance(layer, Mapping) and layer.get("BACKEND") != MEMORY_LAYER


def _unknown(key: object) -> Problem:
    close = difflib.get_close_matches(str(key).upper(), FIELDS, n=1)
    hint = (
        f"Did you mean {close[0]!r}?"
        if close
        else "The fields of sharding_app.settings.schema.Settings, in capitals, are all keys."
    )
    return Problem(f"SHARDING[{key!r}]: unknown setting.", hint)


def _wrong(key: str, value: object) -> Problem | None:
    hint = _HINTS[key.lower()]
    try:
        converted = msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return Problem(f"SHARDING[{key!r}] must be {_KINDS[hint]}, not {_shown(key, value)}.")
    knob: Knob = FIELDS[key].metadata["knob"]
    if misfit := knob.misfit(converted, seconds=key.endswith("_SECONDS")):
        return Problem(f"SHARDING[{key!r}] {misfit}, not {value!r}.")
    return None


def _shown(key: str, value: object) -> str:
    return (
        type(value).__name__
        if key in ("KEYS", "STEERING_KEYS", "PERSONAL_KEYS", "METRICS_TOKEN")
        else f"{value!r} ({type(value).__name__})"
    )


def _clashes(settings: Settings) -> list[Problem]:
    """Return the conflicts between values."""
    problems: list[Problem] = []
    own, ttl, ping = (
        settings.lease_own_limit_seconds,
        settings.lease_ttl_seconds,
        settings.ping_interval_seconds,
    )
    if own * (1 + CLOCK_DRIFT) > ttl * (1 - CLOCK_DRIFT):
        problems.append(
            Problem(
                f"SHARDING['LEASE_OWN_LIMIT_SECONDS'] ({own:g}) is too close to "
                f"LEASE_TTL_SECONDS ({ttl:g}): a node must stop before its shards move, even if clock rates differ by 10 %.",
                f"Make it at most {math.floor(ttl * (1 - CLOCK_DRIFT) / (1 + CLOCK_DRIFT) * 100) / 100:g}.",
            )
        )
    if ping * 2 > own:
        problems.append(
            Problem(
                f"SHARDING['PING_INTERVAL_SECONDS'] ({ping:g}) is too long for "
                f"LEASE_OWN_LIMIT_SECONDS ({own:g}): one late answer would suspend the node.",
                f"Make it at most {own / 2:g}; a quarter of the limit is a good choice.",
            )
        )
    problems += _stall_problems(settings)
    if settings.encrypt and not settings.keys:
        problems.append(Problem("SHARDING['ENCRYPT'] needs KEYS.", "Add a secret to KEYS."))
    problems += _link_problems(settings)
    if settings.deaf_after_seconds < 2 * settings.echo_interval_seconds:
        problems.append(
            Problem("SHARDING['DEAF_AFTER_SECONDS'] must be at least twice ECHO_INTERVAL_SECONDS.")
        )
    if find_spec("cryptography") is None:
        problems += [
            Problem(
                f"SHARDING[{key!r}] needs the package cryptography.",
                f'Run: pip install "django-sharding-app[{extra}]"',
            )
            for key, extra, wanted in (
                ("ENCRYPT", "encrypt", settings.encrypt),
                ("PERSONAL_KEYS", "personal", settings.personal_keys),
            )
            if wanted
        ]
    problems += _key_problems("PERSONAL_KEYS", settings.personal_keys)
    problems += _key_problems("KEYS", settings.keys)
    problems += _key_problems("STEERING_KEYS", settings.steering_keys)
    if set(settings.keys) & set(settings.steering_keys):
        problems.append(
            Problem(
                "SHARDING['STEERING_KEYS'] and KEYS share a key: a process that may only ask "
                "could then steer.",
                "Generate a separate key for steering, and give it only to nodes and operators' processes.",
            )
        )
    problems += _weight_problems(settings.journals)
    if any(least < 1 for least in settings.min_nodes_of_role.values()):
        problems.append(Problem("SHARDING['MIN_NODES_OF_ROLE']: each number must be at least 1."))
    try:
        settings.link_limits  # noqa: B018
    except ValueError as error:
        problems.append(Problem(f"SHARDING['LINK_…']: {error}."))
    try:
        settings.shard_leases  # noqa: B018
    except ValueError as error:
        problems.append(Problem(f"SHARDING['SHARD_LEASE_…']: {error}."))
    try:
        lease_factory(settings.use_lease)
    except ImproperlyConfigured as error:
        problems.append(Problem(f"SHARDING['USE_LEASE']: {error}"))
    return problems


def _stall_problems(settings: Settings) -> list[Problem]:
    problems: list[Problem] = []
    if settings.loop_stall_limit_seconds < settings.lease_ttl_seconds:
        problems.append(
            Problem("SHARDING['LOOP_STALL_LIMIT_SECONDS'] must not be shorter than LEASE_TTL_SECONDS.")
        )
    if 0 < settings.loop_stall_end_seconds < settings.loop_stall_limit_seconds:
        problems.append(
            Problem(
                "SHARDING['LOOP_STALL_END_SECONDS'] must not be shorter than LOOP_STALL_LIMIT_SECONDS.",
                "Make it longer, or 0 for never.",
            )
        )
    return problems


def _weight_problems(journals: Mapping[str, int]) -> list[Problem]:
    if any(weight < 0 for weight in journals.values()):
        return [Problem("SHARDING['JOURNALS']: no weight is below 0.")]
    if journals and not any(journals.values()):
        return [Problem("SHARDING['JOURNALS']: new shards lie in a journal with a weight above 0: name one.")]
    return []


LINK_FILES = ("certificate", "key", "authority")


def _link_problems(settings: Settings) -> list[Problem]:
    """Return the problems of the settings for direct links."""
    problems = []
    try:
        place = settings.link_place
    except ValueError as error:
        return [
            Problem(f"SHARDING['LINK_ADDRESS'] ({settings.link_address!r}): {error}.", "Write host:port.")
        ]
    if place is not None and not settings.keys:
        problems.append(
            Problem(
                "SHARDING['LINK_ADDRESS'] needs KEYS: without keys, any process of any user that reaches "
                "this node could send it messages.",
                "Add a secret to KEYS.",
            )
        )
    if place is None and (settings.link_bind or settings.link_tls):
        problems.append(Problem("SHARDING['LINK_BIND'] and LINK_TLS have no effect without LINK_ADDRESS."))
    if settings.link_tls and set(settings.link_tls) != set(LINK_FILES):
        problems.append(Problem(f"SHARDING['LINK_TLS'] must name {', '.join(LINK_FILES)}."))
    problems += [
        Problem(f"SHARDING['LINK_TLS'][{name!r}]: there is no file {path!r}.")
        for name, path in settings.link_tls.items()
        if not Path(path).is_file()
    ]
    return problems


_read: tuple[Settings, list[Problem]] | None = None


def layer_entries() -> Mapping[str, Any]:
    """Return the site's CHANNEL_LAYERS. A project without one may say None."""
    return getattr(django_settings, "CHANNEL_LAYERS", None) or {}


def _current() -> tuple[Settings, list[Problem]]:
    global _read
    if _read is None:
        _read = read(getattr(django_settings, "SHARDING", {}), layer_entries())
    return _read


def get_settings() -> Settings:
    """Return the settings of this process; raise ImproperlyConfigured with all problems."""
    settings, problems = _current()
    if problems:
        raise ImproperlyConfigured("\n".join(str(problem) for problem in problems))
    return settings


def quotes_errors() -> bool:
    """Tell whether errors of this process contain the texts of users' exceptions and values."""
    return _current()[0].quotes_errors(otherwise=bool(django_settings.DEBUG) or in_tests())


def get_problems() -> list[Problem]:
    """Return the problems of SHARDING, for the system checks."""
    return _current()[1]


def _forget(*, setting: str, **_: object) -> None:
    global _read
    if setting in ("SHARDING", "CHANNEL_LAYERS"):
        _read = None


setting_changed.connect(_forget, dispatch_uid="sharding_app.settings.load")


def _key_problems(name: str, keys: tuple[str, ...]) -> list[Problem]:
    """Return the problems of the keys. An attacker with one frame can guess keys offline, at full
    speed, so they have to be random."""
    hint = 'Generate one: python -c "import secrets; print(secrets.token_urlsafe(32))"'
    problems = []
    if any(len(key.encode()) < MIN_KEY_BYTES for key in keys):
        problems.append(Problem(f"SHARDING[{name!r}]: a key must have at least {MIN_KEY_BYTES} bytes.", hint))
    elif any(_is_trivial(key) for key in keys):
        problems.append(
            Problem(
                f"SHARDING[{name!r}] has a key that is easy to guess: it has few different characters, "
                "repeats, or is a sequence.",
                hint,
            )
        )
    return problems


def _is_trivial(key: str) -> bool:
    """Tell whether it has few different bytes, repeats a short text, or has equal steps."""
    data = key.encode()
    steps = {after - before for before, after in pairwise(data)}
    repeated = any(data == (data[:size] * len(data))[: len(data)] for size in range(1, len(data) // 2 + 1))
    return len(set(data)) < MIN_DIFFERENT_BYTES or repeated or len(steps) == 1
