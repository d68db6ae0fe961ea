"""One cluster and one browser for the whole folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from sharding_app.embedded import OwnRedis
from tests.browser.browser import Browser, find_chromium
from tests.browser.site import Cluster, again, cluster
from tests.support.live import Live


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    """A Redis of these tests' own, which can be stopped."""
    with OwnRedis(tmp_path_factory.mktemp("browser")) as redis:
        yield redis


@pytest.fixture(scope="session")
def shared_cluster(live_servers: Live, own_redis: OwnRedis) -> Iterator[tuple[Cluster, ExitStack]]:
    find_chromium()
    with (
        live_servers.empty_database() as live,
        cluster(Live(live.database_url, own_redis.url)) as found,
        ExitStack() as stack,
    ):
        yield found, stack


@pytest.fixture
def three_nodes(shared_cluster: tuple[Cluster, ExitStack]) -> Cluster:
    """The cluster, with whatever an earlier test has ended started again."""
    found, stack = shared_cluster
    again(found, stack)
    return found


Visit = Callable[[str], Browser]


@pytest.fixture
def visit(chromium: Browser, three_nodes: Cluster) -> Visit:
    """Open the overview as a person of the seed, in a browser that has no complaints yet."""

    def visit(person: str) -> Browser:
        chromium.wide()
        chromium.theme("light")
        chromium.sign_in(three_nodes.site, three_nodes.sessions[person])
        chromium.open(three_nodes.root)
        chromium.complaints()
        return chromium

    return visit
