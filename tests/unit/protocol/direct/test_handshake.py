"""Who does not know a key proves nothing, whatever it has recorded, reflects or invents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.protocol.direct.handshake import (
    MAX_HANDSHAKE_BYTES,
    NONCE_BYTES,
    Accepting,
    Dialing,
    HandshakeFailed,
    HandshakeKeys,
    Why,
    refusal,
)

OLD, NEW, OTHER = (bytes([number]) * 32 for number in (1, 2, 3))
HERE, THERE, ELSEWHERE = "sharding.c1.n-1", "sharding.c1.n-2", "sharding.c1.n-3"
_nonces = iter(range(1, 1_000_000))


def nonce() -> bytes:
    return next(_nonces).to_bytes(NONCE_BYTES, "big")


def dialing(*keys: bytes, me: str = HERE, peer: str = THERE, versions: tuple[int, int] = (1, 1)) -> Dialing:
    return Dialing(HandshakeKeys(keys), me, peer, nonce(), versions)


def accepting(*keys: bytes, me: str = THERE, versions: tuple[int, int] = (1, 1)) -> Accepting:
    return Accepting(HandshakeKeys(keys), me, nonce(), versions)


def shake(dialer: Dialing, acceptor: Accepting) -> list[bytes]:
    """Carry all messages between the two; return them."""
    said = [dialer.hello]
    said.append(acceptor.receive(said[-1]))
    said.append(dialer.receive(said[-1]))
    said.append(acceptor.receive(said[-1]))
    assert dialer.receive(said[-1]) == b""
    return said


def why(side: Dialing | Accepting, body: bytes) -> Why:
    with pytest.raises(HandshakeFailed) as caught:
        side.receive(body)
    assert not side.proven
    return caught.value.why


def test_two_with_one_key_know_each_other() -> None:
    dialer, acceptor = dialing(OLD), accepting(OLD)
    said = shake(dialer, acceptor)
    assert dialer.proven
    assert acceptor.proven
    assert (dialer.peer, acceptor.peer) == (THERE, HERE)
    assert all(len(each) <= MAX_HANDSHAKE_BYTES for each in said)
    assert not any(OLD in each for each in said)


def test_one_key_does_not_join_two_clusters() -> None:
    """A database that was copied, or two projects with one secret."""
    assert why(accepting(OLD), dialing(OLD, me="sharding.c2.n-1").hello) is Why.CLUSTER


def test_a_process_may_dial_itself() -> None:
    dialer, acceptor = dialing(OLD, peer=HERE), accepting(OLD, me=HERE)
    shake(dialer, acceptor)
    assert dialer.proven
    assert acceptor.proven


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [((OLD,), (OLD, NEW)), ((OLD, NEW), (OLD,)), ((OLD, NEW), (NEW, OLD)), ((NEW, OLD), (NEW,))],
)
def test_every_step_of_a_rotation_understands_the_next(
    ours: tuple[bytes, ...], theirs: tuple[bytes, ...]
) -> None:
    dialer, acceptor = dialing(*ours), accepting(*theirs)
    shake(dialer, acceptor)
    assert dialer.proven
    assert acceptor.proven


def test_another_key_is_refused_on_both_sides() -> None:
    assert why(accepting(OLD), dialing(OTHER).hello) is Why.KEY
    dialer = dialing(OLD)
    greeting = accepting(OTHER, OLD).receive(dialer.hello)
    assert why(dialer, greeting) is Why.KEY


def test_the_name_of_a_key_is_no_proof() -> None:
    """A stranger may copy the name from a recorded greeting."""
    acceptor, dialer = accepting(OLD), dialing(OLD)
    acceptor.receive(dialer.hello)
    assert why(acceptor, bytes(32)) is Why.PROOF
    dialer.receive(accepting(OLD).receive(dialer.hello))
    assert why(dialer, bytes(32)) is Why.PROOF


def test_no_keys_and_keys_never_meet() -> None:
    assert why(accepting(OLD), dialing().hello) is Why.NO_KEYS
    assert why(accepting(), dialing(OLD).hello) is Why.NO_KEYS
    dialer = dialing(OLD)
    greeting = accepting().receive(dialing().hello)
    assert why(dialer, greeting) is Why.NO_KEYS


def test_without_keys_two_processes_meet_and_know_that_nothing_is_proven() -> None:
    dialer, acceptor = dialing(), accepting()
    assert shake(dialer, acceptor)[2] == bytes(32)


def test_a_recorded_handshake_proves_nothing_to_an_acceptor() -> None:
    recorded = shake(dialing(OLD), accepting(OLD))
    again = accepting(OLD)
    assert again.receive(recorded[0]) != recorded[1]
    assert why(again, recorded[2]) is Why.PROOF


def test_a_recorded_handshake_proves_nothing_to_a_dialer() -> None:
    recorded = shake(dialing(OLD), accepting(OLD))
    again = dialing(OLD)
    again.receive(recorded[1])
    assert why(again, recorded[3]) is Why.PROOF


def test_what_is_reflected_to_its_writer_proves_nothing() -> None:
    dialer = dialing(OLD)
    assert why(dialer, dialer.hello) in (Why.UNREADABLE, Why.VERSION)
    dialer = dialing(OLD)
    proof = dialer.receive(accepting(OLD).receive(dialer.hello))
    assert why(dialer, proof) is Why.PROOF, "its own role"


def test_a_proof_for_one_process_does_not_serve_another() -> None:
    """A peer that is not who it should be passes all on to another process that knows the key."""
    dialer = dialing(OLD)
    assert why(accepting(OLD, me=ELSEWHERE), dialer.hello) is Why.ELSEWHERE
    impostor = accepting(OLD, me=ELSEWHERE)
    renamed = dialing(OLD, peer=ELSEWHERE)
    greeting = impostor.receive(renamed.hello)
    assert why(impostor, dialer.receive(greeting)) is Why.PROOF


def test_another_cluster_is_another_process() -> None:
    assert why(accepting(OLD), dialing(OLD, peer="sharding.c2.n-2").hello) is Why.ELSEWHERE


def shake_with(dialer: Dialing, acceptor: Accepting, place: int, at: int) -> None:
    """Carry the messages, and change one bit of one of them."""
    sides: tuple[Dialing | Accepting, ...] = (acceptor, dialer, acceptor, dialer)
    body = dialer.hello
    for number, side in enumerate(sides):
        if number == place:
            body = body[:at] + bytes((body[at] ^ 1,)) + body[at + 1 :]
        body = side.receive(body)


@pytest.mark.parametrize("place", range(4))
def test_each_byte_of_a_handshake_counts(place: int) -> None:
    """A message that is changed on its way makes no dialer believe."""
    for at in range(len(shake(dialing(OLD), accepting(OLD))[place])):
        dialer, acceptor = dialing(OLD), accepting(OLD)
        with pytest.raises(HandshakeFailed):
            shake_with(dialer, acceptor, place, at)
        assert not dialer.proven


def test_a_greeting_that_is_none_is_said_to_be_unreadable() -> None:
    hello = dialing(OLD).hello
    for bad in (
        hello[:-1], hello + b"x", b"x" + hello[1:], hello.replace(b"n-1", b"n-\xff"), dialing(OLD, me="").hello
    ):  # fmt: skip
        assert why(accepting(OLD), bad) is Why.UNREADABLE


def test_versions_that_overlap_agree_on_the_highest_and_others_do_not() -> None:
    dialer, acceptor = dialing(OLD, versions=(1, 2)), accepting(OLD, versions=(2, 3))
    assert shake(dialer, acceptor)[1][0] == 2
    assert dialer.proven
    assert why(accepting(OLD, versions=(2, 3)), dialing(OLD).hello) is Why.VERSION
    assert why(accepting(OLD), dialing(OLD, versions=(2, 3)).hello) is Why.VERSION
    older = dialing(OLD, versions=(2, 3))
    assert why(older, b"\1" + bytes(36)) is Why.VERSION


def test_a_finished_handshake_takes_nothing_more() -> None:
    dialer, acceptor = dialing(OLD), accepting(OLD)
    said = shake(dialer, acceptor)
    for side, body in ((dialer, said[3]), (acceptor, said[2])):
        with pytest.raises(HandshakeFailed):
            side.receive(body)


@given(st.lists(st.binary(max_size=MAX_HANDSHAKE_BYTES), max_size=3), st.sampled_from([(), (OLD,)]))
def test_whatever_comes_only_handshake_failed_is_raised(bodies: list[bytes], keys: tuple[bytes, ...]) -> None:
    for side in (dialing(*keys), accepting(*keys)):
        try:
            for body in bodies:
                side.receive(body)
        except HandshakeFailed:
            continue
        assert not side.proven or not keys


@given(st.binary(max_size=3))
def test_a_refusal_is_read_whatever_it_is(body: bytes) -> None:
    assert refusal(body) in Why


def test_a_name_that_is_too_long_is_the_callers_mistake() -> None:
    with pytest.raises(ValueError, match="length"):
        dialing(OLD, me="x" * 300)
