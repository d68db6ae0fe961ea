"""System checks, which find mistakes before they cause failures. docs/checks.md describes each id.

Checks without a database tag read settings and declarations only. Those tagged `database` ask the
server; they run with `check --database` and `migrate`, for the cluster's alias.
"""

import ast
import importlib.metadata
import inspect
import ipaddress
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, assert_never
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core import checks, mail
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.module_loading import import_string

from sharding_app.adapters.django.database import no_commits
from sharding_app.adapters.django.leases import lease_factory
from sharding_app.adapters.postgres import probe
from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.adapters.postgres.errors import LOST, explain
from sharding_app.embedded import started
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import messages, registry
from sharding_app.errors import DeclarationError
from sharding_app.settings.live_updates import check_live_updates as check_live_updates
from sharding_app.settings.load import MEMORY_LAYER, get_problems, get_settings, layer_entries
from sharding_app.settings.schema import Settings

CORE_LAYER = "channels_redis.core.RedisChannelLayer"
PUBSUB_LAYER = "channels_redis.pubsub.RedisPubSubChannelLayer"
CORE_CAPACITY = 100
"The default of channels_redis."

Messages = list[checks.CheckMessage]
Apps = Sequence[AppConfig] | None


def _error(number: str, text: str, hint: str) -> checks.Error:
    return checks.Error(text, hint=hint, id=f"sharding.{number}")


def _warning(number: str, text: str, hint: str) -> checks.Warning:
    return checks.Warning(text, hint=hint, id=f"sharding.{number}")


# -- settings and declarations ---------------------------------------------------------------------


def check_settings(app_configs: Apps = None, **_: Any) -> Messages:
    found: Messages = [_error("E001", each.text, each.hint or "Correct SHARDING.") for each in get_problems()]
    for each in registry.all().values():
        try:
            lease_factory(each.settings.use_lease or "")
        except ImproperlyConfigured as error:
            found.append(
                _error("E001", f"{each.name}: {error}", "Correct use_lease in its ShardingSettings.")
            )
    return found


def check_views(app_configs: Apps = None, **_: Any) -> Messages:
    """Check that the project's `may_watch` is there, and that each view may be watched."""
    settings = _sound_settings()
    if settings is None:
        return []
    if path := settings.may_watch:
        try:
            import_string(path)
        except ImportError as error:
            return [_error("E001", f"SHARDING['MAY_WATCH'] ({path!r}): {error}", "Correct the path.")]
        return []
    return [
        _warning(
            "W014",
            f"{each.name} has views that are shown to no browser: {', '.join(closed)}.",
            "Say who may watch them: def may_watch(cls, user, entity_id, view), or @view(public=True).",
        )
        for each in registry.all().values()
        if hasattr(each.cls.may_watch, "__sharding_default__")
        and (closed := [name for name, view in each.commands.items() if view.is_view and not view.public])
    ]


def check_retention(app_configs: Apps = None, **_: Any) -> Messages:
    """Check that a type that deletes events, or says which ones stay, will delete any."""
    settings = _sound_settings()
    if settings is None:
        return []
    found: Messages = []
    for each in registry.all().values():
        said, merged = each.settings, each.settings.over(settings.type_defaults)
        if each.kind != "event_sourced":
            continue
        if said.delete_events and not (merged.snapshot_every or merged.snapshot_when):
            text = f"{each.name} has delete_events and takes no snapshots, so none of its events are deleted."
            found.append(_warning("W015", text, "Give it snapshot_every or snapshot_when."))
        kept = [name for name in ("keep_events_days", "keep_events") if getattr(said, name) is not None]
        if kept and not merged.delete_events:
            text = f"{each.name} has {' and '.join(kept)} without delete_events, so all of its events stay."
            found.append(
                _warning("W015", text, f"Add delete_events=True, or leave {' and '.join(kept)} out.")
            )
    return found


def check_snapshots(app_configs: Apps = None, **_: Any) -> Messages:
    """Check that snapshots hold what appliers set."""
    settings = _sound_settings()
    if settings is None:
        return []
    found: Messages = []
    for each in registry.all().values():
        merged = each.settings.over(settings.type_defaults)
        if each.kind != "event_sourced" or not (merged.snapshot_every or merged.snapshot_when):
            continue
        try:
            held = None if each.own_snapshot is not None else each.state_types
        except DeclarationError:
            continue  # another check tells it
        if held is None:
            continue
        lost = {
            name: applier.__qualname__
            for applier in each.appliers
            for name in _attributes_set_by(applier)
            if name not in held and not hasattr(inspect.getattr_static(each.cls, name, None), "__set__")
        }
        for name, applier in lost.items():
            text = f"{applier} sets self.{name}, which {each.name} does not annotate: its snapshots lack it."
            hint = f"Annotate it in the class body, '{name}: ...', or compute it from attributes that are."
            found.append(_warning("W016", text, hint))
    return found


def _attributes_set_by(method: Callable[..., Any]) -> list[str]:
    """Return the attributes of `self` that a method's own lines assign; none without its source."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(method)))
    except (OSError, TypeError, SyntaxError):
        return []
    of_self = next(iter(inspect.signature(method).parameters), "self")
    return [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == of_self
    ]


def check_personal(app_configs: Apps = None, **_: Any) -> Messages:
    """Check that there are keys for the personal data of the declared types."""
    settings = _sound_settings()
    if settings is None or settings.personal_keys:
        return []
    try:
        names = [each.name for each in registry.all().values() if each.holds_personal]
    except DeclarationError:
        return []  # another check tells it
    if not names:
        return []
    text = f"{', '.join(names)} have personal data (Personal), and SHARDING['PERSONAL_KEYS'] is empty: it cannot be stored."
    hint = 'Generate a key: python -c "import secrets; print(secrets.token_urlsafe(32))". Keep it secret, and never lose it.'
    return [_error("E015", text, hint)]


def check_databases(app_configs: Apps = None, **_: Any) -> Messages:
    """Check that the aliases exist, are PostgreSQL, commit, log in as one user, and the lifeline's
    is direct.
    """
    settings = _sound_settings()
    if settings is None:
        return []
    found: Messages = []
    for name, alias in {
        "SHARDING['DATABASE']": settings.database,
        "SHARDING['LIFELINE_DATABASE']": settings.lifeline_database,
        **{f"SHARDING['JOURNALS'][{alias!r}]": alias for alias in settings.further_journals},
    }.items():
        if alias not in connections:
            hint = f"Use one of the aliases in DATABASES: {', '.join(sorted(connections))}."
            found.append(_error("E002", f"{name} is {alias!r}, which is not in DATABASES.", hint))
        elif connections[alias].vendor != "postgresql":
            hint = "The app needs PostgreSQL 14 or newer. Use another alias."
            text = f"{name} is {alias!r}, which is {connections[alias].vendor}, not PostgreSQL."
            found.append(_error("E002", text, hint))
    used = {settings.database, settings.lifeline_database, *settings.further_journals}
    used |= {each.database for each in projections.all().values() if each.database is not None}
    for alias in sorted(used & set(connections)):
        if not connections[alias].settings_dict.get("AUTOCOMMIT", True):
            hint = "Leave AUTOCOMMIT out there. For code that needs it off, make another alias of the same database."
            found.append(_error("E016", no_commits(alias), hint))
    if not found and probe.looks_pooled(_conninfo(settings.lifeline_database)):
        hint = (
            "If a pooler listens there, set SHARDING['LIFELINE_DATABASE'] to a direct alias. "
            "Otherwise silence this check."
        )
        text = f"The lifeline's database {settings.lifeline_database!r} uses port 6432, the default port of PgBouncer."
        found.append(_warning("W001", text, hint))
    if not found and (text := _two_users(settings)):
        hint = (
            "Use the same USER in both, or GRANT the role of DATABASE to the other role, so that a node may "
            "see and end the sessions of both."
        )
        found.append(_warning("W010", text, hint))
    return found


def _two_users(settings: Settings) -> str:
    """Return the text of W010 if the two aliases log in as different users."""
    aliases = {"DATABASE": settings.database, "LIFELINE_DATABASE": settings.lifeline_database}
    users = {key: _conninfo(alias).get("user", "") for key, alias in aliases.items()}
    if len(set(users.values())) == 1:
        return ""
    named = " and ".join(f"{aliases[key]!r} as {user or 'the default user'!r}" for key, user in users.items())
    return (
        f"SHARDING's DATABASE and LIFELINE_DATABASE log in as different users: {named}. The outcome of "
        "a commit with `in_transaction=` may then stay unknown."
    )


def check_channel_layer(app_configs: Apps = None, **_: Any) -> Messages:
    """Check that the layer exists, reaches other processes, and uses one Redis.

    With direct links alone, as without a layer, there is nothing to check.
    """
    settings = _sound_settings()
    if settings is None or settings.links == "direct":
        return []
    alias = settings.channel_layer
    layer = layer_entries().get(alias)
    if layer is None:
        hint = (
            f'Add it: CHANNEL_LAYERS = {{"{alias}": {{"BACKEND": "{PUBSUB_LAYER}", "CONFIG": {{"hosts": '
            '[{"address": "redis://127.0.0.1:6379", "socket_timeout": None}]}}}.'
        )
        return [
            _error("E003", f"CHANNEL_LAYERS has no {alias!r}, which carries the cluster's messages.", hint)
        ]
    backend, options = layer.get("BACKEND", ""), layer.get("CONFIG") or {}
    if backend == MEMORY_LAYER:
        hint = "Use a layer of channels_redis. Tests use an in-memory cluster anyway."
        text = f"CHANNEL_LAYERS[{alias!r}] is in memory: it does not reach other processes"
        if max(settings.min_nodes, *settings.min_nodes_of_role.values(), 0) > 1:
            return [_error("E004", f"{text}, and more than one node is expected.", hint)]
        return [_warning("W002", f"{text}, so web processes and nodes do not meet.", hint)]
    return [*_redis_layer(alias, backend, options, settings)]


def _redis_layer(
    alias: str, backend: str, options: Mapping[str, Any], settings: Settings
) -> Iterator[checks.CheckMessage]:
    hosts = options.get("hosts") or []
    if backend == CORE_LAYER and len(hosts) > 1:
        text = f"CHANNEL_LAYERS[{alias!r}] uses {len(hosts)} Redis hosts, with which the core layer loses messages."
        hint = "It sends to one host and receives from another. Use one host, one Sentinel master, or the pubsub layer."
        yield _error("E005", text, hint)
    if backend == CORE_LAYER and int(options.get("capacity", CORE_CAPACITY)) < settings.link_window_frames:
        text = f"CHANNEL_LAYERS[{alias!r}] has a capacity below SHARDING['LINK_WINDOW_FRAMES']."
        hint = f'Set "capacity" to {10 * settings.link_window_frames} or more. Refused messages are sent again, which delays them.'
        yield _warning("W004", text, hint)
    if (
        backend in {CORE_LAYER, PUBSUB_LAYER}
        and _redis_gives_up()
        and not all(map(_names_a_timeout, hosts or [None]))
    ):
        text = f"CHANNEL_LAYERS[{alias!r}] does not set socket_timeout; redis-py 8.0 and later default to 5 seconds."
        hint = (
            "Consumers on this layer, except nodes, end with a TimeoutError when nothing arrives for that time. Write "
            'the host as {"address": "redis://...", "socket_timeout": None}.'
        )
        yield _warning("W003", text, hint)


def _redis_gives_up() -> bool:
    try:
        version = importlib.metadata.version("redis")
    except importlib.metadata.PackageNotFoundError:
        return False
    return int(version.split(".")[0]) >= 8


def _names_a_timeout(host: object) -> bool:
    return isinstance(host, Mapping) and "socket_timeout" in host


def check_types(app_configs: Apps = None, **_: Any) -> Messages:
    types = [
        _error(
            "E006",
            f"Two classes are the entity type {each.name!r}: {each.kept} and {each.refused}. The second is not hosted.",
            'Rename one, or set its name: `name = "…"` in the class body.',
        )
        for each in registry.duplicates()
    ]
    same = [
        _error(
            "E006",
            f"Two classes are the message {each.name!r}: {each.kept} and {each.refused}. The second would arrive as the first.",
            'Rename one, or set its name: `@message(name="…")`.',
        )
        for each in messages.duplicates()
    ]
    return [*types, *same]


def check_platform(app_configs: Apps = None, **_: Any) -> Messages:
    if os.name != "nt":
        return []
    hint = "Run the project in WSL, which works as Linux does."
    return [_error("E007", "Nodes do not run on Windows.", hint)]


def _has_readable_links(settings: Settings) -> bool:
    """Whether other machines connect directly, over connections that the network can read."""
    if settings.links == "channel_layer" or settings.link_place is None:
        return False
    return not (settings.encrypt or settings.link_tls or _is_here(settings.link_place[0]))


def check_clear_text(app_configs: Apps = None, **_: Any) -> Messages:
    """Check that the network cannot read the traffic to and from the servers."""
    settings = _sound_settings()
    if settings is None or django_settings.DEBUG:
        return []
    found: Messages = []
    alias = settings.channel_layer
    layer = layer_entries().get(alias) or {}
    hosts = (layer.get("CONFIG") or {}).get("hosts") or []
    if settings.links != "direct" and not settings.encrypt and any(map(_is_readable_redis, hosts)):
        text = f"CHANNEL_LAYERS[{alias!r}] is redis:// on another machine, and SHARDING['ENCRYPT'] is off."
        hint = "KEYS only authenticate messages. Use rediss://, or set ENCRYPT, so that the network cannot read payloads."
        found.append(_warning("W012", text, hint))
    if _has_readable_links(settings):
        text = (
            f"SHARDING['LINK_ADDRESS'] is {settings.link_address!r}, and neither ENCRYPT nor LINK_TLS is set."
        )
        hint = "KEYS only authenticate messages. Set one of them, so that the network cannot read payloads."
        found.append(_warning("W012", text, hint))
    nodes_use = {settings.database, settings.lifeline_database, *settings.further_journals}
    for alias in nodes_use & set(connections):
        way = _conninfo(alias) if connections[alias].vendor == "postgresql" else {}
        if not _is_here(str(way.get("host", ""))) and way.get("sslmode") not in {"verify-full", "verify-ca"}:
            text = f"The connection to the database {alias!r} is not verified: its sslmode is {way.get('sslmode', 'prefer')!r}."
            hint = 'Add "OPTIONS": {"sslmode": "verify-full"}, or silence this check if a private network protects the connection.'
            found.append(_warning("W013", text, hint))
    return found


def _is_readable_redis(host: object) -> bool:
    if isinstance(host, Mapping) and "address" not in host:
        names = [host.get("host", ""), *(each[0] for each in host.get("sentinels", ()))]
        is_sealed = host.get("ssl") or "connection_class" in host
        return not is_sealed and not all(_is_here(str(each)) for each in names)
    address = host.get("address") if isinstance(host, Mapping) else host
    if isinstance(address, tuple | list) and address:
        return not _is_here(str(address[0]))
    if not isinstance(address, str):
        return False
    parts = urlsplit(address)
    return parts.scheme == "redis" and not _is_here(parts.hostname or "")


def _is_here(host: str) -> bool:
    """Tell whether a host is this machine: its loopback, or a socket in its file system."""
    try:
        return (
            host in ("", "localhost") or host.startswith(("/", "@")) or ipaddress.ip_address(host).is_loopback
        )
    except ValueError:
        return False


def check_deployment(app_configs: Apps = None, **_: Any) -> Messages:
    settings = _sound_settings()
    if settings is None or settings.keys or django_settings.DEBUG:
        return []
    text = (
        "SHARDING['KEYS'] is empty. A client of the channel layer's Redis, and a process of the same user on a node's "
        "machine, can read replies, send commands to every entity, move shards and drain nodes. Nodes refuse "
        "requests to erase entities and to shut down."
    )
    hint = 'Generate a key: python -c "import secrets; print(secrets.token_urlsafe(32))". Keep it secret.'
    return [_warning("W005", text, hint)]


# -- the server ------------------------------------------------------------------------------------


def check_server(app_configs: Apps = None, *, databases: Sequence[str] | None = None, **_: Any) -> Messages:
    """Check version, durability, and that the connections of nodes are direct."""
    settings = _sound_settings()
    if settings is None or any(each.level >= checks.ERROR for each in check_databases()):
        return []
    found: Messages = []
    asked = set(databases or ())
    if settings.database in asked:
        found += _asking(settings.database, _server)
    if asked & {settings.database, settings.lifeline_database}:
        found += _asking(settings.lifeline_database, _way)
    for alias in settings.further_journals:
        if alias in asked:
            found += [*_asking(alias, _server), *_asking(alias, _way_to_journal)]
    return found


def _conninfo(alias: str) -> dict[str, Any]:
    return from_django_settings(connections[alias].settings_dict)


def _asking(alias: str, look: Callable[[str, dict[str, Any]], Messages]) -> Messages:
    try:
        return look(alias, from_django_settings(started(connections[alias].settings_dict)))
    except LOST as error:
        hint = "Start the server, or correct DATABASES. The other database checks did not run."
        return [_error("E008", f"The database {alias!r} cannot be reached: {explain(error)}.", hint)]


def _server(alias: str, conninfo: dict[str, Any]) -> Messages:
    facts = probe.server_facts(conninfo)
    if facts.version_number < probe.OLDEST_VERSION:
        text = f"The database {alias!r} is PostgreSQL {facts.version}."
        return [
            _error(
                "E009", text, "The app needs PostgreSQL 14 or newer, which ends the sessions of frozen nodes."
            )
        ]
    found: Messages = []
    if facts.standby:
        text = f"The database {alias!r} is a standby: nothing can be written."
        found.append(_error("E014", text, "Use the primary in DATABASES."))
    if not facts.fsync:
        text = (
            f"fsync is off on the server of {alias!r}: a crash of that machine can lose acknowledged events."
        )
        hint = "Set fsync = on in postgresql.conf and reload the server."
        found.append((_warning if _under_test() else _error)("E010", text, hint))
    if facts.encoding != "UTF8":
        text = f"The database {alias!r} uses the encoding {facts.encoding}, which cannot store every entity id and event."
        found.append(_error("E012", text, "Use a database created with ENCODING 'UTF8'."))
    if not facts.full_page_writes:
        text = f"full_page_writes is off on the server of {alias!r}: a crash can leave torn pages in the journal."
        hint = "Set full_page_writes = on, unless the file system never tears pages."
        found.append(_warning("W006", text, hint))
    # Missing tables are no finding: this runs before `migrate` makes them.
    schema = probe.schema_facts(conninfo)
    hint = "A trigger was dropped or disabled, perhaps for a restore. Enable it, or migrate sharding to zero and back."
    if unfenced := schema.unfenced_tables:
        text = f"Tables of {alias!r} without their fence: {', '.join(unfenced)}. Two nodes could write one entity."
        found.append(_error("E013", text, hint))
    if lost := schema.lost_triggers:
        text = (
            f"Triggers of {alias!r} are missing or off: {', '.join(lost)}. Messages and timers of a type would stay "
            "undelivered, or its events find no partition."
        )
        found.append(_error("E013", text, hint))
    if filtered := schema.filtered_tables:
        text = (
            f"Row-level security would leave out rows of {', '.join(filtered)} for the role of {alias!r}. Nodes and commands "
            "refuse to read there."
        )
        hint = f"ALTER TABLE {filtered[0]} DISABLE ROW LEVEL SECURITY; or ALTER ROLE ... BYPASSRLS. Give rights by GRANT instead."
        found.append(_error("E017", text, hint))
    return found


def _way(alias: str, conninfo: dict[str, Any]) -> Messages:
    hint = "Set SHARDING['LIFELINE_DATABASE'] to an alias that connects directly to PostgreSQL."
    match probe.way_to(conninfo):
        case "transaction pooler":
            text = f"The lifeline's database {alias!r} is reached through a transaction pooler, where locks do not work."
            return [_error("E011", text, hint)]
        case "session pooler":
            text = f"The lifeline's database {alias!r} is reached through a session pooler or a proxy."
            return [_warning("W007", text, f"The end of a node is then noticed late, or not at all. {hint}")]
        case "direct":
            return []
        case way:
            assert_never(way)


def _way_to_journal(alias: str, conninfo: dict[str, Any]) -> Messages:
    if probe.way_to(conninfo) != "transaction pooler":
        return []
    text = f"The journal {alias!r} is reached through a transaction pooler: nodes need sessions of their own there."
    return [_error("E011", text, "Let the alias in SHARDING['JOURNALS'] connect directly to PostgreSQL.")]


def _under_test() -> bool:
    """Tell whether Django's test environment is set up: test servers may run without fsync."""
    return hasattr(mail, "outbox")


def _sound_settings() -> Settings | None:
    """Return the settings; None if E001 reports errors, after which other checks would only
    confuse.
    """
    return None if get_problems() else get_settings()
