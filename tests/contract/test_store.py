"""What every cluster store does (`ports.store`)."""

import asyncio

import msgspec
import pytest

from sharding_app.ports.store import StaleTerm, StoreRefused
from sharding_app.protocol.liveness.locks import lifeline_keys
from sharding_app.protocol.records import Backend, CoordinatorRow, Decision, HomeChange, Server, ShardRow
from tests.contract.factories import World
from tests.support.given import CART, elected, homed, joined, member, until, with_type

pytestmark = pytest.mark.asyncio


def change(shard: int, expected: int, epoch: int, home: str | None = "a", step: str = "home") -> HomeChange:
    return HomeChange(CART.name, shard, expected, epoch, home, step)  # type: ignore[arg-type]


def row(shard: int, epoch: int, home: str | None = "a", step: str = "home") -> ShardRow:
    return ShardRow(CART.name, shard, epoch, home, step)  # type: ignore[arg-type]


def numbered(shard: int, epoch: int, home: str = "a") -> ShardRow:
    """Return a row as it is read together with the numbers of its type."""
    return msgspec.structs.replace(row(shard, epoch, home), numbering=CART.numbering)


async def test_everybody_sees_the_same_cluster_id(world: World) -> None:
    ids = await asyncio.gather(
        *(world.store(str(number), lock_seconds=60).cluster_id() for number in range(4))
    )
    assert len(set(ids)) == 1
    assert ids[0]


async def test_the_first_to_register_says_what_a_type_is(world: World) -> None:
    first, second = world.store(), world.store()
    other = msgspec.structs.replace(CART, name="shop.Order")
    numbers, differing = await first.register_types([CART, other])
    assert differing == {}
    assert len(set(numbers.values())) == 2
    changed = msgspec.structs.replace(CART, number_of_shards=7)
    again, differing = await second.register_types([other, changed])
    assert again == numbers
    assert differing == {CART.name: CART}
    assert await second.type_ids() == numbers
    assert await second.types() == [CART, other]


async def test_registering_nothing_is_nothing(world: World) -> None:
    assert await world.store().register_types([]) == ({}, {})
    assert await world.store().types() == []


async def test_many_register_at_once(world: World) -> None:
    """They agree on the numbers, in whatever order each of them names the types; none is refused
    because of another.
    """
    stores = [world.store(str(number), lock_seconds=60) for number in range(5)]
    await asyncio.gather(*(store.types() for store in stores))  # all are connected
    for turn in range(5):
        types = [msgspec.structs.replace(CART, name=f"shop.Type{turn}of{number}") for number in range(20)]
        answers = await asyncio.gather(
            *(
                store.register_types(types if number % 2 else types[::-1])
                for number, store in enumerate(stores)
            )
        )
        assert all(answer == answers[0] for answer in answers)
        numbers, differing = answers[0]
        assert len(set(numbers.values())) == len(types)
        assert not differing


async def test_each_member_is_one_older_than_any_before(world: World) -> None:
    store = world.store()
    first = await store.join(member("a"), (1, 2))
    second = await store.join(member("b"), (3, 4))
    await store.leave("b")
    third = await store.join(member("c"), (5, 6))
    assert (second - first, third - second) == (1, 1)
    _, members = await store.members()
    assert [(each.incarnation, each.age) for each in members] == [("a", first), ("c", third)]


async def test_a_member_is_read_back_as_it_was_written(world: World) -> None:
    store = world.store()
    written = member(
        "a",
        name="größe",
        state="joining",
        roles=("backend", "api"),
        app_version="2.1.0",
        candidate=False,
        types=("shop.Cart",),
        deaf=True,
        server=Server("2026-01-01T00:00:00Z", 3),
        backends=(Backend(17, "2026-01-01T00:00:00.123456Z"),),
    )
    age = await store.join(written, (1, 2))
    _, members = await store.members()
    assert members == [msgspec.structs.replace(written, age=age, locks=0)]


async def test_there_may_be_no_member(world: World) -> None:
    server, members = await world.store().members()
    assert members == []
    assert server.started


async def test_the_given_fields_of_a_member_change(world: World) -> None:
    store = world.store()
    age = await store.join(member("a", state="joining", roles=("x",)), (1, 2))
    assert await store.update_member("a", state="up")
    assert await store.update_member("a", deaf=True)
    assert await store.update_member("a", server=Server("then", 2))
    changed = member(
        "a", name="ignored", roles=("y", "z"), types=("shop.Cart",), backends=(Backend(1, "then"),)
    )
    assert await store.update_member("a", member=changed)
    _, members = await store.members()
    assert members == [
        member(
            "a",
            age=age,
            state="up",
            deaf=True,
            server=Server("then", 2),
            roles=("y", "z"),
            types=("shop.Cart",),
            backends=(Backend(1, "then"),),
        )
    ]


async def test_a_member_that_has_lost_a_lock_says_so(world: World) -> None:
    """From then on the loss of the other one is no proof of its death."""
    store = world.store()
    await store.join(member("a"), (1, 2))
    assert await store.update_member("a", server=Server("then", 2))
    assert await store.update_member("a", unsettled=True)
    assert [each.server for each in (await store.members())[1]] == [None]
    assert await store.update_member("a", server=Server("now", 3))
    assert [each.server for each in (await store.members())[1]] == [Server("now", 3)]


async def test_a_member_that_is_gone_cannot_be_changed(world: World) -> None:
    store = world.store()
    assert not await store.update_member("a", state="up")
    await store.join(member("a"), (1, 2))
    await store.leave("a")
    await store.leave("a")
    assert not await store.update_member("a", deaf=False)


async def test_locks_are_counted_as_they_are_held_now(world: World) -> None:
    store = world.store()

    async def held() -> dict[str, int]:
        _, members = await store.members()
        return {each.incarnation: each.locks for each in members}

    first = await joined(world, store, "a")
    second = await joined(world, store, "b")
    assert await held() == {"a": 2, "b": 2}
    await first[0].unlock(lifeline_keys(await store.cluster_id(), "a")[0])
    assert await held() == {"a": 1, "b": 2}
    for session in second:
        await session.close()

    async def seen() -> bool:
        return await held() == {"a": 1, "b": 0}

    await until(seen)


async def test_a_new_cluster_has_no_coordinator(world: World) -> None:
    assert await world.store().coordinator() == CoordinatorRow(0, None)


async def test_shards_get_homes_and_move(world: World) -> None:
    store = world.store()
    await with_type(store)
    term = await elected(world)
    assert sorted(await store.decide(term, [change(3, 0, 1), change(1, 0, 1, "b")]), key=_by_shard) == [
        row(1, 1, "b"),
        row(3, 1),
    ]
    assert await store.decide(term, [change(3, 1, 1, "a", "handoff")]) == [row(3, 1, "a", "handoff")]
    assert await store.decide(term, [change(3, 1, 1, None, "stopped")]) == [row(3, 1, None, "stopped")]
    assert await store.decide(term, [change(3, 1, 2, "b")]) == [row(3, 2, "b")]
    assert await store.shards() == [row(1, 1, "b"), row(3, 2, "b")]
    assert await store.home_counts() == {"b": 2}
    assert await store.shards(["shop.Cart", "shop.Other"]) == [row(1, 1, "b"), row(3, 2, "b")]
    assert await store.shards(["shop.Other"]) == await store.shards([]) == []
    assert await store.homes("shop.Cart", [3, 4]) == [numbered(3, 2, "b")]


async def test_a_decision_takes_effect_only_at_the_expected_epoch(world: World) -> None:
    store = world.store()
    await with_type(store)
    term = await elected(world)
    await store.decide(term, [change(1, 0, 1), change(2, 0, 1), change(3, 0, 4)])
    now = await store.decide(
        term,
        [change(1, 0, 9, "late"), change(2, 1, 2, "b"), change(3, 3, 5, "late"), change(4, 1, 2, "late")],
    )
    assert sorted(now, key=_by_shard) == [row(1, 1), row(2, 2, "b"), row(3, 4)]
    assert await store.shards() == [row(1, 1), row(2, 2, "b"), row(3, 4)]


@pytest.mark.parametrize(
    "bad",
    [change(3_000_000_000, 0, 1), change(-7, 0, 1), change(2, 0, 1, "a\0b"), change(2, 0, 1, "\ud800"),
     HomeChange("shop\0", 1, 0, 1, "a", "home")],
    ids=["too large", "negative", "NUL", "surrogate", "type"],
)  # fmt: skip
async def test_what_can_never_be_a_row_is_refused_with_its_batch(world: World, bad: HomeChange) -> None:
    store = world.store()
    await with_type(store)
    term = await elected(world)
    with pytest.raises(StoreRefused):
        await store.decide(term, [change(1, 0, 1), bad])
    assert await store.shards() == []
    assert await store.decide(term, [change(1, 0, 1)]) == [row(1, 1)]


async def test_a_change_of_a_type_that_is_not_known_is_no_row(world: World) -> None:
    store = world.store()
    term = await elected(world)
    assert await store.decide(term, [change(1, 0, 1)]) == []


async def test_a_row_is_made_anew_at_a_later_epoch(world: World) -> None:
    """So the coordinator replaces one that was deleted under it."""
    store = world.store()
    await with_type(store)
    term = await elected(world)
    assert await store.decide(term, [change(1, 7, 8)]) == []
    assert await store.decide(term, [change(1, 0, 8)]) == [row(1, 8)]


async def test_a_stale_term_decides_nothing(world: World) -> None:
    store = world.store()
    await with_type(store)
    former = await elected(world, "former")
    await store.decide(former, [change(1, 0, 1)])
    session = world.session("next")
    await store.join(member("next"), (3, 4))
    await session.open()

    async def takes_over() -> bool:
        return await session.elect("next") is not None

    _, members = await store.members()
    assert [each.incarnation for each in members] == ["former", "next"]
    # The former coordinator's session still holds the lock: only its end makes room.
    assert not await takes_over()
    assert await store.coordinator() == CoordinatorRow(former, "former")
    for stale in (former - 1, former + 1):
        with pytest.raises(StaleTerm):
            await store.decide(stale, [change(1, 1, 2, "b"), change(2, 0, 1)])
        with pytest.raises(StaleTerm):
            await store.bury(stale, "next")
    assert await store.shards() == [row(1, 1)]
    assert len((await store.members())[1]) == 2


async def test_nothing_decided_is_fine_at_the_right_term_only(world: World) -> None:
    store = world.store()
    term = await elected(world)
    assert await store.decide(term, []) == []
    with pytest.raises(StaleTerm):
        await store.decide(term + 1, [])


async def test_homes_are_read_by_type_and_shard(world: World) -> None:
    store = world.store()
    other = msgspec.structs.replace(CART, name="shop.Order")
    await store.register_types([CART, other])
    term = await elected(world)
    await store.decide(term, [change(1, 0, 1), change(2, 0, 1), HomeChange(other.name, 1, 0, 5, "b", "home")])
    assert await store.homes(CART.name, [2, 7]) == [numbered(2, 1)]
    assert await store.homes(CART.name, []) == []
    assert await store.homes("unknown", [1]) == []
    assert await store.shards([other.name]) == [ShardRow(other.name, 1, 5, "b", "home")]
    assert await store.shards([]) == []
    assert len(await store.shards()) == 3


async def test_many_shards_are_decided_at_once(world: World) -> None:
    store = world.store()
    config = msgspec.structs.replace(CART, number_of_shards=10_000)
    await with_type(store, config)
    term = await elected(world)
    rows = await store.decide(term, [change(shard, 0, 1) for shard in range(10_000)])
    assert len(rows) == 10_000
    rows = await store.decide(term, [change(shard, 1, 2, "b") for shard in range(10_000)])
    assert {each.epoch for each in rows} == {2}


async def test_the_dead_are_buried(world: World) -> None:
    store = world.store()
    term = await elected(world)
    await store.join(member("dead"), (3, 4))
    assert await store.bury(term, "dead")
    assert await store.bury(term, "dead")
    assert [each.incarnation for each in (await store.members())[1]] == ["coordinator"]


async def test_who_came_back_in_time_is_not_buried(world: World) -> None:
    """The verdict may be older than the locks that the member has taken again since."""
    store = world.store()
    term = await elected(world)
    await store.join(member("back"), (3, 4))
    session = world.session("back")
    await session.open()
    await session.lock(4)
    assert await store.update_member("back")
    assert not await store.bury(term, "back")
    await session.ping()
    assert {each.incarnation for each in (await store.members())[1]} == {"coordinator", "back"}
    await session.close()

    async def buried() -> bool:
        return await store.bury(term, "back")

    await until(buried)
    assert not await store.update_member("back")


async def test_burial_ends_the_connections_that_the_row_names(world: World) -> None:
    store = world.store()
    term = await elected(world)
    session = world.session("elsewhere")
    backend = await session.open()
    await session.lock(77)
    await store.join(member("dead", backends=(backend, Backend(backend.pid + 1, backend.started))), (3, 4))
    await store.join(member("witness"), (77, 78))
    await store.bury(term, "dead")

    async def freed() -> bool:
        return {each.incarnation: each.locks for each in (await store.members())[1]}["witness"] == 0

    await until(freed)


async def test_burial_spares_a_process_that_only_got_the_same_pid(world: World) -> None:
    store = world.store()
    term = await elected(world)
    session = world.session("elsewhere")
    backend = await session.open()
    await store.join(member("dead", backends=(Backend(backend.pid, "2001-01-01T00:00:00.000000Z"),)), (3, 4))
    await store.bury(term, "dead")
    assert (await session.ping()).server == (await store.members())[0]


async def test_the_timeline_takes_lines(world: World) -> None:
    store = world.store()
    await store.record([])
    await store.record([Decision("allocated", "shop.Cart/1", "to a"), Decision("buried", "b")])
    await store.close()
    assert await store.coordinator() == CoordinatorRow(0, None)


def _by_shard(each: ShardRow) -> int:
    return each.shard


async def test_coming_back_writes_the_row_and_reads_the_homes_on_one_server(world: World) -> None:
    store = world.store()
    await homed(world, {3: 1, 5: 4}, home="a")
    await store.join(member("a"), (11, 12))
    server, _ = await store.members()
    found = await store.come_back("a", server)
    assert found is not None
    assert found[0] == server
    assert [(row.shard, row.epoch, row.home) for row in found[1]] == [(3, 1, "a"), (5, 4, "a")]
    assert [each.server for each in (await store.members())[1] if each.incarnation == "a"] == [server]
    assert await store.come_back("a", None) == found
    assert [each.server for each in (await store.members())[1] if each.incarnation == "a"] == [None]
    await store.join(member("b"), (13, 14))
    assert await store.come_back("b", server) == (server, [])
    assert await store.come_back("nobody", server) is None


async def test_where_a_member_listens_is_in_its_row(world: World) -> None:
    store = world.store("n-1")
    await store.cluster_id()
    addresses = ("unix:/run/x.sock", "tcp:[::1]:7400")
    await store.join(member("n-1", addresses=addresses), (1, 2))
    _, [found] = await store.members()
    assert found.addresses == addresses
    await store.join(member("n-1", addresses=()), (1, 2))
    _, [found] = await store.members()
    assert found.addresses == ()


async def test_a_node_does_not_use_the_database_of_another_journal(world: World) -> None:
    """The row of the journal's own name was lost with a failover, or another node was first."""
    store = world.store()
    assert await store.journal_place("second", "there") == ("second", "there")
    await joined(world, store, "n-one")
    assert await store.use_journal("n-one", "third", "there") == ""
    assert await store.use_journal("n-one", "third", None) == ""
    assert await store.journals_in_use(but="n-two") == frozenset()
    assert await store.use_journal("n-one", "third", "beside it") == "beside it"
    assert await store.journals_in_use(but="n-two") == {"third"}


async def test_nodes_say_which_journals_they_use(world: World) -> None:
    store = world.store()
    for name, place in {"second": "there", "third": "beside it"}.items():
        assert await store.journal_place(name, place) == (name, place)
    assert await store.use_journal("n-gone", "second", "there") is None, "there is no row"
    for name, state in {"n-one": "up", "n-two": "up", "n-late": "joining"}.items():
        await joined(world, store, name, state=state)
        assert await store.use_journal(name, "second", "there") == "there"
    assert await store.use_journal("n-one", "third", "elsewhere") == "beside it"
    assert await store.journals_in_use(but="n-two") == {"second"}, "it lies in another place"
    assert await store.use_journal("n-one", "third", "beside it") == "beside it"
    assert await store.use_journal("n-one", "third", "beside it") == "beside it", "it may be repeated"
    assert await store.journals_in_use(but="n-one") == {"second"}
    assert await store.journals_in_use(but="n-two") == {"second", "third"}
    assert await store.use_journal("n-two", "second", None) == "there"
    assert await store.use_journal("n-two", "fourth", "here") == "here", "its row is lost, and made anew"
    assert await store.journal_place("fourth", "elsewhere") == ("fourth", "here")
    assert await store.use_journal("n-two", "fourth", None) == "here"
    assert await store.journals_in_use(but="n-one") == frozenset(), "one that joins serves nothing yet"
