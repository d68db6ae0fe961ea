"""Followers in processes of their own, on real nodes and a real PostgreSQL: the home of the entity
that they follow is killed, and they miss nothing.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharding_app.torture.processes import until
from tests.acceptance.cluster import ROOT, Cluster, Copied, python
from tests.acceptance.conftest import NewScenario
from tests.acceptance.test_messages import ACCOUNT, Site
from tests.support.slack import SLACK

pytestmark = pytest.mark.acceptance

SECONDS = 30.0 * SLACK
STORED = (
    "SELECT e.seq, (e.payload->>'cents')::int FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id"
    " WHERE t.name = %s AND e.entity = %s ORDER BY e.seq"
)
HOME = (
    "SELECT n.name FROM sharding_shard s JOIN sharding_node n ON n.incarnation = s.home"
    " JOIN sharding_event e ON e.type_id = s.type_id AND e.shard = s.shard"
    " JOIN sharding_type t ON t.id = e.type_id WHERE t.name = %s AND e.entity = %s LIMIT 1"
)


class Follower:
    """A process that follows an account (`tests.acceptance.follower`)."""

    def __init__(self, cluster: Cluster, name: str, *options: str) -> None:
        self._out = cluster.place / f"{name}.log"
        command = [*python("tests.acceptance.follower"), ACCOUNT, "ann", *options]
        self._process = Copied(command, cluster.environment(), self._out, folder=ROOT)
        until(lambda: self.found or "begins" in self._text, SECONDS, f"{name} begins")

    @property
    def _text(self) -> str:
        return Path(self._out).read_text(errors="replace")

    @property
    def found(self) -> list[Any]:
        """What it has shown, among the lines of its log."""
        lines = [each for each in self._text.splitlines(keepends=True) if each.endswith("\n")]
        return [json.loads(each.removeprefix("found ")) for each in lines if each.startswith("found ")]

    @property
    def events(self) -> list[tuple[int, int]]:
        return [(number, event["cents"]) for number, event, _ in self.found]

    def end(self) -> None:
        self._process.end()


@pytest.fixture
def site(scenario: NewScenario) -> Iterator[Site]:
    run = scenario()
    made = Site(run.cluster)
    yield made
    made.close()
    run.passed = True


def test_followers_go_on_when_the_home_is_killed(site: Site) -> None:
    cluster = site.cluster
    cluster.expect(1)
    site.begin("a", "b", "c")
    for cents in range(1, 11):
        site(ACCOUNT, "ann", "deposit", cents)
    first, second = Follower(cluster, "sync"), Follower(cluster, "async", "--async")
    balance = Follower(cluster, "balance", "--async", "--query", "cents")
    followers = [first, second]

    def stored() -> list[tuple[int, int]]:
        return [(number, cents) for number, cents in cluster.sql(STORED, ACCOUNT, "ann")]

    def level(count: int, what: str) -> None:
        assert len(stored()) == count
        until(lambda: all(len(each.found) >= count for each in followers), SECONDS, what)
        total = sum(cents for _, cents in stored())
        until(lambda: balance.found and balance.found[-1] == total, SECONDS, f"{what}: the balance")

    try:
        level(10, "followers have what was there before")
        for killed in range(2):
            ((home,),) = cluster.sql(HOME, ACCOUNT, "ann")
            cluster.nodes[home].end()
            until(
                lambda: "is" in site.order("ask", ACCOUNT, "ann", "cents"), 2 * SECONDS, "there is a new home"
            )
            for cents in range(100, 110):
                site(ACCOUNT, "ann", "deposit", cents)
            level(20 + 10 * killed, f"followers go on after {killed + 1} homes were killed")
        for each in followers:
            assert each.events == stored(), "each event once, in order, without a gap"
        assert first.found == second.found, "with the same times"
        values = balance.found
        assert values == sorted(set(values)), "a balance that only grows is shown growing"
    finally:
        for each in (*followers, balance):
            each.end()
