"""Each system check: silent on a sound project, and heard when what it is about is wrong."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core import checks as django_checks
from django.core import mail
from django.core.checks import CheckMessage
from django.core.management import call_command
from django.db.utils import ConnectionHandler
from django.test import override_settings

from project.settings.urls import database
from sharding_app import (
    DurableState,
    EventSourced,
    Personal,
    Projection,
    ShardingSettings,
    applies,
    checks,
    event,
    on,
    view,
)
from sharding_app import message as declare_message
from sharding_app.adapters.postgres import probe
from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.adapters.postgres.probe import SchemaFacts
from sharding_app.embedded import OwnPostgres
from sharding_app.entities import identifiers
from sharding_app.entities.projections import projections
from sharding_app.entities.registry import messages, registry
from sharding_app.settings.load import MEMORY_LAYER, get_settings
from tests.integration.checks.pooler import Pooler

PAGE = Path(__file__).resolve().parents[3] / "docs" / "checks.md"
POSTGRES = {"ENGINE": "django.db.backends.postgresql", "NAME": "x"}
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}


def ids(messages: list[CheckMessage]) -> list[str]:
    for message in messages:
        assert message.hint
    return [str(message.id) for message in messages]


def layer(backend: str, **config: Any) -> dict[str, Any]:
    return {"default": {"BACKEND": backend, "CONFIG": config}}


HOST = {"address": "redis://127.0.0.1:1", "socket_timeout": None}


Databases = Callable[[dict[str, Any]], ConnectionHandler]


@pytest.fixture
def databases(monkeypatch: pytest.MonkeyPatch) -> Databases:
    """Put other DATABASES in the place of the project's."""

    def use(configured: dict[str, Any]) -> ConnectionHandler:
        handler = ConnectionHandler(configured)
        monkeypatch.setattr(checks, "connections", handler)
        return handler

    return use


@pytest.fixture
def no_tests_types() -> Iterator[None]:
    """Leave out the types that other modules of tests declare."""
    with registry.isolated():
        for each in list(registry.all().values()):
            if each.cls.__module__.startswith("tests."):
                registry.discard(each)
        yield


def test_the_demo_is_sound(no_tests_types: None) -> None:
    call_command("check", fail_level="WARNING")


def test_e001_a_wrong_setting_silences_the_rest() -> None:
    with override_settings(SHARDING={"DATABSE": "x"}, CHANNEL_LAYERS={}):
        [message] = checks.check_settings()
        assert ids([message]) == ["sharding.E001"]
        assert "Did you mean 'DATABASE'?" in str(message.hint)
        assert checks.check_channel_layer() == []
        assert checks.check_databases() == []
        assert checks.check_server(databases=["default"]) == []
        assert checks.check_deployment() == []


def test_a_project_may_have_no_channel_layers() -> None:
    with override_settings(CHANNEL_LAYERS=None, SHARDING={}):
        assert checks.check_settings() == checks.check_channel_layer() == []
        assert get_settings().links == "direct"
    with override_settings(CHANNEL_LAYERS=None, SHARDING={"LINKS": "channel_layer"}):
        assert ids(checks.check_channel_layer()) == ["sharding.E003"]


def test_e002_names_a_further_journal() -> None:
    with override_settings(SHARDING={"JOURNALS": {"b": 1}}):
        (message,) = checks.check_databases()
        assert message.msg == "SHARDING['JOURNALS']['b'] is 'b', which is not in DATABASES."


def test_e002_an_alias_that_is_missing_or_no_postgres(databases: Databases) -> None:
    databases({"default": SQLITE, "journal": POSTGRES})
    with override_settings(SHARDING={}):
        assert ids(checks.check_databases()) == ["sharding.E002", "sharding.E002"]
    with override_settings(SHARDING={"DATABASE": "jurnal"}):
        messages = checks.check_databases()
        assert "default, journal" in str(messages[0].hint)
    with override_settings(SHARDING={"DATABASE": "journal"}):
        assert checks.check_databases() == []
    with override_settings(SHARDING={"DATABASE": "journal", "LIFELINE_DATABASE": "default"}):
        [message] = checks.check_databases()
        assert "LIFELINE_DATABASE" in message.msg
        assert "sqlite" in message.msg


def test_e016_a_database_without_commits(databases: Databases) -> None:
    manual = {**POSTGRES, "AUTOCOMMIT": False}
    databases({"default": POSTGRES, "manual": manual, "unused": manual, "reports": manual})
    with override_settings(SHARDING={}):
        assert checks.check_databases() == []
    with override_settings(SHARDING={"JOURNALS": {"default": 1, "manual": 1}}):
        [message] = checks.check_databases()
        assert ids([message]) == ["sharding.E016"]
        assert "DATABASES['manual']" in message.msg
    with override_settings(SHARDING={}), registry.isolated(), projections.isolated():

        @event(name="checks.Happened")
        class Happened: ...

        class Source(EventSourced, name="checks.Source"):
            @applies(Happened)
            def on_happened(self, happened: Happened) -> None: ...

        class Elsewhere(Projection, name="checks.Elsewhere"):
            source = Source
            database = "reports"

            @on(Happened)
            def happened(self, happened: object) -> None: ...

        assert ids(checks.check_databases()) == ["sharding.E016"]


def test_w001_poolers_usual_port(databases: Databases) -> None:
    databases({"default": {**POSTGRES, "PORT": 6432}, "direct": {**POSTGRES, "PORT": "5432"}})
    with override_settings(SHARDING={}):
        assert ids(checks.check_databases()) == ["sharding.W001"]
        assert set(ids(checks.check_server(databases=["default"]))) == {"sharding.E008"}, "none listens there"
    with override_settings(SHARDING={"LIFELINE_DATABASE": "direct"}):
        assert checks.check_databases() == []


def test_w010_two_users(databases: Databases) -> None:
    databases({"default": {**POSTGRES, "USER": "web"}, "direct": {**POSTGRES, "USER": "node"}})
    with override_settings(SHARDING={"LIFELINE_DATABASE": "direct"}):
        [message] = checks.check_databases()
    assert ids([message]) == ["sharding.W010"]
    assert "'default' as 'web' and 'direct' as 'node'" in message.msg
    databases({"default": {**POSTGRES, "USER": "node"}, "direct": {**POSTGRES, "USER": "node"}})
    with override_settings(SHARDING={"LIFELINE_DATABASE": "direct"}):
        assert checks.check_databases() == []


LAYER_ALONE = {"LINKS": "channel_layer"}


def test_e003_no_layer() -> None:
    with override_settings(CHANNEL_LAYERS={}, SHARDING={}):
        assert checks.check_channel_layer() == [], "direct links need none"
    with override_settings(CHANNEL_LAYERS={}, SHARDING=LAYER_ALONE):
        [message] = checks.check_channel_layer()
        assert ids([message]) == ["sharding.E003"]
        assert "'default'" in message.msg


def test_e004_and_w002_a_layer_in_memory() -> None:
    memory = layer(MEMORY_LAYER)
    with override_settings(CHANNEL_LAYERS=memory, SHARDING={"MIN_NODES": 2}):
        assert checks.check_channel_layer() == [], "direct links do not use it"
    with override_settings(CHANNEL_LAYERS=memory, SHARDING=LAYER_ALONE):
        assert ids(checks.check_channel_layer()) == ["sharding.W002"]
    with override_settings(CHANNEL_LAYERS=memory, SHARDING={**LAYER_ALONE, "MIN_NODES": 2}):
        assert ids(checks.check_channel_layer()) == ["sharding.E004"]
    with override_settings(CHANNEL_LAYERS=memory, SHARDING={**LAYER_ALONE, "MIN_NODES_OF_ROLE": {"a": 3}}):
        assert ids(checks.check_channel_layer()) == ["sharding.E004"]


def test_e005_several_hosts_on_the_core_layer() -> None:
    with override_settings(CHANNEL_LAYERS=layer(checks.CORE_LAYER, hosts=[HOST, HOST])):
        assert ids(checks.check_channel_layer()) == ["sharding.E005"]
    with override_settings(CHANNEL_LAYERS=layer(checks.CORE_LAYER, hosts=[HOST])):
        assert checks.check_channel_layer() == []
    with override_settings(CHANNEL_LAYERS=layer(checks.PUBSUB_LAYER, hosts=[HOST, HOST])):
        assert checks.check_channel_layer() == []


@pytest.mark.parametrize(
    "hosts", [None, ["redis://127.0.0.1:1"], [("127.0.0.1", 1)], [{"address": "redis://127.0.0.1:1"}]]
)
def test_w003_redis_default_timeout(monkeypatch: pytest.MonkeyPatch, hosts: Any) -> None:
    config = {} if hosts is None else {"hosts": hosts}
    for backend in (checks.CORE_LAYER, checks.PUBSUB_LAYER):
        with override_settings(CHANNEL_LAYERS=layer(backend, **config)):
            monkeypatch.setattr("importlib.metadata.version", lambda _: "8.1.0")
            assert ids(checks.check_channel_layer()) == ["sharding.W003"]
            monkeypatch.setattr("importlib.metadata.version", lambda _: "7.4.1")
            assert checks.check_channel_layer() == []


def test_w004_a_capacity_below_the_window() -> None:
    with override_settings(CHANNEL_LAYERS=layer(checks.CORE_LAYER, hosts=[HOST], capacity=50)):
        assert ids(checks.check_channel_layer()) == ["sharding.W004"]


def test_e006_a_duplicate_type() -> None:
    with registry.isolated():
        type("Twin", (EventSourced,), {"__module__": "tests.one"})
        assert checks.check_types() == []
        type("Twin", (EventSourced,), {"__module__": "tests.two"})
        [message] = checks.check_types()
    assert ids([message]) == ["sharding.E006"]
    assert "tests.one.Twin" in message.msg
    assert "tests.two.Twin" in message.msg


def test_e006_a_duplicate_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identifiers, "labels_are_known", lambda: False)
    with messages.isolated():
        declare_message(type("Halt", (), {"__module__": "tests.one"}))
        assert checks.check_types() == []
        declare_message(type("Halt", (), {"__module__": "tests.two"}))
        [found] = checks.check_types()
    assert ids([found]) == ["sharding.E006"]
    assert "tests.one.Halt and tests.two.Halt" in found.msg


def test_e007_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks.check_platform() == []
    monkeypatch.setattr("os.name", "nt")
    messages = checks.check_platform()
    monkeypatch.undo()
    assert ids(messages) == ["sharding.E007"]


def test_w005_no_keys_in_production() -> None:
    with override_settings(DEBUG=False):
        assert ids(checks.check_deployment()) == ["sharding.W005"]
        deployed = [
            m for m in django_checks.run_checks(include_deployment_checks=True) if m.id == "sharding.W005"
        ]
        assert len(deployed) == 1
        assert "sharding.W005" not in [m.id for m in django_checks.run_checks()]
        with override_settings(SHARDING={"KEYS": ["0123456789abcdef"]}):
            assert checks.check_deployment() == []
    with override_settings(DEBUG=True):
        assert checks.check_deployment() == []


def test_i001_a_project_that_is_well_hears_of_live_updates_at_its_deployment_alone() -> None:
    def said(*, deploy: bool) -> list[str | None]:
        found = django_checks.run_checks(tags=["sharding"], include_deployment_checks=deploy)
        return [each.id for each in found]

    with override_settings(ASGI_APPLICATION=None):
        assert "sharding.I001" not in said(deploy=False)
        assert "sharding.I001" in said(deploy=True)


@pytest.mark.parametrize(
    ("hosts", "encrypt", "found"),
    [
        (["redis://redis.example:6379/0"], False, ["sharding.W012"]),
        ([{"address": "redis://:secret@10.0.0.7"}], False, ["sharding.W012"]),
        ([("redis.example", 6379)], False, ["sharding.W012"]),
        ([{"host": "redis.example", "port": 6379}], False, ["sharding.W012"]),
        ([{"sentinels": [("redis.example", 26379)], "master_name": "m"}], False, ["sharding.W012"]),
        ([{"host": "redis.example", "ssl": True}, {"host": "localhost"}, {"path": "/run/redis.sock"}], False, []),
        ([{"address": "redis://10.0.0.7"}], True, []),
        (["rediss://redis.example:6379/0"], False, []),
        ([{"address": "redis://127.0.0.1"}, "redis://localhost", "redis://[::1]", "unix:///run/redis.sock"], False, []),
        (None, False, []),
    ],
)  # fmt: skip
def test_messages_that_the_network_can_read(hosts: Any, encrypt: bool, found: list[str]) -> None:
    sharding = {"KEYS": ["0123456789abcdef-0123456789ABCDEF"], "ENCRYPT": encrypt}
    configured = layer("channels_redis.pubsub.RedisPubSubChannelLayer", **({"hosts": hosts} if hosts else {}))
    with override_settings(DEBUG=False, SHARDING=sharding, CHANNEL_LAYERS=configured):
        assert [name for name in ids(checks.check_clear_text()) if name == "sharding.W012"] == found
    with override_settings(DEBUG=True, SHARDING=sharding, CHANNEL_LAYERS=configured):
        assert checks.check_clear_text() == []


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("postgresql://u@db.example/shop", ["sharding.W013"]),
        ("postgresql://u@db.example/shop?sslmode=require", ["sharding.W013"]),
        ("postgresql://u@db.example/shop?sslmode=verify-full", []),
        ("postgresql://u@127.0.0.1/shop", []),
        ("postgresql:///shop?host=/run/postgresql", []),
    ],
)
def test_a_way_to_the_database_that_is_not_verified(databases: Databases, url: str, found: list[str]) -> None:
    databases({"default": database(url)})
    with override_settings(DEBUG=False):
        assert [name for name in ids(checks.check_clear_text()) if name == "sharding.W013"] == found


Ask = Callable[..., list[CheckMessage]]


@pytest.fixture
def ask(own_postgres: OwnPostgres, django_db_blocker: Any, databases: Databases) -> Iterator[Ask]:
    """Run the checks that ask the server, on a server of our own."""

    def asking(*aliases: str, port: int = own_postgres.port) -> list[CheckMessage]:
        handler = databases({"default": {**database(own_postgres.url), "PORT": str(port)}})
        try:
            return checks.check_server(databases=aliases or ("default",))
        finally:
            handler.close_all()

    with django_db_blocker.unblock():
        yield asking


def test_the_server_itself(ask: Ask, own_postgres: OwnPostgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """E008 to E011 and W006: one server, because it takes seconds to start."""
    assert ask() == []
    assert ask("other") == [], "not the cluster's alias"

    with Pooler(own_postgres.port) as pooler:
        [through] = ask(port=pooler.port)
    assert ids([through]) == ["sharding.W007"]
    monkeypatch.setattr(probe, "way_to", lambda _: "transaction pooler")
    [through] = ask()
    assert ids([through]) == ["sharding.E011"]
    assert "LIFELINE_DATABASE" in str(through.hint)
    monkeypatch.undo()

    sound = probe.server_facts(from_django_settings(database(own_postgres.url)))

    def facts(**different: Any) -> list[CheckMessage]:
        monkeypatch.setattr(probe, "server_facts", lambda _: msgspec.structs.replace(sound, **different))
        return ask()

    assert ids(facts(version_number=130014)) == ["sharding.E009"]
    assert ids(facts(encoding="SQL_ASCII")) == ["sharding.E012"]
    assert ids(facts(standby=True)) == ["sharding.E014"]
    found = facts(fsync=False, full_page_writes=False)
    assert ids(found) == ["sharding.E010", "sharding.W006"]
    assert found[0].level == django_checks.WARNING, "a test environment is set up here"
    with monkeypatch.context() as outside:
        outside.delattr(mail, "outbox")
        assert facts(fsync=False)[0].level == django_checks.ERROR
    monkeypatch.undo()

    schema = SchemaFacts(missing_tables=(), unfenced_tables=("sharding_event",))
    monkeypatch.setattr(probe, "schema_facts", lambda _: schema)
    assert ids(ask()) == ["sharding.E013"]
    schema = SchemaFacts(missing_tables=(), unfenced_tables=(), lost_triggers=("x on sharding_type",))
    monkeypatch.setattr(probe, "schema_facts", lambda _: schema)
    [lost] = ask()
    assert ids([lost]) == ["sharding.E013"]
    assert "x on sharding_type" in lost.msg
    monkeypatch.undo()

    own_postgres.stop()
    assert set(ids(ask())) == {"sharding.E008"}


def test_a_view_that_no_browser_may_watch_is_reported(no_tests_types: None) -> None:
    def may_watch(cls: Any, user: Any, entity_id: str, view: str) -> bool:
        return False

    with registry.isolated():

        class Closed(EventSourced, name="checks.Closed"):
            @view
            def secret(self) -> int:
                return 1

            @view(public=True)
            def shown(self) -> int:
                return 1

        (found,) = checks.check_views()
        assert ids([found]) == ["sharding.W014"]
        assert "checks.Closed has views that are shown to no browser: secret." in found.msg
        with override_settings(SHARDING={"MAY_WATCH": "tests.no_such.may_watch"}):
            assert ids(checks.check_views()) == ["sharding.E001"]
        with override_settings(SHARDING={"MAY_WATCH": "sharding_app.live.rights.may_watch"}):
            assert checks.check_views() == []
        type(
            "Closed",
            (Closed,),
            {"may_watch": classmethod(may_watch), "__module__": __name__},
            name="checks.Open",
        )
        assert len(checks.check_views()) == 1


def test_settings_that_delete_no_event_are_told(no_tests_types: None) -> None:
    with registry.isolated():

        class Whole(EventSourced, name="checks.Whole"):
            settings = ShardingSettings(delete_events=True)

        class Kept(EventSourced, name="checks.Kept"):
            settings = ShardingSettings(snapshot_every=10, keep_events=5, keep_events_days=30)

        class Trimmed(EventSourced, name="checks.Trimmed"):
            settings = ShardingSettings(snapshot_every=10, delete_events=True, keep_events=5)

        whole, kept = checks.check_retention()
        assert ids([whole, kept]) == ["sharding.W015"] * 2
        assert "checks.Whole has delete_events and takes no snapshots" in whole.msg
        assert "checks.Kept has keep_events_days and keep_events without delete_events" in kept.msg
        with override_settings(SHARDING={"SNAPSHOT_EVERY": 100, "DELETE_EVENTS": True}):
            assert checks.check_retention() == []


@event
class Counted:
    """An event for a class below."""


def test_what_a_snapshot_lacks_is_told(no_tests_types: None) -> None:
    with registry.isolated():

        class Forgets(EventSourced, name="checks.Forgets"):
            settings = ShardingSettings(snapshot_every=10)
            held: int = 0
            pair: tuple[int, int] = (0, 0)

            def __init__(self) -> None:
                self.lost, self.cache = 0, 0

            @property
            def either(self) -> int:
                return self.held

            @either.setter
            def either(self, value: int) -> None:
                self.held = value

            @applies(Counted)
            def on_counted(self, happened: Counted) -> None:
                self.held += 1
                self.either = 2
                self.lost += 1
                (self.pair, self.also), happened.__dict__["x"] = ((1, 2), 3), 4

        class Holds(EventSourced, name="checks.Holds"):
            lost: int = 0

            @applies(Counted)
            def on_counted(self, happened: Counted) -> None:
                self.lost, self.other = 1, 2

        first, second = checks.check_snapshots()
        assert ids([first, second]) == ["sharding.W016"] * 2
        assert "on_counted sets self.lost, which checks.Forgets does not annotate" in first.msg
        assert "sets self.also" in second.msg
        with override_settings(SHARDING={"SNAPSHOT_EVERY": 100}):
            assert sum("self.other" in each.msg for each in checks.check_snapshots()) == 1


def test_personal_data_needs_keys() -> None:
    with registry.isolated():

        class Person(DurableState, name="checks.Person"):
            names: list[Personal[str]]

        (found,) = checks.check_personal()
        assert ids([found]) == ["sharding.E015"]
        assert "checks.Person" in found.msg
        with override_settings(SHARDING={"PERSONAL_KEYS": ["Xk2mP9vQ4wL7tR1zB8nH5cJ3"]}):
            assert checks.check_personal() == []


def test_each_check_has_its_place_on_the_page() -> None:
    source = Path(checks.__file__).read_text()
    used = set(re.findall(r'"([EW]0\d\d)"', source))
    described = re.findall(r"^## sharding\.([EW]\d+)$", PAGE.read_text(), flags=re.MULTILINE)
    assert len(described) == len(set(described))
    assert used == set(described)
