"""The answer to a person who asks for all data about them."""

from typing import Any, cast

import msgspec

from sharding_app.adapters.personal.vault import Vault
from sharding_app.adapters.postgres.subjects import Subjects
from sharding_app.operations.access import MessageLine, _Reader


class Database:
    """Answers with one page of messages."""

    def __init__(self, *ids: str) -> None:
        self._ids = ids

    def rows(self, _query: str, _params: object) -> list[tuple[Any, ...]]:
        args = msgspec.msgpack.encode(["hello"])
        return [
            (each, "shop.Buyer", "ann", "shop.Shop", "s", "greet", args, "now", each) for each in self._ids
        ]


def test_a_message_that_a_move_has_copied_is_told_once() -> None:
    reader = _Reader(Vault([b"a secret of the settings"]), None, "ann", lambda _: None)
    lines = [
        line
        for each in (Database("1", "2"), Database("2", "3"))
        for line in reader.of_messages(cast("Subjects", each), ["shop.Buyer"])
    ]
    assert [line.key for line in lines if isinstance(line, MessageLine)] == ["1", "2", "3"]
