"""Live pages over WebSocket and as server-sent events: what a browser says, and how it is told.

A page with our script opens one WebSocket, and names all that it shows::

    browser  {"watch": ["token", ...]}    {"forget": ["key", ...]}    {"got": "question"}
    site     [{"key": "...", "value": ...}, {"key": "...", "html": "..."}, {"ask": "question"},
              {"key": "...", "lost": true}, {"key": "...", "refused": "denied"}]

A connection whose address has ``?watch=token`` gets what these tokens show and nothing around it:
HTML or JSON. That is for htmx, and for scripts of a site's own. With ``frames=1`` a stream of
events has the site's messages as above.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.views.decorators.http import require_GET

from sharding_app.http.handshake import asked_by_own_page, from_own_page, user_now
from sharding_app.live.hub import Hub, Limits, Refusal, RightsUnknown, Seat
from sharding_app.live.topics import Topic
from sharding_app.redaction import told
from sharding_app.settings.load import get_settings

logger = logging.getLogger("sharding.client")

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

EVENTS = "text/event-stream"
MAX_WORDS = 64 * 1024
"""Longest message of a browser."""
AGAIN_MS = (500, 3000)
"""Within this time a browser comes again after its stream has ended."""
POLICY, AGAIN = 1008, 1013
"""Codes with which a WebSocket ends: it may not say that; it may try again."""
STATUS: dict[Refusal, int] = {"denied": 403, "unknown": 404, "full": 503}
TURNED_AWAY = '[{"refused":"full"}]'
"""For our script: this process has no room for another browser."""
REASONS: dict[Refusal, str] = {
    "denied": "You may not watch this.",
    "unknown": "There is no such view. Load the page again.",
    "full": "Too many views are watched.",
}

_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """Return the hub of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _hubs.get(loop)
    if found is None:
        settings = get_settings()
        limits = Limits(
            browsers=settings.live_browsers,
            views=settings.live_views,
            watches=settings.followers,
            check_seconds=settings.live_check_seconds,
        )
        # A hub holds its loop, so that the loops of a test run would never be let go.
        for each, of_ended in list(_hubs.items()):
            if each.is_closed():
                of_ended.end_threads()
                _hubs.pop(each, None)
        found = _hubs[loop] = Hub(limits, user_now)
    return found


def hubs() -> list[Hub]:
    """Return the hubs of this process."""
    return list(_hubs.values())


# -- WebSocket -------------------------------------------------------------------------------------


async def live_socket(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
    """Serve one WebSocket: the ASGI application of the route."""
    if (await receive())["type"] != "websocket.connect":
        return
    if not from_own_page(scope):
        await send({"type": "websocket.close"})
        return
    tokens = _tokens(scope)
    seat = hub().admit(scope, frames=not tokens, answers=not tokens)
    try:
        if seat is None:
            await _turn_away(send, plain=bool(tokens))
        elif await _begin(seat, tokens, send):
            await _converse(seat, receive, send)
    finally:
        if seat is not None:
            hub().leave(seat)


async def _turn_away(send: Send, *, plain: bool) -> None:
    if not plain:
        await send({"type": "websocket.accept"})
        await send({"type": "websocket.send", "text": TURNED_AWAY})
    await send({"type": "websocket.close", "code": POLICY})


async def _begin(seat: Seat, tokens: list[str], send: Send) -> bool:
    """Accept the connection, unless it names what it may not watch."""
    found: dict[str, Topic | Refusal] = {}
    refused = len(tokens) > hub().limits.views
    if not refused:
        try:
            found = await hub().ask_rights(seat.scope, tokens)
            refused = any(isinstance(each, str) for each in found.values())
        except RightsUnknown:
            refused = True
    if refused:
        await send({"type": "websocket.close"})
        return False
    await send({"type": "websocket.accept"})
    for token, topic in found.items():
        hub().attach(seat, token, topic)
    return True


async def _converse(seat: Seat, receive: Receive, send: Send) -> None:
    telling = asyncio.ensure_future(_tell(seat, send))
    try:
        while (message := await receive())["type"] == "websocket.receive":
            code = await _hear(seat, message.get("text"))
            if code:
                await send({"type": "websocket.close", "code": code})
                return
    finally:
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await telling


async def _tell(seat: Seat, send: Send) -> None:
    frames = seat.frames
    try:
        while (items := await seat.next()) is not None:
            for text in [f"[{','.join(items)}]"] if frames else items:
                await send({"type": "websocket.send", "text": text})
    except OSError:
        return  # the browser is gone, and `receive` says so too
    except Exception as error:  # noqa: BLE001 (logged; a browser that is told nothing has to come again)
        logger.warning("a browser cannot be told: %s", told(error), extra={"action": "live_failed"})
    await send({"type": "websocket.close", "code": AGAIN})


async def _hear(seat: Seat, words: str | None) -> int:
    """Take in a browser's message. Return the code of the end, if it makes no sense."""
    if words is None or len(words) > MAX_WORDS or not seat.frames:
        return POLICY
    try:
        said = json.loads(words)
        tokens, keys = said.get("watch", ()), said.get("forget", ())
        if not all(isinstance(each, str) for each in (*tokens, *keys)):
            return POLICY
        "".join((*tokens, *keys)).encode()  # JSON has lone surrogates, which no answer could carry
        if isinstance(question := said.get("got"), str):
            seat.got(question)
        for key in keys:
            hub().forget(seat, key)
        if tokens:
            await hub().watch(seat, list(tokens))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return POLICY
    except RightsUnknown:
        return AGAIN
    return 0


# -- Server-sent events ----------------------------------------------------------------------------


@require_GET
async def live_stream(request: HttpRequest) -> HttpResponseBase:
    """Send what the tokens of ``?watch=`` show, as events, for as long as the browser listens."""
    if not isinstance(request, ASGIRequest):
        return _refusal(501, "Live pages need an ASGI server, such as Daphne.")
    if not asked_by_own_page(request.scope):
        return _refusal(403, "A page of another site asks.")
    tokens, frames = _tokens(request.scope), request.GET.get("frames") == "1"
    views = hub().limits.views
    if (len(tokens) > views and not frames) or len(hub().seats) >= hub().limits.browsers:
        hub().counters["refused_full"] += 1
        return (
            HttpResponse(_event(TURNED_AWAY), content_type=EVENTS)
            if frames
            else _refusal(503, REASONS["full"])
        )
    try:
        found = await hub().ask_rights(request.scope, tokens[:views])
    except RightsUnknown:
        return _refusal(503, "Your rights cannot be checked now.")
    refused = [each for each in found.values() if isinstance(each, str)]
    if not found or (refused and not frames):
        why = refused[0] if refused else "unknown"
        hub().counters[f"refused_{why}"] += 1
        return _refusal(STATUS[why], REASONS[why])
    # Beyond the limit, as over a WebSocket.
    found |= dict.fromkeys(tokens[views:], "full")
    return _stream(_events(request.scope, found, frames=frames))


def _stream(events: AsyncIterator[str]) -> HttpResponseBase:
    response = StreamingHttpResponse(events, content_type=EVENTS)
    response["Cache-Control"] = "no-store"
    response["X-Accel-Buffering"] = "no"
    # Compression would hold events back.
    response["Content-Encoding"] = "identity"
    return response


async def _events(
    scope: Mapping[str, Any], found: dict[str, Topic | Refusal], *, frames: bool
) -> AsyncIterator[str]:
    seat = hub().admit(scope, frames=frames, answers=False)
    if seat is None:
        return
    try:
        yield f"retry: {random.randint(*AGAIN_MS)}\n\n"  # noqa: S311 (no secret)
        for token, topic in found.items():
            hub().attach(seat, token, topic)
        while (items := await seat.next()) is not None:
            if frames:
                yield _event(f"[{','.join(items)}]")
            else:
                yield "".join(map(_event, items)) or ":\n\n"
            # Where a right was withdrawn, the browser asks again, and is told.
            if not frames and not seat.forms:
                return
    finally:
        hub().leave(seat)


def _event(data: str) -> str:
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "".join(f"data: {line}\n" for line in lines) + "\n"


def _refusal(status: int, text: str) -> HttpResponse:
    return HttpResponse(f"{text}\n", status=status, content_type="text/plain; charset=utf-8")


def _tokens(scope: Mapping[str, Any]) -> list[str]:
    query = bytes(scope.get("query_string", b"")).decode("latin-1")
    try:
        return parse_qs(query, max_num_fields=1000).get("watch", [])
    except ValueError:
        return []
