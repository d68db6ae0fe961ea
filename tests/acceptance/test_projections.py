"""A projection on real nodes and a real PostgreSQL: nodes are killed under it, and its table equals
the journal.
"""

from collections.abc import Iterator

import pytest

from sharding_app.torture.processes import until
from tests.acceptance.conftest import NewScenario
from tests.acceptance.projected.projections import TABLE
from tests.acceptance.test_messages import ACCOUNT, Site
from tests.support.slack import SLACK

pytestmark = pytest.mark.acceptance

SECONDS = 30.0 * SLACK
JOURNAL = """
    SELECT e.entity, sum((e.payload->>'cents')::bigint)::bigint, count(*), max(e.seq)
    FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id
    WHERE t.name = %s AND e.name = 'Moved' GROUP BY e.entity ORDER BY e.entity
"""
PROJECTED = "SELECT account, cents, events, last FROM projected_balance ORDER BY account"
HOME = """
    SELECT n.name FROM sharding_shard s JOIN sharding_node n ON n.incarnation = s.home
    JOIN sharding_type t ON t.id = s.type_id WHERE t.name = 'workers:projection:acceptance.Balances:1' AND s.shard = 0
"""


@pytest.fixture
def site(scenario: NewScenario) -> Iterator[Site]:
    run = scenario()
    made = Site(run.cluster)
    run.cluster.more["ACCEPTANCE_APPS"] = "project.sagas,tests.acceptance.projected"
    run.cluster.sql(TABLE)
    yield made
    made.close()
    run.passed = True


def test_the_table_equals_the_journal_through_kills(site: Site) -> None:
    cluster = site.cluster

    def deposit(count: int) -> None:
        for number in range(count):
            site(ACCOUNT, f"a{number % 13}", "deposit", number + 1)

    def equal() -> bool:
        return cluster.sql(PROJECTED) == cluster.sql(JOURNAL, ACCOUNT)

    cluster.expect(1)
    site.begin("a", "b", "c")
    deposit(40)
    until(equal, SECONDS, "the table equals the journal")
    for _ in range(2):
        ((home,),) = until(lambda: cluster.sql(HOME), SECONDS, "part 0 has a home")
        deposit(20)
        cluster.nodes[home].end()
        until(lambda: "is" in site.order("ask", ACCOUNT, "a1", "cents"), SECONDS, "there is a new home")
        deposit(20)
        until(equal, SECONDS, "the table equals the journal after a kill")
    assert sum(row[2] for row in cluster.sql(PROJECTED)) == 120
