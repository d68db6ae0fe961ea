"""For how long a holder may believe in a lease that was taken away, and that the judge allows
exactly that.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from sharding_app.adapters.memory.lease_row import LeaseRow
from sharding_app.protocol.ids import shard_of
from sharding_app.testing.simulation import workload
from sharding_app.testing.simulation.beliefs import Beliefs
from sharding_app.testing.simulation.faults import Fault
from sharding_app.testing.simulation.promises import PromiseBroken
from sharding_app.testing.simulation.virtual_node import SHARD_LEASES, VirtualNode
from sharding_app.testing.simulation.workload import LEASED
from sharding_app.testing.simulation.world import World, run_seed
from tests.simulation.calm import calm_world
from tests.simulation.mistakes import MISTAKES
from tests.simulation.planted import planted

VAULT = LEASED, "vault-0"
NUMBER = shard_of(VAULT[1], LEASED.settings.number_of_shards or 0)
WHOLE = 1
"""A seed of the whole protocol: others need no lease."""
BELIEVED_SECONDS = SHARD_LEASES.ttl_seconds * 0.9
LOOK_SECONDS = 0.05
CALL_SECONDS = 1.5
"""A call waits this long: longer than its callee is frozen."""


class Play:
    """A holder of a lease, just renewed, and a user who calls what needs it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lease = f"{world.server.cluster_id}-shard-{LEASED.name}-{NUMBER}"
        former = self.until
        assert world.scheduler.run(
            until=lambda: self.until > former, deadline=world.now + SHARD_LEASES.ttl_seconds
        )
        self.began = world.now
        "When it was renewed last."
        holder = next(each for each in world.nodes if self.row.owner in each.incarnations)
        self.holder: VirtualNode = holder

    @property
    def row(self) -> LeaseRow:
        return self.world.server.leases[self.lease]

    @property
    def until(self) -> float:
        return self.world.server.cluster.leases_until[self.row.owner or ""]

    @property
    def own_seconds(self) -> float:
        """How long ago that was, by the holder's clock."""
        return (self.world.now - self.began) * self.holder.process.rate

    def taken_and_let_go(self) -> None:
        """Another owner takes the lease, and gives it up at once."""
        self.row.token += 1
        self.row.owner = None
        self.world.beliefs.taken(self.lease)

    def calls_until(self, over: Callable[[], bool]) -> list[float]:
        """Have a user ask until then; return how long after the renewal the holder has handled, by
        its clock.
        """
        client, handled = self.world.clients[0], []
        known = self.world.witness.handled
        while not over():
            client.loop.call_soon_threadsafe(client.caller.call, client.asking, VAULT, "total", CALL_SECONDS)
            self.world.scheduler.run(deadline=self.world.now + LOOK_SECONDS)
            if self.world.witness.handled > known:
                known = self.world.witness.handled
                handled.append(self.own_seconds)
        return handled

    def broken(self) -> PromiseBroken | None:
        return self.world.failure


@contextmanager
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    with calm_world(lambda _: [VAULT], WHOLE) as world:
        monkeypatch.setattr(workload, "observer", world.witness)
        yield Play(world)


def test_a_holder_that_cannot_know_goes_on_for_nine_tenths_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with play(monkeypatch) as on:
        on.world.conditions.leases_down = True
        on.taken_and_let_go()
        handled = on.calls_until(lambda: on.own_seconds > SHARD_LEASES.ttl_seconds * 1.5)
        assert on.broken() is None
        assert BELIEVED_SECONDS - 4 * LOOK_SECONDS < handled[-1] < BELIEVED_SECONDS + LOOK_SECONDS


def test_a_holder_that_goes_on_for_longer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted("lease_never_over"), play(monkeypatch) as on:
        on.world.conditions.leases_down = True
        on.taken_and_let_go()
        on.calls_until(lambda: on.broken() is not None or on.own_seconds > 10.0)
        broken = on.broken()
        assert broken is not None
        assert broken.name == "runs_with_its_lease"
        assert BELIEVED_SECONDS <= on.own_seconds < BELIEVED_SECONDS + 4 * LOOK_SECONDS


def test_a_holder_that_is_told_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    with play(monkeypatch) as on:
        on.taken_and_let_go()
        epoch = on.world.server.cluster.shards[LEASED.name, NUMBER].epoch
        shards = on.world.server.cluster.shards
        on.calls_until(lambda: shards[LEASED.name, NUMBER].epoch > epoch or on.own_seconds > 10.0)
        assert on.broken() is None
        assert on.own_seconds < BELIEVED_SECONDS, "it was told by its next renewal"


def test_a_holder_that_goes_on_though_it_is_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted("lost_lease_is_kept"), play(monkeypatch) as on:
        on.taken_and_let_go()
        on.calls_until(lambda: on.broken() is not None or on.own_seconds > 10.0)
        broken = on.broken()
        assert broken is not None
        assert broken.name == "runs_with_its_lease"
        assert on.own_seconds < SHARD_LEASES.renew_every + 4 * LOOK_SECONDS


def handles_when_it_wakes_up(monkeypatch: pytest.MonkeyPatch) -> PromiseBroken | None:
    """Freeze a holder while its lease ends, with calls that reach it before its timers do."""
    with play(monkeypatch) as on:
        world = on.world
        world.conditions.leases_down = True
        on.calls_until(lambda: on.own_seconds > BELIEVED_SECONDS - 3 * LOOK_SECONDS)
        on.holder.process.pause()
        on.calls_until(lambda: on.own_seconds > BELIEVED_SECONDS + 1.0)
        on.holder.process.resume()
        on.calls_until(lambda: on.broken() is not None or on.own_seconds > BELIEVED_SECONDS + 2.0)
        return on.broken()


def test_a_holder_that_was_frozen_handles_nothing_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert handles_when_it_wakes_up(monkeypatch) is None


def test_a_holder_that_was_frozen_and_does_not_look_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with planted("lease_is_left_to_timers"):
        broken = handles_when_it_wakes_up(monkeypatch)
    assert broken is not None
    assert broken.name == "runs_with_its_lease"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lease_loss_is_not_told", "lost_lease_is_kept"])
def test_a_taken_lease_finds_a_holder_that_does_not_stop(name: str) -> None:
    faults = [Fault(2.0 + 2.0 * number, "lease_taken", 1.5, 0) for number in range(4)]
    with planted(name):
        broken = run_seed(WHOLE, faults=faults).broken
    assert broken is not None
    assert broken.promise in MISTAKES[name].promises


def test_what_was_asked_before_it_was_taken_is_excused_and_what_was_asked_later_is_not() -> None:
    now = 0.0
    beliefs = Beliefs(lambda: now, 10.0)
    early = beliefs.asked(100.0)
    now = 1.0
    beliefs.taken("a")
    beliefs.answered("n1", ["a", "b"], ["a", "b"], early)
    assert beliefs.was_taken("n1", "a")
    assert not beliefs.was_taken("n1", "b")
    assert not beliefs.was_taken("n2", "a")
    assert beliefs.believes("n1", "a", 108.9)
    assert not beliefs.believes("n1", "a", 109.0), "counted from when it was asked for, not from the answer"
    now = 2.0
    beliefs.answered("n1", ["a"], ["a"], beliefs.asked(102.0))
    assert not beliefs.was_taken("n1", "a"), "it was granted anew"
    beliefs.all_taken()
    assert beliefs.was_taken("n1", "a")
    assert beliefs.was_taken("n1", "b")
    beliefs.answered("n1", ["a"], [], beliefs.asked(103.0))
    assert not beliefs.believes("n1", "a", 103.0), "it was told"
