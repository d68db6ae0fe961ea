"""``{% load sharding %}``: a page shows views of entities at once, and then follows them.

``{% live auction "current" %}`` shows a view, ``{% live_status %}`` whether the page is connected,
``{% live_script %}`` loads the script. ``{% live_url auction "current" %}`` is the address of the
view's events, for htmx. The tags ask for no right: the page's own view decides who gets the page.
"""

from __future__ import annotations

import logging
import re
from time import monotonic
from typing import Any
from urllib.parse import urlencode

from django import template
from django.template import Context
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language
from django.utils.translation import gettext as _

from sharding_app.errors import InvalidCall, ShardingError, WrongContext
from sharding_app.live import values
from sharding_app.live.routes import socket_path, stream_path
from sharding_app.live.topics import Topic, topic_of
from sharding_app.settings.load import get_settings

logger = logging.getLogger("sharding.client")
register = template.Library()
_TAG = re.compile(r"[a-z][a-z0-9-]*")
_PAGE = "_sharding_live"
"""Attribute of a request with its `Page`."""


class Missing:
    """A view that could not be asked now."""


class Page:
    """The values that a page has asked for, and the seconds that it has waited for them."""

    __slots__ = ("shown", "waited")

    def __init__(self) -> None:
        self.shown: dict[Any, Any] = {}
        self.waited = 0.0


@register.simple_tag(takes_context=True)
def live(
    context: Context,
    ref: Any,
    view: str,
    *args: Any,
    field: str = "",
    template: str = "",
    tag: str = "",
) -> SafeString:
    """Show a view, or a `field` of it such as ``leader.name``, or what a `template` makes of it.

    The template has the view's value as ``value``. `tag` is the name of the element.
    """
    if field and template:
        raise InvalidCall("live: a template has the whole value: give either field= or template=")
    topic = topic_of(ref, view, args, template, get_language() or "")
    name = tag or ("div" if template else "span")
    if not _TAG.fullmatch(name):
        raise InvalidCall(f"live: {name!r} is not the name of an element")
    value = _value(context, ref, view, args, topic)
    state = "lost" if isinstance(value, Missing) else "on"
    if isinstance(value, Missing):
        shown: str = ""
    elif template:
        shown = mark_safe(values.html_of(topic, value))  # noqa: S308 (a template's, which escapes)
    else:
        shown = values.text_of(values.field_of(values.plain(value), field))
    bound = "" if template else format_html(' data-live-field="{}"', field)
    return format_html(
        '<{} data-live="{}" data-live-state="{}"{}>{}</{}>', name, topic.token, state, bound, shown, name
    )


@register.simple_tag
def live_url(ref: Any, view: str, *args: Any, template: str = "") -> str:
    """Return the address of the events of a view: HTML if there is a template, else JSON."""
    path = stream_path()
    if path is None:
        raise InvalidCall(
            'live_url: add path("sharding/", include("sharding_app.http.urls")) to the site\'s urls.py'
        )
    token = topic_of(ref, view, args, template, get_language() or "").token
    return f"{path}?{urlencode({'watch': token})}"


@register.simple_tag
def live_token(ref: Any, view: str, *args: Any, template: str = "") -> str:
    """Return the token of a view, for scripts of the site's own."""
    return topic_of(ref, view, args, template, get_language() or "").token


@register.simple_tag
def live_status() -> SafeString:
    """Say when the page is not connected. It is empty and hidden while it is."""
    return format_html(
        '<p data-live-status data-lost="{}" data-refused="{}" role="status" aria-live="polite" hidden></p>',
        _("Not connected. This page may show old values."),
        _("This page does not update by itself. Load it again."),
    )


@register.simple_tag(takes_context=True)
def live_script(context: Context, socket: str = "") -> SafeString:
    """Load the script. `socket`: the path of the WebSocket, if it cannot be found."""
    prefix = getattr(context.get("request"), "META", {}).get("SCRIPT_NAME", "")
    found = socket_path()
    return format_html(
        '<script src="{}" data-live-socket="{}" data-live-stream="{}" defer></script>',
        static("sharding_app/live-pages.js"),
        socket or ("" if found is None else f"{prefix}/{found}"),
        stream_path() or "",
    )


def _value(context: Context, ref: Any, view: str, args: tuple[Any, ...], topic: Topic) -> Any:
    """Ask the entity, once for a page. The views of a page wait together as long as one call may:
    otherwise a page with many entities of a lost node would wait for each of them in turn.
    """
    page = _page(context)
    if topic.source not in page.shown:
        left = (ref._ref_timeout or get_settings().ask_timeout_seconds) - page.waited
        began = monotonic()
        if left > 0:
            page.shown[topic.source] = _asked(_within(ref, left) if page.waited else ref, view, args)
        else:
            page.shown[topic.source] = _missing(ref, view, f"the page has waited {page.waited:.3g} s already")
        page.waited += monotonic() - began
    return page.shown[topic.source]


def _page(context: Context) -> Page:
    """Return what is kept for a request; without one, for the rendering of the outermost
    template.
    """
    request = context.get("request")
    kept: Any = context.render_context.dicts[:2][-1] if request is None else vars(request)
    found: Page = kept.setdefault(_PAGE, Page())
    return found


def _within(ref: Any, seconds: float) -> Any:
    """Return the same ref with another timeout."""
    return type(ref)(ref.entity_id, seconds, ref._ref_command_id, ref._ref_on_commit)


def _asked(ref: Any, view: str, args: tuple[Any, ...]) -> Any:
    blocking = ref if not hasattr(ref, "sync") else ref.sync
    try:
        return getattr(blocking, view)(*args)
    except WrongContext as error:
        raise WrongContext(
            f"{{% live %}} asks {ref!r}, which would block the event loop: in an async view render the page in a"
            " thread, with `await sync_to_async(render)(request, ...)`"
        ) from error
    except InvalidCall:
        raise
    except ShardingError as error:
        return _missing(ref, view, error)


def _missing(ref: Any, view: str, why: object) -> Missing:
    logger.warning(
        "a page is shown without %s of %s: %s", view, topic_name(ref), why, extra={"action": "live_lost"}
    )
    return Missing()


def topic_name(ref: Any) -> str:
    """Return the type of a ref, for the log."""
    return str(ref.type_name)
