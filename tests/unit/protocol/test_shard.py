"""One shard at its home: what runs when, what waits, what is handed back, and when it has
stopped.
"""

from sharding_app.protocol.messages import Deliver
from sharding_app.protocol.shard import Shard, Slot, SlotState, Verdict, Work

CALLER = "p-caller"


def envelope(request: int = 1, entity: str = "a", *, command: str = "add", epoch: int = 5) -> Deliver:
    return Deliver("shop.Cart", 7, epoch, entity, request, command, b"")


def a_shard(mailbox_limit: int = 1000) -> Shard[Slot]:
    return Shard("shop.Cart", 7, 5, Slot, mailbox_limit)


def deliver(
    shard: Shard[Slot], request: int = 1, entity: str = "a", *, now: float = 0.0, command: str = "add"
) -> Verdict:
    return shard.deliver(CALLER, envelope(request, entity, command=command), now)[0]


def loaded(shard: Shard[Slot], entity: str = "a", *, now: float = 0.0) -> Slot:
    """An entity that has handled its first envelope, and does nothing."""
    assert deliver(shard, 1, entity, now=now) is Verdict.LOAD
    slot = shard.slots[entity]
    slot.entity = object()
    shard.loaded(slot)
    assert runs(shard, slot) == [1]
    return slot


def runs(shard: Shard[Slot], slot: Slot) -> list[int]:
    """The requests that run one after the other, until none is left."""
    ran = []
    while (work := shard.finished(slot)) is not None:
        ran.append(request_of(work))
    return ran


def request_of(work: Work) -> int:
    return work[1].request


def looks(shard: Shard[Slot], slot: Slot) -> tuple[SlotState, int]:
    return slot.state, shard.busy


# -- Envelopes -------------------------------------------------------------------------------------


def test_what_waits_runs_in_the_order_of_its_arrival_whatever_it_is() -> None:
    """Queries too: a caller has to see what its own earlier calls have done."""
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 1) is Verdict.RUN
    for request, command in ((2, "add"), (3, "total"), (4, "add"), (5, "total")):
        assert deliver(shard, request, command=command) is Verdict.QUEUED
    assert runs(shard, slot) == [2, 3, 4, 5]
    assert looks(shard, slot) == (SlotState.IDLE, 0)
    assert slot.mailbox is None, "an idle slot owns nothing"


def test_it_is_known_by_its_type_number_and_epoch() -> None:
    """What is written and told of it names it by these."""
    shard = a_shard()
    assert (shard.type, shard.number, shard.epoch) == ("shop.Cart", 7, 5)


def test_what_was_sent_to_another_epoch_is_handed_back() -> None:
    shard = a_shard()
    for epoch in (4, 6):
        assert shard.deliver(CALLER, envelope(epoch=epoch), 0.0) == (Verdict.HAND_BACK, None)
    assert shard.slots == {}
    assert deliver(shard) is Verdict.LOAD


def test_an_entity_loads_once_and_handles_one_envelope_at_a_time() -> None:
    shard = a_shard()
    assert deliver(shard, 1) is Verdict.LOAD
    slot = shard.slots["a"]
    assert looks(shard, slot) == (SlotState.LOADING, 1)
    assert deliver(shard, 2) is Verdict.QUEUED, "it is not there yet"
    shard.loaded(slot)
    assert looks(shard, slot) == (SlotState.BUSY, 1), "it is no longer loaded, and what waits for it runs"
    assert deliver(shard, 3) is Verdict.QUEUED
    assert runs(shard, slot) == [1, 2, 3]
    assert looks(shard, slot) == (SlotState.IDLE, 0)
    assert not shard.had_last_word(slot)
    assert deliver(shard, 4) is Verdict.RUN
    assert looks(shard, slot) == (SlotState.BUSY, 1)


def test_a_mailbox_takes_as_many_as_it_may() -> None:
    shard = a_shard(mailbox_limit=2)
    slot = loaded(shard)
    assert deliver(shard, 1) is Verdict.RUN
    verdicts = [deliver(shard, request) for request in range(2, 6)]
    assert verdicts == [Verdict.QUEUED, Verdict.QUEUED, Verdict.FULL, Verdict.FULL]
    assert runs(shard, slot) == [2, 3]


def test_what_could_not_be_begun_is_the_next_to_run() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 1) is Verdict.RUN
    shard.put_first(slot, (CALLER, envelope(1)))
    assert deliver(shard, 2) is Verdict.QUEUED
    assert runs(shard, slot) == [1, 2]
    assert deliver(shard, 3) is Verdict.RUN
    assert deliver(shard, 4) is Verdict.QUEUED
    shard.put_first(slot, (CALLER, envelope(3)))
    assert runs(shard, slot) == [3, 4]


def test_one_is_started_without_a_message_once() -> None:
    shard = a_shard()
    slot = shard.start("a", 3.0)
    assert slot is not None
    assert (slot.touched, *looks(shard, slot)) == (3.0, SlotState.LOADING, 1)
    assert shard.start("a", 4.0) is None, "it is there"
    shard.loaded(slot)
    assert shard.finished(slot) is None
    assert looks(shard, slot) == (SlotState.IDLE, 0)
    shard.stop()
    assert shard.start("b", 5.0) is None


# -- Passivation -----------------------------------------------------------------------------------


def test_an_idle_entity_stops_at_once() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert shard.passivate(slot), "it is finished now"
    assert not shard.passivate(slot), "it stops already"
    assert shard.finished(slot) is None
    assert (shard.slots, slot.entity, shard.busy, shard.recency.size) == ({}, None, 0, 0)


def test_a_busy_entity_stops_when_it_has_ended_what_it_does() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 1) is Verdict.RUN
    assert not shard.passivate(slot), "it is finished when its handler has ended"
    assert shard.finished(slot) is None
    assert (shard.slots, shard.busy) == ({}, 0)


def test_what_comes_while_it_stops_is_for_its_next_incarnation() -> None:
    shard = a_shard()
    slot = loaded(shard)
    shard.passivate(slot)
    assert deliver(shard, 2) is Verdict.QUEUED
    assert shard.finished(slot) is None
    assert looks(shard, slot) == (SlotState.LOADING, 1)
    assert (slot.entity, slot.passivating, slot.ended) == (None, False, False)
    shard.loaded(slot)
    assert runs(shard, slot) == [2]


def test_it_has_its_stop_message_before_it_stops() -> None:
    shard = a_shard()
    slot = loaded(shard)
    last = CALLER, envelope(9, command="stop")
    assert shard.passivate(slot, last)
    assert not shard.had_last_word(slot), "it has it still to get"
    assert shard.finished(slot) == last
    assert shard.had_last_word(slot)
    assert not shard.stopped
    assert shard.finished(slot) is None, "it may go on until it says that it has ended"
    assert looks(shard, slot) == (SlotState.IDLE, 0)
    assert (shard.lingering, shard.slots) == (1, {"a": slot})
    assert not slot.is_idle
    assert deliver(shard, 2) is Verdict.QUEUED, "for its next incarnation"
    assert shard.end(slot), "it took too long"
    assert not shard.had_last_word(slot)
    assert shard.lingering == 0
    assert shard.finished(slot) is None
    assert looks(shard, slot) == (SlotState.LOADING, 1)


def test_only_one_that_ignores_its_stop_message_is_ended() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert not shard.end(slot), "it is not to stop"
    shard.passivate(slot, (CALLER, envelope(9, command="stop")))
    assert not shard.end(slot), "it runs"
    assert (shard.lingering, shard.busy, slot.ended) == (0, 1, False)
    shard.finished(slot)
    shard.finished(slot)
    shard.drop(slot)
    assert not shard.end(slot), "it is gone"
    assert (shard.lingering, shard.busy) == (0, 0)


# -- Pipelining ------------------------------------------------------------------------------------


def test_a_commit_under_way_keeps_its_entity_and_its_shard() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 2) is Verdict.RUN
    shard.overlaps(slot)
    assert shard.finished(slot) is None
    assert (slot.is_idle, shard.busy, shard.idle()) == (False, 1, [])
    shard.passivate(slot)
    assert shard.finished(slot) is None
    assert shard.slots == {"a": slot}, "its commit is under way"
    shard.stop()
    assert not shard.stopped
    assert shard.settled(slot), "now it can stop"
    assert not shard.stopped
    assert shard.finished(slot) is None
    assert (shard.slots, slot.entity, shard.stopped) == ({}, None, True)


def test_one_that_stops_with_a_commit_under_way_goes_when_the_last_is_through() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 2) is Verdict.RUN
    for _ in range(2):
        shard.overlaps(slot)
    shard.passivate(slot)
    assert shard.finished(slot) is None
    assert not shard.settled(slot)
    assert shard.slots == {"a": slot}
    assert (slot.pending, shard.busy) == (1, 1)
    assert shard.settled(slot)
    assert shard.finished(slot) is None
    assert (shard.slots, slot.pending, shard.busy) == ({}, 0, 0)


def test_what_comes_while_the_last_commit_of_one_that_stops_is_under_way_runs_later() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 2) is Verdict.RUN
    shard.overlaps(slot)
    shard.passivate(slot)
    assert shard.finished(slot) is None
    assert deliver(shard, 3) is Verdict.QUEUED
    assert shard.settled(slot)
    assert shard.finished(slot) is None
    assert (slot.state, slot.passivating, shard.busy) == (SlotState.LOADING, False, 1)
    shard.loaded(slot)
    work = shard.finished(slot)
    assert work is not None
    assert work[1].request == 3


def test_one_that_stops_by_itself_runs_nothing_behind_its_last_commit() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 2) is Verdict.RUN
    shard.overlaps(slot)
    slot.ended = True
    assert shard.finished(slot) is None
    assert deliver(shard, 3) is Verdict.QUEUED
    assert shard.settled(slot)
    assert shard.finished(slot) is None
    assert (slot.state, slot.ended) == (SlotState.LOADING, False)


def test_a_commit_that_is_through_changes_nothing_of_one_that_goes_on() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 2) is Verdict.RUN
    shard.overlaps(slot)
    shard.finished(slot)
    entity = slot.entity
    assert not shard.settled(slot)
    assert (shard.slots, slot.entity, slot.is_idle, shard.busy) == ({"a": slot}, entity, True, 0)


# -- Objects that are thrown away ------------------------------------------------------------------


def test_an_object_that_is_read_again_is_another_generation() -> None:
    shard = a_shard()
    slot = loaded(shard)
    for busy in (False, True):
        if busy:
            assert deliver(shard, 2) is Verdict.RUN
            shard.overlaps(slot)
        generation = slot.generation
        shard.reload(slot)
        assert looks(shard, slot) == (SlotState.LOADING, 1), "with no commit under way any more"
        assert (slot.generation, slot.entity, slot.pending) == (generation + 1, None, 0)
        shard.loaded(slot)
        assert shard.finished(slot) is None
        assert looks(shard, slot) == (SlotState.IDLE, 0)


def test_one_that_is_dropped_gives_back_what_waits_for_it() -> None:
    shard = a_shard()
    slot = loaded(shard)
    assert deliver(shard, 2) is Verdict.RUN
    shard.overlaps(slot)
    deliver(shard, 3)
    deliver(shard, 4)
    assert [request_of(work) for work in shard.drop(slot)] == [3, 4]
    assert (shard.slots, slot.entity, slot.generation, slot.pending) == ({}, None, 1, 0)
    assert looks(shard, slot) == (SlotState.GONE, 0)
    assert shard.drop(slot) == []
    assert (slot.generation, shard.busy) == (1, 0)
    idle = loaded(shard, "b")
    assert shard.drop(idle) == []
    assert shard.busy == 0


def test_one_that_ignores_its_stop_message_lingers_no_more_when_its_object_goes() -> None:
    for throw_away in (Shard.drop, Shard.reload):
        shard = a_shard()
        slot = loaded(shard)
        shard.passivate(slot, (CALLER, envelope(9, command="stop")))
        shard.finished(slot)
        shard.finished(slot)
        assert shard.lingering == 1
        throw_away(shard, slot)
        assert shard.lingering == 0


# -- The shard stops -------------------------------------------------------------------------------


def test_a_shard_hands_back_what_waits_and_stops_when_all_has_ended() -> None:
    shard = a_shard()
    first, second = loaded(shard, "a"), loaded(shard, "b")
    for entity, request in (("a", 2), ("b", 3)):
        assert deliver(shard, request, entity) is Verdict.RUN
    deliver(shard, 4, "a")
    deliver(shard, 5, "b")
    assert not shard.stopped
    assert sorted(request_of(work) for work in shard.stop()) == [4, 5]
    assert shard.deliver(CALLER, envelope(6, "a"), 0.0) == (Verdict.HAND_BACK, None)
    assert shard.deliver(CALLER, envelope(7, "c"), 0.0) == (Verdict.HAND_BACK, None)
    assert shard.finished(first) is None
    assert not shard.stopped
    assert shard.finished(second) is None
    assert shard.stopped


def test_a_shard_without_entities_has_stopped_only_if_it_was_to() -> None:
    shard = a_shard()
    assert not shard.stopped
    assert shard.stop() == []
    assert shard.stopped


# -- What is due -----------------------------------------------------------------------------------


def test_the_first_that_are_idle_for_long_are_due() -> None:
    shard = a_shard()
    for number, entity in enumerate("abcd"):
        loaded(shard, entity, now=float(number))
    assert deliver(shard, 2, "a", now=9.0) is Verdict.RUN, "it is used again"
    assert [each.id for each in shard.due(3.0, 10)] == ["b", "c"]
    assert [each.id for each in shard.due(3.5, 10)] == ["b", "c", "d"]
    assert [each.id for each in shard.due(3.5, 2)] == ["b", "c"]
    assert [each.id for each in shard.due(20.0, 10)] == ["b", "c", "d"], "one that is busy is not due"
    assert [each.id for each in shard.idle()] == ["b", "c", "d"]


def test_what_an_entity_tells_itself_is_no_use_of_it() -> None:
    shard = a_shard()
    slot = loaded(shard, now=1.0)
    assert shard.deliver("", envelope(0), 50.0)[0] is Verdict.RUN
    assert shard.finished(slot) is None
    assert slot.touched == 1.0
    assert shard.due(2.0, 10) == [slot]
