"""A failure that is given back has the message's arguments in it, and the text of the error: both
together may be more than a message carries.
"""

from typing import ClassVar

import pytest

from sharding_app import EventSourced, Rejected, command
from sharding_app.entities.failure import CUT, Failure
from sharding_app.entities.staging import args_limit
from sharding_app.testing.cluster import MemoryCluster
from tests.unit.runtime.delivery.test_messages import CONFIG
from tests.unit.runtime.waiting import travel

pytestmark = pytest.mark.asyncio

LIMIT = args_limit(CONFIG.links.max_message_bytes)
WHY = "no " * 3000


class Refusing(EventSourced, name="large.Refusing"):
    @command
    def take(self, text: str) -> None:
        raise Rejected(WHY)


class Asking(EventSourced, name="large.Asking"):
    got: ClassVar[list[Failure]] = []

    @command
    def ask(self, size: int) -> None:
        self.send(Refusing.ref("b").take, "x" * size).on_failure(self.refused)

    @command
    def refused(self, failure: Failure) -> None:
        self.got.append(failure)


@pytest.mark.parametrize(("size", "fits"), [(LIMIT - 5000, True), (LIMIT - 10, False)])
async def test_its_text_is_shortened_or_the_message_is_parked_as_it_was(
    monkeypatch: pytest.MonkeyPatch, size: int, *, fits: bool
) -> None:
    monkeypatch.setattr(Asking, "got", [])
    async with MemoryCluster([Asking, Refusing], nodes=1, config=CONFIG) as cluster:
        with cluster.in_use():
            await Asking.ref("a").ask(size)
            await travel(30)
            rows = list(cluster.server.messages.rows.values())
            if fits:
                (failure,) = Asking.got
                assert failure.arguments == {"text": "x" * size}
                assert failure.message.endswith(CUT)
                assert WHY.startswith(failure.message.removesuffix(CUT))
                assert len(failure.message) > 4000
                assert rows == []
            else:
                (stored,) = rows
                assert (stored.row.command, stored.parked) == ("take", True)
                assert Asking.got == []
