"""The reference's own way: plain messages and ``receive``."""

import re
import uuid
from dataclasses import dataclass
from typing import Any

import pytest

from sharding_app import (
    DeclarationError,
    Entity,
    EntityFailed,
    InvalidCall,
    NotSerializable,
    ShardingSettings,
    message,
)
from sharding_app.entities import identifiers
from sharding_app.entities.messages import (
    decode_message,
    decode_reply,
    encode_message,
    encode_reply,
    message_entity_id,
)
from sharding_app.entities.registry import messages
from sharding_app.testing.local import LocalHost


@message(name="tests.messages.Increment")
class Increment: ...


@message(name="tests.messages.Stop")
class Stop: ...


@message(name="tests.messages.Get", entity_id="counter_id")
class Get:
    counter_id: str


@message(name="put", entity_id="key")
class Put:
    key: uuid.UUID
    values: list[float]
    anything: Any = None


class Counter(Entity, name="tests.messages.Counter"):
    count: int = 0

    async def receive(self, message: object) -> object:
        match message:
            case Increment():
                self.count += 1
            case Get():
                return self.count
            case Stop():
                self.context.stop()
        return None


class PlainCounter(Entity):
    settings = ShardingSettings(stop_message=Stop())

    def receive(self, message: object) -> object:
        return message


pytestmark = pytest.mark.asyncio


async def test_the_counter_of_the_design() -> None:
    counter = LocalHost(Counter)

    assert await counter.receive(Increment()) is None
    assert await counter.receive(Get("1")) == 1
    assert counter.entity_type.receives is True
    assert counter.entity_type.receive_is_async is True
    assert counter.state() == b'{"count":1}'


async def test_receive_may_be_a_plain_def() -> None:
    host = LocalHost(PlainCounter)
    assert await host.receive(Get("5")) == Get("5")
    assert (host.entity_type.receives, host.entity_type.receive_is_async) == (True, False)
    assert host.entity_type.settings.stop_message == Stop()


async def test_a_class_without_receive_says_so() -> None:
    class Deaf(Entity): ...

    host = LocalHost(Deaf)
    assert host.entity_type.receives is False
    with pytest.raises(EntityFailed, match=re.escape("Deaf does not handle Increment: define receive()")):
        await host.receive(Increment())


async def test_messages_travel_by_name() -> None:
    put = Put(uuid.UUID(int=5), [1.5], {"a": [1]})
    name, data = encode_message(put)
    assert name == "put"
    assert decode_message(name, data) == put
    assert encode_message(Increment())[0] == "tests.messages.Increment"
    assert message_entity_id(put) == str(uuid.UUID(int=5))
    assert message_entity_id(Get("7")) == "7"
    assert message_entity_id(Increment()) is None


async def test_what_does_not_fit_is_told() -> None:
    key = uuid.UUID(int=5)
    with pytest.raises(
        NotSerializable, match=r"message put: field 'values' cannot be stored: .*lone surrogate"
    ):
        encode_message(Put(key, ["\ud800"]))  # type: ignore[list-item]
    with pytest.raises(NotSerializable, match=r"message put: field 'anything' would be read back"):
        encode_message(Put(key, [], (1,)))
    with pytest.raises(InvalidCall, match=r"message put: .*Expected `array`, got `int`"):
        decode_message("put", encode_message(Put(key, 5))[1])  # type: ignore[arg-type]
    with pytest.raises(InvalidCall, match="no message 'puts' is declared here: did you mean 'put'"):
        decode_message("puts", b"")
    with pytest.raises(InvalidCall, match="str is not a message: decorate the class with @message"):
        encode_message("hello")
    with pytest.raises(InvalidCall, match=r"message tests.messages.Get"):
        decode_message("tests.messages.Get", b"\xc1")


async def test_declarations_are_checked() -> None:
    with pytest.raises(DeclarationError, match="Bad has no such field"):

        @message(entity_id="key")
        class Bad: ...

    with pytest.raises(DeclarationError, match="the name of a message"):
        message(name="")(Increment)


async def test_a_second_class_of_one_name_is_refused_where_it_is_declared() -> None:
    """It would be encoded under the name of the first, and arrive as that with its defaults."""
    with pytest.raises(DeclarationError, match=r"Other and .*Put have the same name 'put'.*@message\(name="):

        @message(name="put")
        class Other: ...


async def test_while_names_are_not_known_the_first_encoding_refuses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(identifiers, "labels_are_known", lambda: False)

    @message(name="put")
    class Other: ...

    with pytest.raises(DeclarationError, match="have the same name 'put'"):
        encode_message(Other())
    encode_message(Put(uuid.uuid4(), []))


async def test_duplicates_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identifiers, "labels_are_known", lambda: False)

    @message(name="put")
    class Other: ...

    assert messages.get("put").cls is Put
    assert [duplicate.name for duplicate in messages.duplicates()] == ["put"]
    assert Other.__qualname__ in messages.duplicates()[0].refused


async def test_a_dataclass_may_be_a_message() -> None:
    @message
    @dataclass(frozen=True)
    class Ping:
        number: int

    assert decode_message(*encode_message(Ping(3))) == Ping(3)


@pytest.mark.parametrize("value", [None, 5, "x", [1, {"a": None}], b"x", 2.5, True, Get("1")])
async def test_replies_come_back_as_they_are(value: object) -> None:
    again = decode_reply(encode_reply(value))
    assert (again, type(again)) == (value, type(value))


@pytest.mark.parametrize("value", [(1, 2), {1}, uuid.UUID(int=1), object()])
async def test_replies_that_would_change_are_refused(value: object) -> None:
    with pytest.raises(NotSerializable, match=r"put it into a field of a @message|cannot be sent"):
        encode_reply(value)
