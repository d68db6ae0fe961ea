"""docs/live-pages.md, executed from top to bottom: its entities, its two lines and its test."""

from typing import Any

import pytest
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application
from django.test import override_settings
from django.urls import include, path

from sharding_app.entities.registry import registry
from sharding_app.http.routing import websocket_urlpatterns
from sharding_app.live.rights import may_watch
from sharding_app.live.topics import topic_of
from tests.docs.blocks import blocks
from tests.support.live import ROOT

PAGE = ROOT / "docs" / "live-pages.md"
application: Any = None


class User:
    is_authenticated = is_active = True

    def get_username(self) -> str:
        return "ann"

    def has_perm(self, name: str) -> bool:
        return False


@pytest.mark.asyncio
async def test_the_page_runs() -> None:
    global application
    names: dict[str, Any] = {
        "__name__": "docs.live_pages", "ProtocolTypeRouter": ProtocolTypeRouter, "URLRouter": URLRouter,
        "websocket_urlpatterns": websocket_urlpatterns, "http": get_asgi_application(), "urlpatterns": [],
        "path": path, "include": include,
    }  # fmt: skip
    with registry.isolated():
        for block in blocks(PAGE):
            if block.language == "python":
                exec(compile(block.text, str(PAGE), "exec"), names)  # noqa: S102  (our own page)
        application = names["application"]
        assert [str(each.pattern) for each in names["urlpatterns"]] == ["sharding/"]
        with override_settings(ASGI_APPLICATION=f"{__name__}.application"):
            await names["test_a_bid_is_shown"]()
        account = names["Account"]
        assert may_watch(topic_of(account.ref("ann"), "statement"), User())
        assert not may_watch(topic_of(account.ref("bob"), "statement"), User())
