"""Servers for the session, a scenario for each test, and their figures at the end of the run."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from sharding_app.torture import processes
from tests.acceptance.cluster import Servers
from tests.acceptance.faults import standby_again
from tests.acceptance.machine import missing
from tests.acceptance.scenario import REPORT_FOLDER, REPORTS, Scenario
from tests.acceptance.share import share_of_machine
from tests.support.slack import SLACK

NewScenario = Callable[..., Scenario]
processes.slack = SLACK


@pytest.fixture(autouse=True)
def _share_of_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    with share_of_machine(alone=request.node.get_closest_marker("alone") is not None):
        yield


@pytest.fixture(scope="session")
def acceptance_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    place = tmp_path_factory.mktemp("servers")
    servers = Servers(place)
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def servers_with_standby(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("pair"), standby=True, wired=False)
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def servers_with_journal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("journals"), wired=False, journals=1)
    yield servers
    servers.close()


@pytest.fixture
def scenario_with_journal(
    servers_with_journal: Servers, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[NewScenario]:
    """Make a scenario whose shards lie in two journals, each on a server of its own."""
    yield from _scenarios(servers_with_journal, tmp_path, request.node.name)


@pytest.fixture
def scenario(
    acceptance_servers: Servers, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[NewScenario]:
    """Make the scenario of this test; ACCEPTANCE_SEED chooses another seed than a random one, which
    is printed.
    """
    yield from _scenarios(acceptance_servers, tmp_path, request.node.name)


@pytest.fixture
def scenario_with_standby(
    servers_with_standby: Servers, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[NewScenario]:
    """Make a scenario on a primary that has a synchronous standby."""
    standby_again(servers_with_standby)
    yield from _scenarios(servers_with_standby, tmp_path, request.node.name)


def _scenarios(servers: Servers, place: Path, name: str) -> Iterator[NewScenario]:
    seed = int(os.environ.get("ACCEPTANCE_SEED") or random.randrange(1_000_000))
    with ExitStack() as stack:

        def make(sharding: dict[str, object] | None = None) -> Scenario:
            print(f"seed {seed}")
            return stack.enter_context(Scenario(servers, place, seed, name, sharding))

        yield make


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not REPORTS:
        return
    terminalreporter.section("faults")
    for what in missing():
        terminalreporter.write_line(f"left out: {what}")
    for report in REPORTS:
        for line in report.lines():
            terminalreporter.write_line(line)
    folder = os.environ.get(REPORT_FOLDER)
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / "faults.json").write_bytes(msgspec.json.encode(REPORTS))
