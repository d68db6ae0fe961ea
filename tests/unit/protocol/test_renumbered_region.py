"""A region whose type gets other numbers of shards: no call is lost, none overtakes another."""

import time

from sharding_app.protocol.call import Call
from sharding_app.protocol.ids import shard_of
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.protocol.region import AskHomes, Forward, RegionRoutes

TWO, FOUR = Numbering(2), Numbering(4, revision=1)
STAYS = next(each for each in map(str, range(99)) if shard_of(each, 4) == 1)
MOVES = next(each for each in map(str, range(99)) if shard_of(each, 4) == 3)


class Region:
    """Its calls by their numbers."""

    def __init__(self, numbering: Numbering) -> None:
        self.routes = RegionRoutes("shop.Cart", {})
        self.numbering = numbering
        self.last = 0

    def call(self, entity: str) -> PendingCall:
        self.last += 1
        made = PendingCall(
            self.last, Call("shop.Cart", entity, "add", b""), self.numbering.shard_of(entity), 0.0, 10.0
        )
        if self.routes.submit(made, 0.0):
            self.routes.out.append(Forward(made))
        return made

    def renumber(self, numbering: Numbering) -> None:
        self.numbering = numbering
        self.routes.renumbered(numbering.shard_of, numbering.has, 0.0)

    def home(self, shard: int, home: str, epoch: int) -> None:
        self.routes.home_told(shard, home, epoch, 0.0)

    def back(self, home: str, epoch: int, *calls: PendingCall) -> None:
        self.routes.handed_back(home, epoch, calls, 0.0)

    def answered(self, call: PendingCall) -> None:
        self.routes.resolved(self.routes.pending.pop(call.request), 0.0)

    @property
    def sent(self) -> list[tuple[int, int, str | None]]:
        found = [
            (each.pending.request, each.pending.shard, each.pending.home)
            for each in self.routes.out
            if isinstance(each, Forward)
        ]
        self.routes.out.clear()
        return found

    @property
    def asked(self) -> list[int]:
        return [shard for each in self.routes.out if isinstance(each, AskHomes) for shard in each.shards]

    def check(self) -> None:
        """Compare the counts with the calls: nothing of a resize is left in them."""
        routes = self.routes
        assert routes._astray == {}
        for shard, route in routes.routes.items():
            ours = [each for each in routes.pending.values() if each.shard == shard]
            assert route.astray == 0
            assert route.size == sum(each.size for each in ours)
            assert route.outstanding == sum(each.home is not None for each in ours)


def test_waiting_calls_go_to_their_new_shards_in_their_order() -> None:
    region = Region(TWO)
    for entity in (STAYS, MOVES, MOVES, STAYS):
        region.call(entity)
    region.renumber(FOUR)
    assert 3 in region.asked
    region.home(3, "n-2", 7)
    assert region.sent == [(2, 3, "n-2"), (3, 3, "n-2")]
    region.home(1, "n-1", 7)
    assert region.sent == [(1, 1, "n-1"), (4, 1, "n-1")]
    region.check()


def test_calls_that_come_back_go_first_to_the_new_shard() -> None:
    region = Region(TWO)
    region.home(1, "n-1", 5)
    first = region.call(MOVES)
    region.home(1, "n-1", 5)
    assert region.sent == [(1, 1, "n-1")]
    second = region.call(MOVES)
    assert region.sent == [(2, 1, "n-1")]
    region.renumber(FOUR)
    region.call(MOVES)
    region.home(3, "n-2", 7)
    assert region.sent == [], "the former home may still have the first"
    region.back("n-1", 5, first)
    assert region.sent == []
    region.back("n-1", 5, second)
    assert region.sent == [(1, 3, "n-2"), (2, 3, "n-2"), (3, 3, "n-2")]
    region.check()


def test_a_new_shard_waits_for_the_answer_of_the_former_one() -> None:
    region = Region(TWO)
    first = region.call(MOVES)
    region.home(1, "n-1", 5)
    assert region.sent == [(1, 1, "n-1")]
    region.renumber(FOUR)
    region.call(MOVES)
    region.home(3, "n-2", 7)
    region.home(3, "n-2", 7)
    assert region.sent == []
    region.answered(first)
    assert region.sent == [(2, 3, "n-2")]
    region.check()


def test_a_merged_shard_whose_home_is_known_already_waits_too() -> None:
    """Its home may be announced before the numbers: the two come from different processes."""
    region = Region(FOUR)
    first = region.call(MOVES)
    region.home(3, "n-2", 5)
    known = region.call(STAYS)
    region.home(1, "n-1", 8)
    assert region.sent == [(1, 3, "n-2"), (2, 1, "n-1")]
    region.answered(known)
    region.renumber(Numbering(2, revision=2))
    region.call(MOVES)
    region.call(STAYS)
    region.home(1, "n-1", 8)
    assert region.sent == []
    region.routes.gone("n-2", 0.0)
    assert region.sent == [(1, 1, "n-1"), (3, 1, "n-1"), (4, 1, "n-1")]
    assert first.attempt == 2
    region.check()


def test_the_home_of_a_merged_shard_may_die_while_calls_are_astray() -> None:
    region = Region(FOUR)
    astray = region.call(MOVES)
    region.home(3, "n-2", 5)
    region.call(STAYS)
    region.home(1, "n-1", 8)
    region.answered(region.routes.pending[2])
    region.renumber(Numbering(2, revision=2))
    assert not region.routes.wait_behind(astray)
    region.call(STAYS)
    assert region.routes.wait_behind(astray)
    region.routes.out.clear()
    region.routes.gone("n-1", 0.0)
    region.home(1, "n-3", 9)
    assert region.sent == []
    region.answered(astray)
    assert region.sent == [(3, 1, "n-3")]
    region.check()


def test_the_home_of_both_merged_shards_may_die_while_calls_are_astray() -> None:
    """The route must not go on to the home that has just died: it would wait for it for ever."""
    region = Region(FOUR)
    region.call(STAYS)
    region.call(MOVES)
    region.home(1, "n-1", 7)
    region.home(3, "n-1", 7)
    region.renumber(TWO)
    assert len(region.sent) == 2
    region.routes.gone("n-1", 0.0)
    assert region.routes.routes[1].home is None
    assert region.sent == []
    region.home(1, "n-2", 9)
    assert {home for _, _, home in region.sent} == {"n-2"}
    region.check()


def test_numbers_may_change_again_while_calls_are_astray() -> None:
    region = Region(TWO)
    first = region.call(MOVES)
    region.home(1, "n-1", 5)
    assert region.sent == [(1, 1, "n-1")]
    region.renumber(FOUR)
    region.call(MOVES)
    eight = Numbering(8, revision=2)
    region.renumber(eight)
    region.home(eight.shard_of(MOVES), "n-4", 9)
    region.back("n-1", 5, first)
    shard = eight.shard_of(MOVES)
    assert region.sent == [(1, shard, "n-4"), (2, shard, "n-4")]
    region.check()


def test_a_route_that_has_no_astray_call_to_wait_for_any_more_goes_on() -> None:
    """Numbers change again, and a hand-off of the shard has begun meanwhile."""
    region = Region(FOUR)
    first = region.call(STAYS)
    region.home(1, "n-1", 1)
    region.answered(first)
    astray = region.call(MOVES)
    region.home(3, "n-3", 1)
    region.renumber(Numbering(2, revision=2))
    region.routes.hand_off_begins([1], 0.0)
    region.renumber(Numbering(4, revision=3))
    region.home(1, "n-4", 6)
    region.answered(astray)
    region.check()


def test_a_call_given_up_meanwhile_is_forgotten() -> None:
    region = Region(TWO)
    first = region.call(MOVES)
    region.home(1, "n-1", 5)
    region.renumber(FOUR)
    waiting = region.call(MOVES)
    for each in (first, waiting):
        region.routes.abandon(each, 0.0)
    region.back("n-1", 5, first)
    assert region.routes.pending == {}
    assert region.routes.calls == region.routes.bytes == 0
    region.check()


def test_a_shard_that_there_is_no_more_is_sought_no_more() -> None:
    region = Region(FOUR)
    region.routes.find([0, 3], 0.0)
    region.renumber(Numbering(2, revision=2))
    region.routes.out.clear()
    region.routes.tick(5.0)
    assert region.asked == [0]


def test_thousands_of_astray_calls_end_at_once_each() -> None:
    region = Region(TWO)
    region.call(MOVES)
    region.home(1, "n-1", 5)
    astray = [*region.routes.pending.values(), *(region.call(MOVES) for _ in range(19_999))]
    region.renumber(FOUR)
    waiting = [region.call(MOVES) for _ in range(20_000)]
    region.home(3, "n-2", 1)
    assert len(region.sent) == 20_000
    began = time.process_time()
    for each in astray:
        region.answered(each)
    assert time.process_time() - began < 2.0, "a loop that is held for longer misses other deadlines"
    assert region.sent == [(each.request, 3, "n-2") for each in waiting]
    region.check()
