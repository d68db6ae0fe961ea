"""Timeouts of any size."""

from sharding_app.protocol.call import Call
from tests.unit.runtime.asking.test_late_replies import World, run


def test_a_deadline_fits_into_a_message_whatever_the_timeout() -> None:
    async def main(world: World) -> None:
        client = world.region_client
        for timeout in (1e17, 1e300, 1.7e308):
            client.ask(Call("t", "e", "c", b"", timeout=timeout))
        client.homes_told("t", "home", [(0, 1)])
        client.tick()
        assert len(world.sent) == 3
        assert all(each.deadline * 1000 < 2**63 for each in client.pending.values())

    run(main)
