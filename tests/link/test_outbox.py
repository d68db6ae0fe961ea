"""Answers for a process that takes less than it asks for: they wait within bounds, and count against its credit."""

from collections import Counter

import pytest

from sharding_app.core.messages import Answer, AnyMessage, Done, Failed
from sharding_app.runtime import outbox as outbox_module
from sharding_app.runtime.links import Links
from sharding_app.runtime.outbox import Outbox
from sharding_app.runtime.refusals import error_of
from sharding_app.testing.cluster import MemoryCluster

LARGE = b"x" * 300_000


class FullLinks(Links):
    """Links that take so many messages more."""

    def __init__(self) -> None:
        self.room = 0
        self.sent: list[AnyMessage] = []

    def is_gone(self, peer: str) -> bool:
        return peer == "p-gone"

    def put(self, target: str, message: AnyMessage, data: bytes | None = None) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.sent.append(message)
        return True


@pytest.fixture
def full() -> Outbox:
    made = Outbox("n-me", Counter())
    made.links = FullLinks()
    return made


def links_of(outbox: Outbox) -> FullLinks:
    assert isinstance(outbox.links, FullLinks)
    return outbox.links


def test_what_waits_for_one_peer_is_bounded_in_bytes(full: Outbox) -> None:
    for request in range(1000):
        full.send("p-slow", Answer(request, LARGE))
    assert full.waiting_bytes <= outbox_module.MAX_WAITING_BYTES + 1000 * outbox_module.SMALL_BYTES
    full.send("p-other", Answer(1, LARGE))
    assert full.bytes_for("p-other") > len(LARGE), "another peer has its own"
    links_of(full).room = 10_000
    full.tick()
    assert (full.waiting, full.waiting_bytes) == ({}, 0)
    assert len(links_of(full).sent) == 1001, "each request is answered"
    dropped = [each for each in links_of(full).sent if isinstance(each, Failed)]
    assert len(dropped) == full._drops["reply_dropped"] > 800
    error = error_of(dropped[0])
    assert (type(error).__name__, error.code) == ("AskTimeout", "reply_dropped")
    assert "may have taken effect" in str(error)


def test_what_waits_for_all_peers_is_bounded_in_bytes(full: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "MAX_WAITING_BYTES_IN_ALL", 5 * len(LARGE))
    for peer in range(100):
        full.send(f"p-{peer}", Answer(peer, LARGE))
    assert full.waiting_bytes <= 5 * len(LARGE) + 100 * outbox_module.SMALL_BYTES
    full.gone("p-0")
    assert full.bytes_for("p-0") == 0


def test_small_words_are_never_replaced(full: Outbox) -> None:
    for request in range(200):
        full.send("p-slow", Answer(request, LARGE))
    full.send("p-slow", Done([7]))
    full.send("p-slow", Answer(8, b"small"))
    links_of(full).room = 10_000
    full.tick()
    assert links_of(full).sent[-2:] == [Done([7]), Answer(8, b"small")], "in their order"


@pytest.mark.asyncio
async def test_answers_that_wait_count_against_the_credit() -> None:
    async with MemoryCluster([]) as cluster:
        node = cluster.nodes["node1"]
        node.links.put("p-client", Done([0]))
        link = node.links._lines["p-client"].link
        before = node._owed_bytes("p-client")
        links, node.outbox.links = node.outbox.links, FullLinks()
        for request in range(20):
            node.send("p-client", Answer(request, LARGE))
        assert node._owed_bytes("p-client") - before >= 20 * len(LARGE)
        link.waiting(node._owed_bytes("p-client"))
        assert link._receiver.credit() == 0, "its client sends no more commands"
        node.outbox.links = links
        node.tick()
        assert node._owed_bytes("p-client") == before


def test_nothing_waits_for_a_peer_that_is_gone(full: Outbox) -> None:
    full.send("p-gone", Answer(1, LARGE))
    assert (full.waiting, full.waiting_bytes) == ({}, 0)
