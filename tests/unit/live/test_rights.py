"""Who may watch: no user but those whom a hook lets."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from django.test import override_settings

from sharding_app import DeclarationError, Entity, view
from sharding_app.entities.registry import registry
from sharding_app.live.rights import may_watch
from sharding_app.live.topics import Topic, topic_of

PROJECT = {"MAY_WATCH": f"{__name__}.owners"}


class User:
    is_authenticated = True
    is_active = True

    def __init__(self, name: str) -> None:
        self.name = name


class Anonymous(User):
    is_authenticated = False


ann, bob, anonymous = User("ann"), User("bob"), Anonymous("ann")


def owners(user: User, cls: type[Any], entity_id: str, view: str) -> bool:
    return user.name == entity_id and cls is Plain and view == "secret"


class Plain(Entity, name="tests.rights.Plain"):
    @view
    def secret(self) -> int:
        return 1

    @view(public=True)
    def shown(self) -> int:
        return 1


class Owned(Entity, name="tests.rights.Owned"):
    answer: Any = None

    @view
    def secret(self) -> int:
        return 1

    @classmethod
    def may_watch(cls, user: User, entity_id: str, view: str) -> Any:
        if isinstance(cls.answer, Exception):
            raise cls.answer
        return user.name == entity_id if cls.answer is None else cls.answer


def topic(cls: type[Any], view: str = "secret") -> Topic:
    return topic_of(cls.ref("ann"), view)


def test_without_a_hook_only_public_views_are_shown() -> None:
    for user in (None, anonymous, ann):
        assert not may_watch(topic(Plain), user)
        assert may_watch(topic(Plain, "shown"), user)


def test_an_entity_says_who_may() -> None:
    assert may_watch(topic(Owned), ann)
    assert not may_watch(topic(Owned), bob)
    assert not may_watch(topic(Owned), None)


def test_a_hook_is_not_asked_about_those_who_are_not_logged_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Owned, "answer", True)
    assert may_watch(topic(Owned), bob)
    assert not may_watch(topic(Owned), anonymous)
    monkeypatch.setattr(bob, "is_active", False, raising=False)
    assert not may_watch(topic(Owned), bob)


@override_settings(SHARDING=PROJECT)
def test_a_project_says_it_for_entities_that_do_not() -> None:
    assert may_watch(topic(Plain), ann)
    assert not may_watch(topic(Plain), bob)
    assert not may_watch(topic(Owned), bob)


@pytest.mark.parametrize("answer", [ValueError("broken"), 1, "yes", object()])
def test_a_hook_that_fails_or_says_neither_yes_nor_no_says_no(
    answer: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Owned, "answer", answer)
    assert not may_watch(topic(Owned), ann)
    assert "the view is not shown" in caplog.text


def test_a_database_that_does_not_answer_is_no_no(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Owned, "answer", OperationalError("away"))
    with pytest.raises(OperationalError):
        may_watch(topic(Owned), ann)


def test_a_hook_of_another_shape_is_refused_when_it_is_declared() -> None:
    with registry.isolated():
        for body in (
            {"may_watch": lambda self, user, entity_id, view: True},
            {"may_watch": classmethod(lambda cls, user: True)},
            {"may_watch": True},
        ):
            with pytest.raises(DeclarationError, match="may_watch must be a classmethod"):
                type("Wrong", (Entity,), body)

        async def never(cls: Any, user: Any, entity_id: str, view: str) -> bool:
            return True

        with pytest.raises(DeclarationError, match="a plain def"):
            type("Wrong", (Entity,), {"may_watch": classmethod(never)})


def test_a_view_says_what_it_returns_and_waits_for_nothing() -> None:
    with pytest.raises(DeclarationError, match="annotate the value"):

        @view
        def untyped(self):  # type: ignore[no-untyped-def]
            return 1

    with pytest.raises(DeclarationError, match="must be a plain def"):

        @view
        async def waits(self: Any) -> int:
            return 1
