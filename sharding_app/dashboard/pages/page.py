"""One page of the dashboard: who asks for it, what it shows, and which parts of it are live.

A part is a template under `sharding_app/parts/`; a page includes its parts, and the live feed
renders the same parts again. Every page has the banner, and a context that says where the cluster
stands.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.template.loader import render_to_string

from sharding_app import __version__
from sharding_app.dashboard import words
from sharding_app.dashboard.permissions import Rights
from sharding_app.dashboard.presenters import overview
from sharding_app.dashboard.presenters.homes import View
from sharding_app.operations.cache import Look

Trail = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who asks for a page, with what words."""

    rights: Rights
    base: str
    "The dashboard's own address on this admin site."
    query: Mapping[str, str] = field(default_factory=dict)
    live: bool = False
    "Only the live parts are wanted."


@dataclass(slots=True, kw_only=True)
class Page:
    """One page, ready to be rendered."""

    title: str
    template: str
    parts: tuple[str, ...]
    context: View
    trail: Trail
    "Pages above this one: address behind the dashboard's own, and title."
    cells: list[list[Any]] | None
    "The shard map in short, for its live picture."
    section: str
    seen: str
    "What its browser adds to its words when it asks for what is new."

    def live(self) -> dict[str, Any]:
        """What a browser that shows this page needs to bring it up to date."""
        found: dict[str, Any] = {"parts": self.render()}
        if self.cells is not None:
            found["cells"] = self.cells
            found["summary"] = self.context["summary"]
        return found

    def render(self) -> dict[str, str]:
        """The live parts as HTML."""
        return {
            part: render_to_string(
                "sharding_app/part.html", {**self.context, "part": f"sharding_app/parts/{part}.html"}
            )
            for part in self.parts
        }


Builder = Callable[..., Page]


def page(
    look: Look,
    asked: Asked,
    template: str,
    title: str,
    parts: tuple[str, ...],
    context: View,
    *,
    section: str = "",
    trail: Trail = (),
    cells: list[list[Any]] | None = None,
    seen: str = "",
) -> Page:
    """Make a page; a section's first one has the section's name."""
    return Page(
        title=title,
        template=template,
        parts=("banner", *parts),
        context={**_common(look, asked), **context},
        trail=trail,
        cells=cells,
        section=section or template,
        seen=seen,
    )


def _common(look: Look, asked: Asked) -> View:
    return {
        "base": asked.base,
        "rights": asked.rights,
        "banner": overview.banner(look),
        "coordinator": overview.coordinator(look),
        "now": look.cluster.now,
        "cluster_id": look.cluster.cluster_id,
        "journal_events": words.count(look.cluster.events),
        "has_copies": look.cluster.has_copies,
        "release": __version__,
    }
