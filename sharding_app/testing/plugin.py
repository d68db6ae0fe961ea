"""The pytest plugin: each test has a new in-memory cluster, unless it asks for the real one.

*Fixtures.* ``sharding_cluster``: the cluster (`sharding_app.testing.ClusterThread`);
``sharding_clock``: its time.
*Marks.* ``@pytest.mark.sharding_real``: a node and a client on the test database and the real
channel layer.
"""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from sharding_app.testing.clock import Clock
    from sharding_app.testing.thread import ClusterThread

MARK = "sharding_real"
NEEDS_TRANSACTION = (
    "@pytest.mark.sharding_real needs @pytest.mark.django_db(transaction=True): writes of a test inside a transaction are"
    " invisible to the cluster's own connections, and the other way round"
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARK}: use the real cluster, with the test database; needs django_db(transaction=True)",
    )


@pytest.fixture(autouse=True)
def _sharding_gateway(request: pytest.FixtureRequest) -> Iterator[None]:
    """End the cluster of the test before its database is removed."""
    if request.node.get_closest_marker(MARK) is not None:
        request.getfixturevalue("_sharding_real")
    elif _wants_database(request):
        # Set up before this fixture, and so ended after it.
        request.getfixturevalue("transactional_db" if _has_transactions(request) else "db")
    yield
    modes = sys.modules.get("sharding_app.testing.modes")
    if modes is not None:
        modes.reset()


@pytest.fixture
def _sharding_real(request: pytest.FixtureRequest) -> Iterator[None]:
    if not _has_transactions(request):
        pytest.fail(NEEDS_TRANSACTION, pytrace=False)
    request.getfixturevalue("transactional_db")
    from sharding_app.testing import modes, real

    with modes.real(), real.node():
        yield


@pytest.fixture
def sharding_cluster(request: pytest.FixtureRequest) -> "ClusterThread":
    """Return the in-memory cluster of this test."""
    if request.node.get_closest_marker(MARK) is not None:
        pytest.fail(
            "sharding_cluster is the in-memory cluster, which a sharding_real test does not have",
            pytrace=False,
        )
    from sharding_app.testing import modes

    return modes.memory_cluster()


@pytest.fixture
def sharding_clock(sharding_cluster: "ClusterThread") -> "Clock":
    """Return the time of that cluster."""
    return sharding_cluster.clock


def _wants_database(request: pytest.FixtureRequest) -> bool:
    marked = request.node.get_closest_marker("django_db") is not None
    return marked and request.node.cls is None


def _has_transactions(request: pytest.FixtureRequest) -> bool:
    mark = request.node.get_closest_marker("django_db")
    if mark is not None and (mark.kwargs.get("transaction") or (mark.args and mark.args[0])):
        return True
    return "transactional_db" in request.fixturenames
