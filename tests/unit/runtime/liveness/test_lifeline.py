"""The lifeline on virtual time, against a scripted server."""

import asyncio
import itertools
import logging
from zlib import crc32

import pytest

from sharding_app.ports.lifeline import Pulse
from sharding_app.runtime.base.config import by_chance
from tests.unit.runtime.virtual_time import COORDINATOR, LATENCY, World, run


def test_locks_both_and_becomes_valid() -> None:
    async def main(world: World) -> None:
        node = await world.node().start()
        assert set(world.locks) == set(node.keys)
        await node.until("settled 1") if "settled 1" not in node.told else None
        assert node.told == ["valid", "settled 1"]
        assert node.lease.is_valid(world.now())

    run(main)


def test_at_rest_four_queries_a_second() -> None:
    async def main(world: World) -> None:
        older = await world.node("a").start(candidate=True)
        younger = await world.node("b").start(candidate=True)
        await asyncio.sleep(5)
        since = world.now()
        await asyncio.sleep(10)
        assert older.lifeline.term == 1
        assert younger.lifeline.term is None
        assert world.count(since, "elect") == 0
        assert world.count(since) / 10 / 2 == pytest.approx(4.0, abs=0.2)
        assert older.told == ["valid", "settled 1", "elected 1"]
        gaps = [b.server == a.server for a, b in zip(older.pulses, older.pulses[1:], strict=False)]
        assert all(gaps)

    run(main)


def test_the_two_sessions_look_half_an_interval_apart() -> None:
    async def main(world: World) -> None:
        await world.node().start()
        await asyncio.sleep(2)
        since = world.now()
        await asyncio.sleep(4)
        at = [when for when, _, kind in world.queries if when >= since and kind == "ping"]
        assert len(at) == 16
        assert max(later - earlier for earlier, later in itertools.pairwise(at)) == pytest.approx(
            0.25, abs=0.01
        )

    run(main)


def test_a_freeze_longer_than_the_limit_suspends_until_rows_are_compared() -> None:
    async def main(world: World) -> None:
        node = await world.node().start()
        node.resume_at_once = False
        await asyncio.sleep(1)
        world.loop.freeze(2.5)
        assert not node.lease.is_valid(world.now()), "by its own clock, before anything else has run"
        await node.until("back")
        assert node.told[2:] == ["suspended", "back"]
        assert all(session.opened == 1 for session in node.sessions), "the locks were never lost"
        await asyncio.sleep(5)
        assert not node.lease.is_valid(world.now())
        assert await node.lifeline.resume(node.lease.generation)
        assert node.lease.is_valid(world.now())

    run(main)


def test_a_freeze_longer_than_the_ttl_comes_back_through_new_sessions() -> None:
    async def main(world: World) -> None:
        node = await world.node().start()
        await asyncio.sleep(1)
        world.loop.freeze(4.0)
        assert not node.lease.is_valid(world.now())
        await node.until("back")
        await asyncio.sleep(1)
        assert node.told.count("suspended") == node.told.count("back") >= 1
        assert all(session.opened == 2 for session in node.sessions)
        assert node.lease.is_valid(world.now())
        assert node.lifeline.losses == 2

    run(main)


def test_one_lost_session_is_replaced_and_the_other_vouches_meanwhile() -> None:
    async def main(world: World) -> None:
        node = await world.node().start()
        await asyncio.sleep(1)
        node.sessions[1].kill()
        assert await node.until("back") < 1.0
        await asyncio.sleep(2)
        assert node.told == ["valid", "settled 1", "suspended", "back", "settled 1"]
        assert set(world.locks) == set(node.keys)

    run(main)


def test_after_a_server_restart_it_is_back_within_a_third_of_a_second() -> None:
    async def main(world: World) -> None:
        node = await world.node().start(candidate=True)
        await node.until("elected 1")
        await asyncio.sleep(1)
        world.kill()
        await node.until("suspended")
        assert "deposed" in node.told
        assert not node.lease.is_valid(world.now())
        await asyncio.sleep(30)
        world.restart()
        assert await node.until("back") < 0.3
        for word in ("settled 2", "elected 2"):
            if word not in node.told:
                await node.until(word)
        assert node.lease.is_valid(world.now())

    run(main)


def test_both_sessions_that_the_server_ends_at_once_are_known_before_another_node_can_act_on_it() -> None:
    """Their locks are free: the others take the process for dead, and wait for nothing."""

    async def main(world: World) -> None:
        node = await world.node().start()
        for moment in (0.01, 0.11, 0.24, 0.26, 0.49):
            await asyncio.sleep(2.0 + moment)
            assert node.lease.is_valid(world.now())
            since = world.now()
            for session in node.sessions:
                session.kill()
            await node.until("suspended")
            assert not node.lease.is_valid(world.now())
            assert node.at["suspended"] - since < 3 * LATENCY
            if node.told[-1] != "back":
                await node.until("back")

    run(main)


def test_words_of_the_server_that_mean_nothing_cost_a_ping_each() -> None:
    async def main(world: World) -> None:
        node = await world.node().start()
        await asyncio.sleep(1.1)
        since = world.now()
        for _ in range(3):
            node.sessions[0].say()
            await asyncio.sleep(0.01)
        assert world.count(since, "ping") == 3
        assert node.told == ["valid", "settled 1"]

    run(main)


def test_a_loop_that_stands_still_does_not_listen() -> None:
    """It asks nothing, so it would hear the same word for ever."""

    async def main(world: World) -> None:
        node = await world.node(loop_stall_limit_seconds=10.0).start()
        assert all(session.heard is not None for session in node.sessions)
        node.heart.stopped = True
        await asyncio.sleep(15)
        assert [session.heard for session in node.sessions] == [None, None]
        node.heart.stopped = False
        await node.until("back")

    run(main)


def test_a_hanging_network_ends_the_lease_in_time_and_is_left_behind() -> None:
    async def main(world: World) -> None:
        node = await world.node().start()
        await asyncio.sleep(1)
        for session in node.sessions:
            session.deaf = True
        took = await node.until("suspended")
        assert 1.4 < took <= 2.0
        await asyncio.sleep(20)
        for session in node.sessions:
            session.deaf = False
        assert await node.until("back", limit=4.0) < 3.5, "one attempt to connect may just have begun"

    run(main)


def test_waits_for_its_own_former_session_to_be_given_up() -> None:
    """The client has lost the connection, the server does not know it yet."""

    async def main(world: World) -> None:
        node = await world.node().start()
        await asyncio.sleep(1)
        ghost = type(node.sessions[0])(world, "ghost")
        ghost.alive, ghost.last_seen = True, world.now()
        node.sessions[0].kill()
        world.locks[node.keys[0]] = ghost
        await asyncio.sleep(2.5)
        assert world.locks[node.keys[0]] is ghost
        assert node.lease.is_valid(world.now()), "the other session renews"
        await node.until("settled 1")
        assert world.locks[node.keys[0]] is node.sessions[0]

    run(main)


def test_takes_over_within_a_pulse_when_the_coordinator_dies() -> None:
    async def main(world: World) -> None:
        first = await world.node("a").start(candidate=True)
        second = await world.node("b").start(candidate=True)
        await asyncio.sleep(3)
        assert second.lifeline.term is None
        first.electable = False
        for task in first.lifeline._tasks:
            task.cancel()
        for session in first.sessions:
            session.kill()
        assert await second.until("elected 2") < 0.3

    run(main)


def test_takes_over_in_milliseconds_when_told_to_look() -> None:
    async def main(world: World) -> None:
        first = await world.node("a").start(candidate=True)
        second = await world.node("b").start(candidate=True)
        await asyncio.sleep(3.1)
        second.lifeline.look_now()
        await asyncio.sleep(0.05)
        for task in first.lifeline._tasks:
            task.cancel()
        for session in first.sessions:
            session.kill()
        assert await second.until("elected 2") < 0.03

    run(main)


def test_looking_closely_ends_by_itself() -> None:
    async def main(world: World) -> None:
        await world.node("a").start(candidate=True)
        second = await world.node("b").start(candidate=True)
        await asyncio.sleep(3)
        since = world.now()
        second.lifeline.look_now()
        await asyncio.sleep(1.5)
        close = world.count(since, "elect")
        assert 30 <= close <= 55
        await asyncio.sleep(10)
        assert world.count(since, "elect") == close

    run(main)


def test_the_many_who_are_not_next_in_line_look_seldom() -> None:
    """Each look reads the locks of all members: a hundred candidates must not look fifty times a
    second.
    """

    async def main(world: World) -> None:
        nodes = [await world.node(f"n{number:02}").start(candidate=True) for number in range(30)]
        await asyncio.sleep(5)
        since = world.now()
        nodes[0].electable = False
        for task in nodes[0].lifeline._tasks:
            task.cancel()
        for session in nodes[0].sessions:
            session.kill()
        assert await nodes[1].until("elected 2") < 0.3
        await asyncio.sleep(5)
        assert world.count(since, "elect") < 30 + 50 * 4, (
            "30 * 50 if none of them let the older ones go first"
        )

    run(main)


def test_a_vacant_lock_that_an_older_one_leaves_is_not_hammered() -> None:
    async def main(world: World) -> None:
        await world.node("a").start(candidate=False)
        second = await world.node("b").start(candidate=True)
        await asyncio.sleep(5)
        since = world.now()
        await asyncio.sleep(10)
        assert second.lifeline.term is None
        assert world.count(since, "elect") <= 21

    run(main)


def test_resigning_gives_the_lock_back_before_it_returns() -> None:
    async def main(world: World) -> None:
        node = await world.node().start(candidate=True)
        await node.until("elected 1")
        await node.lifeline.resign()
        assert COORDINATOR not in world.locks
        assert node.told[-1] == "deposed"
        await asyncio.sleep(3)
        assert node.lifeline.term is None, "it does not stand again by itself"

    run(main)


def test_resigning_while_being_elected_leaves_no_lock_behind() -> None:
    async def main(world: World) -> None:
        node = await world.node().start()
        node.sessions[0].slow = 0.1
        await asyncio.sleep(1)
        node.lifeline.set_candidate(True)
        while not any(kind == "elect" for _, _, kind in world.queries):
            node.lifeline.look_now()
            await asyncio.sleep(0.01)
            if not node.lifeline._released.is_set():
                break
        await node.lifeline.resign()
        assert COORDINATOR not in world.locks
        assert node.lifeline.term is None

    run(main)


def test_losing_session_zero_deposes_and_interrupts_the_lease_for_a_moment() -> None:
    async def main(world: World) -> None:
        node = await world.node().start(candidate=True)
        await node.until("elected 1")
        await asyncio.sleep(1)
        node.sessions[0].kill()
        await node.until("deposed")
        took = await node.until("back")
        assert took < 0.1, "the other session is asked at once"
        await node.until("elected 2")
        assert node.lease.is_valid(world.now())

    run(main)


def test_a_term_raised_by_another_deposes() -> None:
    async def main(world: World) -> None:
        node = await world.node().start(candidate=True)
        await node.until("elected 1")
        node.lifeline.told_term(1)
        await asyncio.sleep(2)
        assert node.lifeline.term == 1
        node.lifeline.told_term(6)
        await node.until("deposed")

    run(main)


def test_stops_renewing_when_the_main_loop_stands_still() -> None:
    async def main(world: World) -> None:
        node = await world.node(loop_stall_limit_seconds=10.0).start()
        await asyncio.sleep(1)
        node.heart.stopped = True
        took = await node.until("suspended", limit=20.0)
        assert 10.0 < took < 13.0
        assert len(node.heart.stalls) == 1
        await asyncio.sleep(10)
        node.heart.stopped = False
        await node.until("back")
        await asyncio.sleep(0.5)
        assert node.lease.is_valid(world.now())

    run(main)


def test_a_frozen_process_is_not_taken_for_a_stalled_loop() -> None:
    async def main(world: World) -> None:
        node = await world.node(loop_stall_limit_seconds=10.0).start()
        await asyncio.sleep(1)
        node.heart.stopped = True
        world.loop.freeze(60.0)
        await asyncio.sleep(0.6)
        node.heart.stopped = False
        await asyncio.sleep(3)
        assert node.heart.stalls == []
        assert node.lease.is_valid(world.now())

    run(main)


def test_a_failing_callback_costs_no_session(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        node = await world.node().start()

        def broken(pulse: Pulse) -> None:
            raise LookupError("a mistake in the shell")

        node.on_pulse = broken  # type: ignore[method-assign]
        await asyncio.sleep(5)
        assert node.lease.is_valid(world.now())
        assert node.lifeline.losses == 0

    with caplog.at_level(logging.ERROR, "sharding.node"):
        run(main)
    assert "a mistake in the shell" in caplog.text


def test_a_mistake_in_a_session_is_logged_and_survived(caplog: pytest.LogCaptureFixture) -> None:
    async def main(world: World) -> None:
        node = await world.node().start()
        good = node.sessions[1].ping

        async def broken() -> None:
            raise LookupError("a mistake in the adapter")

        node.sessions[1].ping = broken  # type: ignore[assignment,method-assign]
        await asyncio.sleep(2)
        node.sessions[1].ping = good  # type: ignore[method-assign]
        await asyncio.sleep(1)
        assert node.lease.settled is not None

    with caplog.at_level(logging.ERROR, "sharding.node"):
        run(main)
    assert "a mistake in the adapter" in caplog.text


def test_stopping_ends_the_lease_before_the_locks() -> None:
    async def main(world: World) -> None:
        node = await world.node().start(candidate=True)
        await node.until("elected 1")
        seen: list[bool] = []
        for session in node.sessions:
            kill = session.kill

            def watched(kill: object = kill) -> None:
                seen.append(node.lease.is_valid(world.now()))
                assert callable(kill)
                kill()

            session.kill = watched  # type: ignore[method-assign]
        await node.lifeline.stop()
        assert seen
        assert not any(seen)
        assert world.locks == {}
        assert node.told[-1] == "deposed"

    run(main)


def checked_alike() -> tuple[str, str]:
    """Return two names whose checksums are nearly the same."""
    names = sorted(
        (crc32(f"{name}/0/1".encode()), name) for name in (f"n-{each:016x}" for each in range(20_000))
    )
    _, one, other = min((b[0] - a[0], a[1], b[1]) for a, b in itertools.pairwise(names))
    return one, other


def test_two_nodes_that_lose_their_lifelines_at_once_do_not_come_back_at_the_same_moments() -> None:
    """Whatever their names are: a bad choice of them would bring the two together each time."""

    async def main(world: World) -> None:
        nodes = [await world.node(name, chance=by_chance).start() for name in checked_alike()]
        await asyncio.sleep(1)
        world.kill()
        since = world.now()
        await asyncio.sleep(5)
        for mine, others in zip(nodes[0].sessions, nodes[1].sessions, strict=True):
            tries = [at for at in mine.tried if at > since]
            together = [at for at in tries if any(abs(at - other) < 0.001 for other in others.tried)]
            assert len(tries) > 8
            assert len(together) < len(tries) / 2

    run(main)


def test_a_session_that_opens_and_is_lost_again_waits_for_another_time_each_time() -> None:
    async def main(world: World) -> None:
        node = await world.node(chance=by_chance).start()
        pauses: list[float] = []
        for _ in range(10):
            node.sessions[1].kill()
            lost = world.now()
            await asyncio.sleep(1)
            pauses.append(node.sessions[1].tried[-1] - lost)
        assert max(pauses) - min(pauses) > 0.001

    run(main)
