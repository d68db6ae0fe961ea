"""Health of a web process, for probes: it only asks, so it is ready once it is connected to the cluster.

Sticky, as a node's is: who was ready stays so, since a database or a Redis that is away for a moment is no reason to take all
web processes out of service. Open to everybody, so it says yes or no: what a server or its driver said stands in the log.
"""

import logging

from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from sharding_app import bootstrap
from sharding_app.errors import WrongContext

logger = logging.getLogger("sharding.client")
_was_ready = False


def connected() -> bool:
    """Is this process connected to the cluster? The first call begins to connect; the log says what it waits for."""
    try:
        portal = bootstrap.portal()
    except WrongContext as error:
        logger.warning("cannot connect to the cluster: %s", error, extra={"action": "client_refused"})
        return False
    return portal.process is not None


def _verdict(ok: bool, text: str) -> JsonResponse:
    return JsonResponse(
        {"status": "pass" if ok else "fail", "output": text},
        status=200 if ok else 503,
        content_type="application/health+json",
    )


@require_safe
@never_cache
def ready(request: HttpRequest) -> JsonResponse:
    """Connected to the cluster, now or before. `/startup` asks the same."""
    global _was_ready
    _was_ready = _was_ready or connected()
    why = (
        "connected to the cluster"
        if _was_ready
        else "not connected to the cluster: see the log (sharding.client)"
    )
    return _verdict(_was_ready, why)


@require_safe
@never_cache
def alive(request: HttpRequest) -> JsonResponse:
    """It answers, so it lives. Neither the database nor Redis is looked at."""
    return _verdict(True, "it answers")
