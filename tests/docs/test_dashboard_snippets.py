"""What the pages about the dashboard and about health show, executed."""

from __future__ import annotations

import logging
import logging.config
import types
from typing import Any

import pytest
from django.urls import resolve

from sharding_app.dashboard.live_route import find_live_path
from tests.docs.blocks import blocks
from tests.support.live import ROOT


def executed(page: str) -> list[dict[str, Any]]:
    """The names that each Python block of a page makes."""
    found = []
    for block in blocks(ROOT / "docs" / page):
        if block.language == "python":
            names: dict[str, Any] = {"__name__": page}
            exec(compile(block.text, f"{page}:{block.line}", "exec"), names)  # noqa: S102 - our own page
            found.append(names)
    return found


def test_the_line_in_asgi_takes_the_dashboards_websockets() -> None:
    (asgi,) = executed("dashboard.md")
    assert find_live_path(asgi["application"]) == "sharding/live/"


def test_health_is_where_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    urls, check, settings = executed("health.md")
    site = types.ModuleType("site_urls")
    site.__dict__.update(urls)
    names = ["startup", "ready", "alive", "metrics"]
    assert [resolve(f"/sharding/{name}", site).url_name for name in names] == names  # type: ignore[arg-type]
    assert callable(check["view"])
    ours = logging.getLogger("sharding")
    former = ours.handlers[:], ours.level
    try:
        logging.config.dictConfig(settings["LOGGING"] | {"disable_existing_loggers": False})
        logging.getLogger("sharding.node").warning("is up", extra={"action": "node_up"})
        logging.getLogger("sharding.node").warning("as ever")
    finally:
        ours.handlers[:], ours.level = former
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[2].partition(",")[2][4:] for line in lines] == [
        "WARNING sharding.node node_up: is up",
        "WARNING sharding.node -: as ever",
    ]
