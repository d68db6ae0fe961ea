"""Nodes die and freeze while a durable message takes one of its steps. Each step is a commit. The
server holds it at its end until the test lets it go on.
"""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from sharding_app.protocol.ids import shard_of
from sharding_app.torture.processes import until
from tests.acceptance.conftest import NewScenario
from tests.acceptance.test_messages import ACCOUNT, ORDER, PARCEL, ROOM, SECONDS, Site

pytestmark = pytest.mark.acceptance

GATE = """
CREATE TABLE gate (step text);
CREATE FUNCTION wait_at_the_gate() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    present text := TG_OP || ' ' || CASE TG_OP WHEN 'DELETE' THEN OLD.command ELSE NEW.command END;
BEGIN
    IF EXISTS (SELECT FROM gate WHERE step = present) THEN
        PERFORM pg_advisory_xact_lock_shared(4242);
        WHILE EXISTS (SELECT FROM gate WHERE step = present) LOOP
            PERFORM pg_sleep(0.005);
        END LOOP;
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER gate_of_new_rows AFTER INSERT ON sharding_message
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_the_gate();
CREATE CONSTRAINT TRIGGER gate_of_ends AFTER DELETE ON sharding_message
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_at_the_gate();
"""
IS_HELD = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objid = 4242 AND granted"
HOME = (
    "SELECT n.name, n.incarnation FROM sharding_node n JOIN sharding_shard s ON s.home = n.incarnation"
    " JOIN sharding_type t ON t.id = s.type_id WHERE t.name = %s AND s.shard = %s"
)
EVENTS = (
    "SELECT count(*) FROM sharding_event e JOIN sharding_type t ON t.id = e.type_id"
    " WHERE t.name = %s AND e.entity = %s AND e.name NOT LIKE 'sharding%%'"
)
CENTS = 200


class Steps:
    """A cluster whose orders can be stopped at a step: a room is booked, the order hears of it, an
    account pays, a parcel is sent.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.cluster = site.cluster
        self.cluster.sql(GATE)

    def home(self, type_name: str, entity: str) -> tuple[str, str]:
        """Return the node and the incarnation where an entity lives."""
        shard = shard_of(entity, self.cluster.number_of_shards)
        found: list[tuple[str, str]] = until(
            lambda: self.cluster.sql(HOME, type_name, shard), SECONDS, f"{type_name} {entity} has a home"
        )
        return found[0]

    def choose(self, number: int) -> tuple[str, str]:
        """Return an order, and a room that lives on another node."""
        order = f"order-{number}"
        self.site(ORDER, order, "how_far")
        for each in range(100):
            room = f"room-{number}-{each}"
            self.site(ROOM, room, "taken_by")
            if self.home(ROOM, room) != self.home(ORDER, order):
                return order, room
        pytest.fail("one node has all shards")

    def takes_place_once(self, number: int, step: str, victim: str, fault: str, *, commits: bool) -> None:
        """Place an order. At the step a node dies or freezes; its commit ends well, or is taken
        back by the server when the node's sessions are ended.
        """
        order, room = self.choose(number)
        payer = f"payer-{number}"
        self.site(ACCOUNT, payer, "deposit", 3 * CENTS)
        name, incarnation = self.home(*((ORDER, order) if victim == "order" else (ROOM, room)))
        self.cluster.sql("INSERT INTO gate VALUES (%s)", step)
        asked = ("ask", ORDER, order, "place", room, payer, CENTS)
        placing = threading.Thread(target=self.site.order, args=asked)
        placing.start()
        until(lambda: self.cluster.sql(IS_HELD), SECONDS, f"a commit is held at {step}")
        self.cluster.nodes[name].signal(signal.SIGKILL if fault == "dies" else signal.SIGSTOP)
        if commits:
            self.cluster.sql("DELETE FROM gate")
        until(
            lambda: not self.cluster.sql("SELECT 1 FROM sharding_shard WHERE home = %s", incarnation),
            SECONDS, f"the shards of {name} have moved",
        )  # fmt: skip
        self.cluster.sql("DELETE FROM gate")
        if fault == "freezes":
            self.cluster.nodes[name].signal(signal.SIGCONT)
        placing.join()
        self.site.becomes(f"shipped as {order}-1", ORDER, order, "how_far")
        until(lambda: not self.site.waiting(), SECONDS, "nothing is left behind")
        counts = {ORDER: order, ROOM: room, ACCOUNT: payer, PARCEL: order}
        found: dict[str, Any] = {each: self.cluster.sql(EVENTS, each, counts[each])[0][0] for each in counts}
        assert found == {ORDER: 4, ROOM: 1, ACCOUNT: 2, PARCEL: 1}
        assert self.site(ACCOUNT, payer, "cents") == 2 * CENTS


@pytest.fixture
def steps(scenario: NewScenario) -> Iterator[Steps]:
    run = scenario()
    site = Site(run.cluster)
    site.begin("a", "b", "c", "d")
    yield Steps(site)
    site.close()
    run.passed = True


def test_a_message_takes_effect_once_whichever_step_a_node_dies_at(steps: Steps) -> None:
    """What the commits of a dead or frozen node have stored counts, and nothing else does."""
    # The target's home has stored the effect, and dies before the sender's home hears of it.
    steps.takes_place_once(1, "DELETE book", "room", "dies", commits=True)
    # The home of the reply's target dies, and the server takes its commit back.
    steps.takes_place_once(2, "DELETE booked", "order", "dies", commits=False)
    # The sender's home is frozen when the answer comes, and wakes up after another one has begun.
    steps.takes_place_once(3, "DELETE book", "order", "freezes", commits=True)
