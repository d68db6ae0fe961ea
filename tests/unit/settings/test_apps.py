"""The app at any place in INSTALLED_APPS, alone, and asked too early."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENTITIES = """
from sharding_app import EventSourced, command, event, applies
from corner.models import Shelf

@event
class Put:
    what: str

class Basket(EventSourced):
    def __init__(self) -> None:
        self.shelf = Shelf

    @command
    def put(self, what: str) -> None:
        self.persist(Put(what))

    @applies(Put)
    def on_put(self, happened: Put) -> None: ...
"""
MODELS = """
from django.db import models

class Shelf(models.Model):
    class Meta:
        app_label = "corner"
"""
SETTINGS = """
from django.conf import settings
settings.configure(
    INSTALLED_APPS={apps!r},
    DATABASES={{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "nowhere"}}}},
    CHANNEL_LAYERS={{"default": {{"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {{"hosts": [{{"address": "redis://127.0.0.1:1", "socket_timeout": None}}]}}}}}},
    SECRET_KEY="x", DEBUG=True, USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
)
"""


@pytest.fixture
def corner(tmp_path: Path) -> Path:
    (tmp_path / "corner").mkdir()
    (tmp_path / "corner" / "__init__.py").touch()
    (tmp_path / "corner" / "entities.py").write_text(ENTITIES)
    (tmp_path / "corner" / "models.py").write_text(MODELS)
    return tmp_path


def run(place: Path, code: str, *apps: str) -> subprocess.CompletedProcess[str]:
    """Run some code in a project of its own, without a server: whatever connects fails."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", SETTINGS.format(apps=apps) + code],
        env={"PYTHONPATH": f"{place}:{ROOT}", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
    )


CHECK = """
import sys, django
django.setup()
from django.core.management import call_command
from sharding_app.entities.registry import registry
call_command("check", fail_level="WARNING")
assert "daphne" not in sys.modules and "django.contrib.admin" not in sys.modules, "not needed"
print(sorted(registry.all()))
"""


@pytest.mark.parametrize("apps", [("sharding_app", "corner"), ("corner", "sharding_app")])
def test_finds_the_entities_of_apps_before_and_behind_it(corner: Path, apps: tuple[str, ...]) -> None:
    done = run(corner, CHECK, *apps)
    assert done.returncode == 0, done.stderr
    assert "['corner.Basket']" in done.stdout


SITE = (
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages",
    "django.contrib.sessions", "sharding_app",
)  # fmt: skip
START = """
import sys, django
django.setup()
from django.contrib import admin
from sharding_app.models import Cluster
assert admin.site.is_registered(Cluster)
print([each for each in ("sharding_app.wiring", "sharding_app.runtime.node.node", "redis") if each in sys.modules])
"""


def test_a_command_of_a_site_with_the_admin_loads_neither_the_engine_nor_redis(corner: Path) -> None:
    done = run(corner, START, *SITE, "corner")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_an_error_in_entities_is_not_swallowed(corner: Path) -> None:
    (corner / "corner" / "entities.py").write_text("import no_such_module\n")
    done = run(corner, CHECK, "sharding_app", "corner")
    assert done.returncode == 1
    assert "corner/entities.py" in done.stderr
    assert "no_such_module" in done.stderr


def test_asked_before_the_apps_are_ready_it_says_what_to_do(corner: Path) -> None:
    code = """
import corner.entities as early
early.Basket.ref("x").put.tell("apple")
"""
    (corner / "corner" / "entities.py").write_text(
        ENTITIES.replace("from corner.models import Shelf", "Shelf = None")
    )
    done = run(corner, code, "sharding_app", "corner")
    assert done.returncode == 1
    assert "django.setup()" in done.stderr


def test_asked_without_the_app_it_says_what_to_do(corner: Path) -> None:
    code = """
import django
django.setup()
from corner.entities import Basket
Basket.ref("x").put.tell("apple")
"""
    done = run(corner, code, "corner")
    assert done.returncode == 1
    assert "add 'sharding_app' to INSTALLED_APPS" in done.stderr


def test_ready_connects_to_nothing(corner: Path) -> None:
    code = """
import socket, sys
def refuse(event, args):
    assert not event.startswith(("socket.connect", "socket.getaddrinfo")), event
sys.addaudithook(refuse)
import django
django.setup()
import threading
print([thread.name for thread in threading.enumerate()])
"""
    done = run(corner, code, "sharding_app", "corner")
    assert (done.returncode, done.stdout.strip()) == (0, "['MainThread']"), done.stderr
