"""Messages for a process whose link is full: they wait within bounds, and answers count against its
credit.
"""

import asyncio
from collections import Counter

import pytest

from sharding_app.errors import ShardingError
from sharding_app.protocol.call import Call
from sharding_app.protocol.codec import encode_message
from sharding_app.protocol.link.limits import LinkLimits, MessageTooLarge
from sharding_app.protocol.messages import Answer, AnyMessage, Deliver, Done, Failed
from sharding_app.protocol.pending_call import PendingCall
from sharding_app.runtime.asking import outbox as outbox_module
from sharding_app.runtime.asking.outbox import Outbox
from sharding_app.runtime.asking.undelivered import error_of
from sharding_app.runtime.links.links import Links
from sharding_app.testing.cluster import MemoryCluster

LARGE = b"x" * 300_000
NEVER_LEFT: list[tuple[PendingCall, ShardingError | None]] = []


class FullLinks(Links):
    """Links that take that number of messages more."""

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
    NEVER_LEFT.clear()
    return Outbox("n-me", FullLinks(), Counter(), lambda pending, error: NEVER_LEFT.append((pending, error)))


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
        link = node.links._tasks["p-client"].link
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


def a_call(request: int, home: str = "p-slow", *, tell: bool = False) -> PendingCall:
    return PendingCall(request, Call("t", "e", "c", b"", tell=tell), 0, 0.0, 9.0, home=home)


def sent_by(outbox: Outbox) -> list[int]:
    """Return the numbers of the commands and answers that the links took."""
    return [each.request for each in links_of(outbox).sent if isinstance(each, Answer | Deliver)]


def test_commands_wait_in_their_order_and_answers_do_not_wait_for_them(full: Outbox) -> None:
    for request in (1, 2, 3):
        full.forward(a_call(request))
    links_of(full).room = 1
    full.send("p-slow", Answer(10, b""))
    assert sent_by(full) == [10], "an answer goes ahead of the commands that wait for room"
    full.send("p-slow", Answer(11, b""))
    assert full.bytes_for("p-slow") < 100, "commands of ours are no debt to the peer"
    links_of(full).room = 2
    full.tick()
    full.forward(a_call(4))
    links_of(full).room = 10
    full.forward(a_call(5))
    assert sent_by(full) == [10, 1, 2], "a later command waits behind the former ones"
    full.tick()
    assert sent_by(full) == [10, 1, 2, 3, 4, 5, 11]
    assert (full.waiting, full.waiting_bytes) == ({}, 0)


def test_a_command_whose_caller_gave_up_or_whose_shard_moved_on_does_not_leave(full: Outbox) -> None:
    late, tell, moved, last = a_call(1), a_call(2, tell=True), a_call(3), a_call(4)
    for each in (late, tell, moved, last):
        full.forward(each)
    late.told = tell.told = True
    moved.home = "p-other"
    links_of(full).room = 10
    full.tick()
    assert sent_by(full) == [2, 4], "no caller waits for a tell, so it goes"
    assert [(late, None)] == NEVER_LEFT


def test_commands_for_a_peer_that_is_gone_are_given_back(full: Outbox) -> None:
    first, moved, given_up = a_call(1), a_call(2), a_call(3)
    for each in (first, moved, given_up):
        full.forward(each)
    full.send("p-slow", Answer(1, LARGE))
    moved.home = None
    full.let_go([given_up])
    assert full.gone("p-slow") == [first]
    assert (full.gone("p-slow"), full.waiting, full.waiting_bytes) == ([], {}, 0)


class SizedLinks(FullLinks):
    """Links that take messages of a link's size."""

    def put(self, target: str, message: AnyMessage, data: bytes | None = None) -> bool:
        size, limit = len(encode_message(message)), LinkLimits().max_message_bytes
        if size > limit:
            raise MessageTooLarge(size, limit)
        return super().put(target, message, data)


@pytest.mark.asyncio
async def test_a_command_that_is_too_large_to_go_again_may_have_taken_effect(full: Outbox) -> None:
    full.links = links = SizedLinks()
    links.room = 10
    pending = a_command(1, b"x" * (LinkLimits().max_message_bytes - 200))
    full.forward(pending)
    pending.attempt, pending.later = 2, ("a later call",) * 100
    full.forward(pending)
    never_sent = a_command(2, b"x" * LinkLimits().max_message_bytes)
    full.forward(never_sent)
    await asyncio.sleep(0)
    assert len(links.sent) == 1
    errors = {each.request: error for each, error in NEVER_LEFT}
    assert [error and (error.code, error.stored) for error in errors.values()] == [
        ("fate_unknown", "unknown"),
        ("arguments_too_large", "nothing"),
    ]


def a_command(request: int, args: bytes) -> PendingCall:
    return PendingCall(request, Call("t", "e", "c", args), 0, 0.0, 5.0, home="n-other")
