"""Tokens: a browser can name what the site has shown it, and nothing else."""

from __future__ import annotations

import pytest
from django.test import override_settings

from sharding_app import EventSourced, InvalidCall, query
from sharding_app.entities.registry import registry
from sharding_app.live.topics import MAX_TOKEN, Unknown, key_of, read_token, topic_of
from tests.unit.live.stage import Auction, token

HOSTILE = "\"><script>alert(1)</script>' onclick=x\u2028:\U0001f40d"


def test_a_token_names_its_topic_and_is_always_the_same() -> None:
    topic = topic_of(Auction.ref(HOSTILE), "bid_of", (HOSTILE,), "shop/bid.html", "de")
    assert read_token(topic.token) == topic
    assert topic.token == topic_of(Auction.ref(HOSTILE), "bid_of", (HOSTILE,), "shop/bid.html", "de").token
    assert set(topic.token) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_:")
    assert len(key_of(topic.token)) == 16


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        ":",
        "a:b",
        HOSTILE,
        "x" * (MAX_TOKEN + 1),
        token("a")[:-1] + "!",
        "A" + token("a"),
        token("a").split(":")[0],
    ],
)
def test_what_the_site_has_not_signed_is_not_known(wrong: str) -> None:
    with pytest.raises(Unknown):
        read_token(wrong)


def test_a_changed_key_of_the_site_counts_until_it_is_dropped() -> None:
    given = token("vase")
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=["test"]), pytest.raises(Unknown):
        read_token(given)
    with override_settings(SECRET_KEY="another"):
        newer = token("vase")
    with override_settings(SECRET_KEY="third", SECRET_KEY_FALLBACKS=["another"]):
        assert read_token(newer).source.entity == "vase"


def test_only_views_can_be_watched() -> None:
    with registry.isolated():

        class Shop(EventSourced, name="tests.live.Shop"):
            @query
            def margin(self) -> int:
                return 0

        with pytest.raises(InvalidCall, match="decorate it with @view"):
            topic_of(Shop.ref("1"), "margin")
        with pytest.raises(InvalidCall, match="no command 'nothing'"):
            topic_of(Shop.ref("1"), "nothing")
        with pytest.raises(InvalidCall, match="needs a ref"):
            topic_of("1", "current")
        forged = topic_of(Auction.ref("1"), "current")
        of_a_query = forged._replace(
            source=forged.source._replace(type_name="tests.live.Shop", view="margin")
        )
        with pytest.raises(Unknown, match="no view 'margin'"):
            _ = read_token(of_a_query.token).handler
    with pytest.raises(Unknown):
        _ = forged._replace(source=forged.source._replace(type_name="tests.live.Gone")).handler
