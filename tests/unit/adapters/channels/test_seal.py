"""Sealed frames: who has no key can neither write nor change nor, if so wished, read them."""

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharding_app.adapters.channels.seal import Sealer
from sharding_app.ports.sealing import SealBroken

OLD, NEW, FOREIGN = b"old-key-old-key-old", b"new-key-new-key-new", b"someone-elses-key-1"
WAYS = pytest.mark.parametrize("encrypt", [False, True], ids=["authenticated", "encrypted"])


@WAYS
@given(data=st.binary(max_size=300))
def test_what_is_sealed_opens_with_the_key_alone(encrypt: bool, data: bytes) -> None:
    sealed = Sealer([OLD], encrypt=encrypt).seal(data)
    assert Sealer([OLD]).open(sealed) == data
    with pytest.raises(SealBroken):
        Sealer([FOREIGN], encrypt=True).open(sealed)


@WAYS
def test_every_single_change_is_noticed(encrypt: bool) -> None:
    sealer = Sealer([OLD], encrypt=encrypt)
    sealed = sealer.seal(b"frame")
    assert sealer.open(sealed) == b"frame"
    for index in range(len(sealed)):
        for bit in (1, 128):
            changed = bytearray(sealed)
            changed[index] ^= bit
            with pytest.raises(SealBroken):
                sealer.open(bytes(changed))
    for length in range(len(sealed)):
        with pytest.raises(SealBroken):
            sealer.open(sealed[:length])
    with pytest.raises(SealBroken):
        sealer.open(sealed + b"\0")


@given(st.binary(max_size=200))
def test_garbage_is_refused_and_nothing_else(data: bytes) -> None:
    sealer = Sealer([OLD], encrypt=True)
    key_id = sealer.seal(b"")[1:5]
    for forged in (data, b"\x01" + key_id + data, b"\x02" + key_id + data, b"\x03" + key_id + data):
        with pytest.raises(SealBroken):
            sealer.open(forged)


@WAYS
def test_keys_change_without_a_gap(encrypt: bool) -> None:
    first, both, swapped, last = (
        Sealer(keys, encrypt=encrypt) for keys in ([OLD], [OLD, NEW], [NEW, OLD], [NEW])
    )
    for before, after in ((first, both), (both, swapped), (swapped, last)):
        assert after.open(before.seal(b"x")) == b"x" or after is last
        assert before.open(after.seal(b"x")) == b"x"
    with pytest.raises(SealBroken):
        last.open(first.seal(b"x"))


def test_encryption_hides_and_never_repeats() -> None:
    sealer = Sealer([OLD], encrypt=True)
    sealed = {sealer.seal(b"the same secret frame") for _ in range(1000)}
    assert len(sealed) == 1000
    assert len({each[21:29] for each in sealed}) == 1000
    assert not any(b"secret" in each for each in sealed)
    assert b"secret" in Sealer([OLD]).seal(b"the same secret frame")


def test_a_forked_child_counts_under_a_name_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sealer = Sealer([OLD], encrypt=True)
    before = sealer.seal(b"x")
    monkeypatch.setattr(os, "getpid", lambda: -1)
    after = sealer.seal(b"x")
    assert before[5:21] != after[5:21]
    assert sealer.open(before) == sealer.open(after) == b"x"


def test_strangers_fill_no_memory() -> None:
    sealer = Sealer([OLD], encrypt=True)
    sealed = Sealer([OLD], encrypt=True).seal(b"x")
    for number in range(100):
        forged = sealed[:5] + number.to_bytes(16, "big") + sealed[21:]
        with pytest.raises(SealBroken):
            sealer.open(forged)
    assert len(sealer._peers) == 0
    assert sealer.open(sealed) == b"x"
    assert len(sealer._peers) == 1


def test_weak_or_missing_keys_and_a_missing_package_are_said() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        Sealer([])
    with pytest.raises(ValueError, match="at least 16 bytes"):
        Sealer([OLD, b"short"])


def test_without_the_package_frames_are_authenticated_and_encryption_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encrypted = Sealer([OLD], encrypt=True).seal(b"x")
    for name in list(sys.modules):
        if name.split(".")[0] == "cryptography":
            monkeypatch.setitem(sys.modules, name, None)
    plain = Sealer([OLD])
    assert plain.open(plain.seal(b"x")) == b"x"
    with pytest.raises(ValueError, match="needs the package `cryptography`"):
        Sealer([OLD], encrypt=True)
    with pytest.raises(SealBroken, match="is not there"):
        plain.open(encrypted)
