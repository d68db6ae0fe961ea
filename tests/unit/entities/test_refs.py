"""Refs: any id that is one, no I/O, and errors that name the fix."""

import asyncio
import sys
from typing import Any, cast
from uuid import UUID

import pytest
from asgiref.sync import async_to_sync
from hypothesis import given
from hypothesis import strategies as st

from sharding_app import (
    Entity,
    EntityFailed,
    InvalidCall,
    InvalidEntityId,
    Ref,
    Rejected,
    Remote,
    Unavailable,
    WrongContext,
    command,
)
from sharding_app.entities import gateway
from sharding_app.entities.gateway import use_gateway
from sharding_app.protocol.call import Call
from sharding_app.testing.local import LocalGateway
from tests.unit.entities.cart import Cart, ItemAdded


def ref(entity_id: Any = "alice", **options: Any) -> Any:
    return Cart.ref(entity_id, **options)


class Sub(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("given_id", "entity_id"),
    [
        ("alice", "alice"),
        (7, "7"),
        (-7, "-7"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Sub("x"), "x"),
        ("é" * 256, "é" * 256),
        ("a b\n", "a b\n"),
        ("x" * 512, "x" * 512),
    ],
)
def test_ids(given_id: Any, entity_id: str) -> None:
    made = ref(given_id)
    assert made.entity_id == entity_id
    assert type(made.entity_id) is str


@pytest.mark.parametrize("wrong", [True, None, 1.5, b"x", object(), ["x"], Cart])
def test_anything_else_is_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="an entity id must be a str, int or UUID") as caught:
        ref(wrong)
    assert isinstance(caught.value, InvalidEntityId)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", "must not be empty"),
        ("a\0b", "must not contain NUL"),
        ("a\ud800", "must not contain lone surrogates"),
        ("x" * 513, "at most 512 bytes of UTF-8, not 513"),
        ("é" * 257, "not 514"),
        (10**600, "at most 512 bytes"),
        pytest.param(10**5000, "at most 512 bytes", id="more digits than Python prints"),
    ],
)
def test_bad_ids_say_why(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ref(wrong)


@given(st.text())
def test_an_id_is_kept_as_it_is_or_refused(text: str) -> None:
    try:
        made = ref(text)
    except InvalidEntityId:
        assert not text or "\0" in text or len(text.encode("utf-8", "replace")) > 512
    else:
        assert made.entity_id == text


def test_refs_compare_hash_and_print() -> None:
    assert ref(7) == ref("7") != ref("8")
    assert len({ref("a"), ref("a", timeout=3), ref("b")}) == 2
    assert ref("a") != "a"
    assert repr(ref("a")) == "Cart.ref('a')"
    assert repr(ref("a").add) == "<Cart.ref('a').add>"
    assert repr(ref("a").sync.add) == "<Cart.ref('a').sync.add>"
    assert isinstance(ref("a"), cast(Any, Ref))
    assert isinstance(ref("a").add, Remote)


def test_refs_are_not_pickled() -> None:
    with pytest.raises(TypeError, match="pass its entity_id"):
        ref("a").__reduce__()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout must be a number of seconds greater than 0"),
        ({"timeout": "3"}, "timeout must be a number of seconds greater than 0"),
        ({"timeout": True}, "timeout must be a number of seconds greater than 0"),
        ({"timeout": float("nan")}, "timeout must be a number of seconds greater than 0"),
        ({"timeout": float("inf")}, "timeout must be a number of seconds greater than 0"),
        ({"command_id": ""}, "a command id must not be empty"),
        ({"command_id": 5}, "a command id must be a str, not 5"),
        ({"command_id": "a\0"}, "a command id must not contain NUL"),
        ({"command_id": "\ud800"}, "a command id must not contain lone surrogates"),
        ({"command_id": "é" * 128}, "a command id must have at most 255 bytes of UTF-8, not 256"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidCall, match=message):
        ref("a", **options)


def test_unknown_attributes_are_told_with_a_suggestion() -> None:
    with pytest.raises(AttributeError, match="Cart has no command or query 'ad': did you mean 'add'"):
        _ = ref().ad
    with pytest.raises(AttributeError, match=r"Cart.items lives inside the entity: declare a @query"):
        _ = ref().items
    with pytest.raises(AttributeError, match=r"Cart.on_item_added lives inside the entity"):
        _ = ref().on_item_added
    with pytest.raises(AttributeError, match="a ref of Cart has no '__len__'"):
        ref().__getattr__("__len__")


def test_calls_without_a_ref_name_the_fix() -> None:
    for call in (lambda: Cart.add("book"), lambda: Cart.add.tell("book")):
        with pytest.raises(InvalidCall, match=r"call Cart\.ref\(id\)\.add\(\.\.\.\)"):
            call()
    with pytest.raises(InvalidCall, match=r"call Cart\.ref\(id\)\.sync\.command"):
        _ = Cart.sync


@pytest.fixture
def no_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process without Django; what other tests use comes back."""
    monkeypatch.setattr(gateway, "_factory", None)
    monkeypatch.setattr(gateway, "_stand_in", None)
    monkeypatch.setattr(gateway, "_current", None)


def test_no_gateway_is_told(no_gateway: None) -> None:
    with pytest.raises(Unavailable, match="sharding is not set up in this process"):
        Cart.ref("a").add.tell("book")


def test_the_gateway_is_made_at_first_use_and_once(no_gateway: None) -> None:
    made: list[LocalGateway] = []

    def factory() -> LocalGateway:
        made.append(LocalGateway())
        return made[-1]

    gateway.set_gateway(factory)
    assert made == []
    assert gateway.current() is gateway.current() is made[0]
    with use_gateway(LocalGateway()) as other:
        assert gateway.current() is other
    assert gateway.current() is made[0]


class Recorder(LocalGateway):
    """Notes what it is asked to carry."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Call] = []

    async def ask(self, call: Call) -> bytes:
        self.asked.append(call)
        return await super().ask(call)


@pytest.mark.asyncio
async def test_asks_carry_their_options() -> None:
    with use_gateway(Recorder()) as carrier:
        assert await Cart.ref("alice", timeout=3, command_id="c1").add("book", 2) == 2
        assert await Cart.ref("alice").add(sku="book") == 3
        assert await Cart.ref("alice").total() == 3
        assert await Cart.ref("bob").exists() is False
        assert await Cart.ref("alice").exists() is True
    packed = Cart._sharding_type.commands["add"].encode(("book", 2), {})  # type: ignore[union-attr]
    assert carrier.asked[0] == Call("tests.Cart", "alice", "add", packed, 3, "c1")
    assert (carrier.asked[1].timeout, carrier.asked[1].command_id) == (None, "")


@pytest.mark.asyncio
async def test_a_rejection_reaches_the_asker() -> None:
    with use_gateway(LocalGateway()), pytest.raises(Rejected, match="at least 1"):
        await Cart.ref("alice").add("book", 0)


@pytest.mark.asyncio
async def test_sync_on_a_running_loop_names_the_fix() -> None:
    with use_gateway(LocalGateway()):
        with pytest.raises(WrongContext, match=r"use `await Cart\.ref\('a'\)\.add\(\.\.\.\)`"):
            Cart.ref("a").sync.add("book")
        with pytest.raises(WrongContext):
            Cart.ref("a").sync.exists()
        assert await asyncio.to_thread(Cart.ref("a").sync.add, "book", 4) == 4


def test_sync_and_tell_from_plain_code() -> None:
    with use_gateway(LocalGateway()) as carrier:
        Cart.ref("alice").add.tell("book")
        Cart.ref("alice").add.tell("book", 0)
        assert Cart.ref("alice").sync.add("book", 2) == 3
        assert Cart.ref("alice").sync.total() == 3
        assert Cart.ref("alice").sync.exists() is True
        assert carrier.host("tests.Cart", "alice").events == []
        assert len(carrier.host("tests.Cart", "alice").journal) == 2


@pytest.mark.asyncio
async def test_tell_from_async_code() -> None:
    with use_gateway(LocalGateway()) as carrier:
        Cart.ref("alice").add.tell("book")
        assert carrier.host("tests.Cart", "alice").events == [ItemAdded("book", 1)]


def test_a_forgotten_await_names_the_command() -> None:
    with pytest.warns(RuntimeWarning, match=r"coroutine 'Cart\.add' was never awaited"):
        Cart.ref("alice").add("book")  # type: ignore[unused-coroutine]


def test_a_command_can_be_made_sync_without_a_warning() -> None:
    with use_gateway(LocalGateway()):
        assert async_to_sync(Cart.ref("alice").add)("book") == 1


def test_bad_arguments_are_told_before_anything_is_sent() -> None:
    with use_gateway(Recorder()) as carrier:
        with pytest.raises(InvalidCall, match="missing a required argument: 'sku'"):
            Cart.ref("a").sync.add()  # type: ignore[call-arg]
        with pytest.raises(InvalidCall, match="too many positional"):
            Cart.ref("a").add.tell("a", 1, 2)  # type: ignore[call-arg]
    assert carrier.asked == []


def test_entities_ask_each_other() -> None:
    class Order(Entity):
        @command
        async def place(self, cart: Ref[Cart]) -> int:
            await cart.add("book", 2)
            return await Cart.ref("alice").total()

    with use_gateway(LocalGateway()):
        assert Order.ref("1").sync.place(Cart.ref("alice")) == 2
        with pytest.raises(EntityFailed, match="place raised AttributeError"):
            asyncio.run(_failing(Order))


async def _failing(order: Any) -> None:
    class Odd(order):  # type: ignore[misc]
        @command
        async def place(self, cart: Ref[Cart]) -> int:
            return await cart.nothing()  # type: ignore[attr-defined, no-any-return]

    await Odd.ref("1").place(Cart.ref("a"))


def test_django_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "django.db", raising=False)
    with use_gateway(LocalGateway()):
        assert Cart.ref("alice").sync.add("book") == 1
