"""Peers without a row: no coordinator declares them gone, so their links end by themselves, and
they may wake up again.
"""

import asyncio

import pytest

from sharding_app.ports.transport import PeerUnreachable
from sharding_app.protocol.codec import encode_frame
from sharding_app.protocol.messages import Frame, Left
from sharding_app.runtime.links.links import LAST_WORDS_SECONDS
from sharding_app.runtime.links.table import LOST_AFTER_SECONDS
from tests.unit.protocol.link.harness import answer, command
from tests.unit.runtime.links.test_links import World, run

LONG = LOST_AFTER_SECONDS + 60.0


def test_a_link_to_a_process_without_a_row_is_dropped_after_long_silence() -> None:
    async def main(world: World) -> None:
        one = await world.peer("one")
        for name in ("p-dead", "n-dead"):
            for number in range(3):
                one.links.put(name, answer(number))
        await asyncio.sleep(LOST_AFTER_SECONDS - 1.0)
        assert one.links.peers() == ["p-dead", "n-dead"]
        await asyncio.sleep(LONG - LOST_AFTER_SECONDS)
        assert one.links.peers() == ["n-dead"], "a member is declared gone by those who know"
        assert one.links.outstanding() == 3
        suspected = one.suspected.count("p-dead")
        await asyncio.sleep(10.0)
        assert one.suspected.count("p-dead") == suspected

    run(main)


@pytest.mark.parametrize("heard", [True, False], ids=["its words came through", "nothing came through"])
def test_a_process_that_was_away_goes_on_where_it_was(heard: bool) -> None:
    async def main(world: World) -> None:
        one, away = await world.peer("one"), await world.peer("p-away")
        for number in range(3):
            away.links.put("one", command(number))
            one.links.put("p-away", answer(number))
            await asyncio.sleep(0.1)
        world.faults.muted |= {"one"} if heard else {"one", "p-away"}
        away.links.put("one", command(3))
        one.links.put("p-away", answer(3))
        await asyncio.sleep(0.01)
        world.faults.muted |= {"one", "p-away"}
        await asyncio.sleep(LONG)
        assert one.links.peers() == []
        world.faults.muted.clear()
        await asyncio.sleep(3.0)
        assert one.got["p-away"] == [command(number) for number in range(4)], "each once"
        assert away.links.outstanding() == 0
        one.links.put("p-away", answer(4))
        away.links.put("one", command(4))
        await asyncio.sleep(0.1)
        assert one.got["p-away"] == [command(number) for number in range(5)]
        assert away.got["one"] == [*(answer(number) for number in range(3)), answer(4)]
        assert one.links.outstanding() == away.links.outstanding() == 0

    run(main)


def test_a_frame_that_is_held_keeps_no_link() -> None:
    async def main(world: World) -> None:
        one = await world.peer("one")
        for seq in (1, 3):
            await one.links.take(encode_frame(Frame(1, "p-dead", "one", 1, seq, 0, 0, 0, [answer(seq)])))
        await asyncio.sleep(2 * world.limits.idle_after_seconds)
        assert one.links.peers() == []
        for seq in (1, 2, 3):
            await one.links.take(encode_frame(Frame(1, "p-dead", "one", 1, seq, 0, 0, 0, [answer(seq)])))
        assert one.got["p-dead"] == [answer(1), answer(2), answer(3)]

    run(main)


def test_our_own_silence_loses_no_peer() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("p-two")
        one.links.put("p-two", answer(0))
        await asyncio.sleep(0.1)
        world.faults.muted.add("one")
        one.links.put("p-two", answer(1))
        await asyncio.sleep(0.01)
        one.valid = False
        await asyncio.sleep(LONG)
        world.faults.muted.clear()
        one.valid = True
        one.links.resume()
        await asyncio.sleep(0.1)
        assert two.got["one"] == [answer(0), answer(1)]

    run(main)


def test_a_process_that_ends_says_the_acknowledgements_that_it_owes() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("p-two")
        one.links.put("p-two", answer(0))
        await asyncio.sleep(0.1)
        one.links.put("p-two", answer(1))
        two.links.put("one", command(0))
        await asyncio.sleep(2 * world.faults.delay)
        two.links.put("one", command(1))
        assert one.links.outstanding() == 1
        await two.links.close()
        await asyncio.sleep(0.01)
        assert one.links.outstanding() == 0
        assert command(1) not in one.got["p-two"], "nothing else leaves it"

    run(main)


def test_a_full_channel_does_not_keep_last_words_from_the_others() -> None:
    async def main(world: World) -> None:
        one, other, two = await world.peer("one"), await world.peer("other"), await world.peer("p-two")
        for peer in (one, other):
            two.links.put(peer.name, answer(0))
        await asyncio.sleep(0.1)
        assert other.links.peers() == ["p-two"]
        world.faults.full["c.one"] = PeerUnreachable("the channel is full")
        await two.links.close()
        await asyncio.sleep(0.01)
        assert Left("p-two") in other.got["p-two"]

    run(main)


def test_the_last_words_of_a_process_do_not_hold_it_up() -> None:
    async def main(world: World) -> None:
        one, two = await world.peer("one"), await world.peer("p-two")
        one.links.put("p-two", answer(0))
        await asyncio.sleep(0.1)
        one.links.put("p-two", answer(1))
        await asyncio.sleep(2 * world.faults.delay)

        async def hang(channel: str, data: bytes) -> None:
            await asyncio.sleep(3600.0)

        two.transport.send = hang  # type: ignore[method-assign]
        began = world.loop.time()
        await two.links.close()
        assert world.loop.time() - began <= LAST_WORDS_SECONDS

    run(main)
