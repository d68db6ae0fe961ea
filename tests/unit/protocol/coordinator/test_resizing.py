"""What the coordinator does for a resize, step by step."""

import msgspec
import pytest

from sharding_app.adapters.memory.cluster_rows import ClusterRows
from sharding_app.protocol.coordinator.settings import CoordinatorSettings
from sharding_app.protocol.messages import GetShardHome, NoHome, Renumbered, ShardHome
from sharding_app.protocol.numbering import Numbering
from sharding_app.protocol.records import TypeConfig
from tests.unit.protocol.coordinator.coordination import TYPE, Play, node

CONFIG = TypeConfig(TYPE, "event_sourced", 4, "hash:crc32-1", "crc32-1", "", "postgres")
ONE_GROUP = CoordinatorSettings(resized_at_once=1)


def a_store(shards: int = 4) -> ClusterRows:
    store = ClusterRows(lambda _: False)
    store.register_types([msgspec.structs.replace(CONFIG, number_of_shards=shards)])
    return store


def placed(shards: int = 4, settings: CoordinatorSettings | None = None) -> tuple[Play, ClusterRows]:
    store = a_store(shards)
    play = Play([node("a", 1), node("b", 2)], store=store, settings=settings)
    play.ask("p-1", *range(shards))
    play.machine.proxy_registered("p-1", [TYPE], play.now)
    play.play()
    return play, store


def resize(play: Play, store: ClusterRows, wanted: int) -> None:
    assert store.resize(TYPE, store.types[TYPE].number_of_shards, wanted)
    play.machine.types_read({TYPE: store.types[TYPE].numbering})
    play.machine.tick(play.now)
    play.play()


def test_shards_are_multiplied_and_live_again() -> None:
    play, store = placed()
    resize(play, store, 12)
    play.wait(20)
    assert store.types[TYPE].numbering == Numbering(12, revision=store.types[TYPE].revision)
    assert set(play.homes()) == set(range(12))
    assert all(play.homes().values())
    assert play.noted("type_resized") == [TYPE]
    assert not play.machine.resizing.busy


def test_shards_are_merged_and_the_others_are_forgotten() -> None:
    play, store = placed(12)
    resize(play, store, 3)
    play.wait(20)
    assert {shard for shard, home in play.homes().items() if home} == {0, 1, 2}
    assert set(play.machine.placement.rows) == {(TYPE, shard) for shard in range(3)}
    assert store.types[TYPE].numbering.shards == 3


def test_one_group_after_the_other_changes_and_the_others_keep_their_homes() -> None:
    play, store = placed(settings=ONE_GROUP)
    before = dict(store.shards)
    play.silent.update("ab")
    resize(play, store, 8)
    assert {shard for (_, shard), row in store.shards.items() if row.step != "home"} == {0}
    assert all(store.shards[TYPE, shard] == before[TYPE, shard] for shard in (1, 2, 3))
    play.silent.clear()
    play.wait(20)
    assert [each.upto for each in play.steps] == [1, 2, 3, 4]


def test_everybody_is_told_of_the_numbers_before_the_homes() -> None:
    play, store = placed()
    resize(play, store, 8)
    play.wait(20)
    for who in ("a", "b", "p-1"):
        told = [message for to, message in play.told if to == who]
        first = next(n for n, each in enumerate(told) if isinstance(each, ShardHome) and max(each.shards) > 3)
        assert any(isinstance(each, Renumbered) for each in told[:first])


def test_a_new_coordinator_goes_on_with_a_resize() -> None:
    play, store = placed(settings=ONE_GROUP)
    play.starts_nothing.update("ab")
    resize(play, store, 8)
    while len(play.steps) < 2:
        play.wait(0.1)
    assert store.types[TYPE].resized
    later = Play([node("a", 1), node("b", 2)], store=store, settings=ONE_GROUP)
    later.wait(20)
    assert store.types[TYPE].numbering.shards == 8
    assert all(later.homes().values())


def test_a_step_whose_answer_was_lost_is_found_in_the_rows() -> None:
    play, store = placed(settings=ONE_GROUP)
    play.no_step = True
    resize(play, store, 8)
    play.wait(2)
    step = play.steps[0]
    store.renumbered(TYPE, step.upto, step.least_epoch)
    play.no_step = False
    play.machine.types_read({TYPE: store.types[TYPE].numbering})
    play.wait(20)
    assert store.types[TYPE].numbering.shards == 8
    assert all(play.homes().values())


def test_a_step_that_the_store_does_not_take_is_tried_again_after_a_pause() -> None:
    play, store = placed(settings=ONE_GROUP)
    play.no_step = True
    resize(play, store, 8)
    play.wait(5)
    assert 3 <= len(play.steps) <= 6


def asked(play: Play, shard: int, numbering: Numbering) -> list[object]:
    """Let a process ask for a shard by these numbers; return the coordinator's words."""
    play.told.clear()
    play.machine.receive("p-2", GetShardHome(TYPE, [shard], numbering), play.now)
    play.play()
    return [message for to, message in play.told if to == "p-2"]


@pytest.mark.parametrize("away", [-2, 0, 1])
def test_a_process_that_asks_by_other_numbers_is_told_the_present_ones(away: int) -> None:
    """Those of a lower revision are former ones. The server may have lost steps of any other."""
    play, store = placed(8)
    resize(play, store, 4)
    play.wait(20)
    present = store.types[TYPE].numbering
    others = Numbering(8, revision=present.revision + away)
    (word,) = asked(play, 7, others)
    assert isinstance(word, Renumbered), "its shard may be one by the numbers that it has"
    assert word.numbering == present
    assert [type(each) for each in asked(play, 3, present)] == [ShardHome]
    assert [type(each) for each in asked(play, 7, present)] == [NoHome]


def test_nothing_is_resized_while_the_cluster_stops() -> None:
    play, store = placed()
    play.change("a", asked="prepare")
    resize(play, store, 8)
    play.wait(5)
    assert play.steps == []
    assert all(play.homes().values())


def test_a_group_without_any_row_changes_at_once() -> None:
    store = a_store()
    play = Play([node("a", 1)], store=store)
    resize(play, store, 2)
    play.wait(1)
    assert store.types[TYPE].numbering.shards == 2
    assert play.homes() == {}
