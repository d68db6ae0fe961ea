"""`runserver` has a node beside it: found by the command line, ended with it however it ends."""

from __future__ import annotations

import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from pytest_django.fixtures import Settings

from sharding_app.embedded.ports import free_port
from sharding_app.management import runserver_node
from sharding_app.management.runserver_node import wanted
from tests.support.live import Live, children, running, until
from tests.support.scratch_project import ScratchProject
from tests.support.slack import PATIENT, SLACK

CHILD = {"RUN_MAIN": "true"}


@pytest.mark.parametrize(
    ("line", "environment", "starts"),
    [
        ("manage.py runserver", CHILD, True),
        ("manage.py runserver 0.0.0.0:9000", CHILD, True),
        ("manage.py runserver --noreload", {}, True),
        ("manage.py runserver", {}, False),
        ("manage.py runserver --help", CHILD, False),
        ("manage.py migrate", CHILD, False),
        ("manage.py test runserver", CHILD, False),
        ("manage.py shell", {}, False),
        ("manage.py sharding_node", {}, False),
        ("manage.py", {}, False),
        ("pytest", {}, False),
    ],
)
def test_only_the_process_that_serves_starts_a_node(
    line: str, environment: dict[str, str], starts: bool, settings: Settings
) -> None:
    settings.DEBUG = True
    assert wanted(line.split(), environment) is starts
    settings.DEBUG = False
    assert wanted(line.split(), environment) is False


MORE_SETTINGS = f"""
SHARDING = {PATIENT!r}
INSTALLED_APPS += ["sharding_app", "shop"]
CHANNEL_LAYERS = {{"sharding": {{
    "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
    "CONFIG": {{"hosts": [{{"address": os.environ["REDIS_URL"], "socket_timeout": None}}]}},
}}}}

from sharding_app.management import runserver_node
runserver_node.UP_SECONDS = {runserver_node.UP_SECONDS * SLACK}
"""
ENTITIES = """
from sharding_app import EventSourced, applies, command, event

@event
class Visited:
    page: str

class Visits(EventSourced):
    n: int

    def __init__(self) -> None:
        self.n = 0

    @command
    def visit(self, page: str) -> int:
        self.persist(Visited(page))
        return self.n

    @applies(Visited)
    def on_visited(self, happened: Visited) -> None:
        self.n += 1
"""
URLS = """
from django.http import HttpResponse
from django.urls import path
from shop.entities import Visits

def visit(request):
    return HttpResponse(Visits.ref("all").sync.visit("home"))

urlpatterns = [path("", visit)]
"""


@pytest.fixture
def site(live_tables: Live, tmp_path: Path) -> ScratchProject:
    """A stranger's project with one page."""
    project = ScratchProject(tmp_path / "stranger", live_tables)
    project.append("mysite/settings.py", MORE_SETTINGS)
    project.write("mysite/urls.py", URLS)
    project.write("shop/entities.py", ENTITIES)
    return project


def use_daphne(site: ScratchProject) -> None:
    """Let Daphne bring its own `runserver`."""
    site.append("mysite/settings.py", 'INSTALLED_APPS.insert(0, "daphne")')
    site.append("mysite/settings.py", 'ASGI_APPLICATION = "mysite.asgi.application"')
    site.write(
        "mysite/asgi.py",
        "from django.core.asgi import get_asgi_application\napplication = get_asgi_application()\n",
    )


def visits(port: int) -> int:
    def answer() -> bytes | None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=20 * SLACK) as found:
                read: bytes = found.read()
                return read
        except ConnectionError:
            return None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ConnectionError):
                return None
            raise

    return int(until(answer, 30, "the site answers"))


@pytest.mark.parametrize("daphne", [False, True])
def test_a_node_lives_and_is_renewed_with_runserver(site: ScratchProject, daphne: bool) -> None:
    if daphne:
        use_daphne(site)
    port = free_port()
    with site.program("runserver", str(port)) as server:
        first = visits(port)
        server.wait_line(
            r"^A node runs beside the site; SHARDING\['RUNSERVER_NODE'\] = False turns it off\.$"
        )
        (serving,) = children(server.pid)
        (node,) = children(serving)

        said = len(server.lines)
        site.write("shop/entities.py", ENTITIES.replace("self.n += 1", "self.n += 1  # new"))
        server.wait_line(r"entities\.py changed, reloading\.", after=said)
        until(lambda: not running(node), 20, "the former node has ended")
        # The former site still takes requests while it ends, and can answer none of them.
        until(lambda: not running(serving), 20, "the former site has ended")
        # The first call after a reload waits for the new node instead of failing.
        assert visits(port) == first + 1
        (serving,) = children(server.pid)
        (node,) = children(serving)

        server.process.send_signal(signal.SIGTERM)
        until(lambda: not running(node), 20, "the node has ended")


def test_even_kill_9_ends_the_node(site: ScratchProject) -> None:
    with site.program("runserver", "--noreload", str(free_port())) as server:
        server.wait_line("^A node runs beside the site")
        (node,) = children(server.pid)
        server.process.kill()
        until(lambda: not running(node), 20, "the node has ended")


def test_a_setting_turns_it_off(site: ScratchProject) -> None:
    site.append("mysite/settings.py", 'SHARDING = {"RUNSERVER_NODE": False}')
    port = free_port()
    with site.program("runserver", "--noreload", str(port)) as server:
        server.wait_line(f":{port}/")
        assert children(server.pid) == []
        assert server.stop(signal.SIGINT) == 0


def test_a_node_that_cannot_go_on_is_told(site: ScratchProject) -> None:
    with site.program("runserver", "--noreload", str(free_port())) as server:
        server.wait_line("^A node runs beside the site")
        (node,) = children(server.pid)
        site.run("-c", f"import os; os.kill({node}, 9)")
        server.wait_line("^The node beside the site ended by SIGKILL: the next reload starts it again.$")
