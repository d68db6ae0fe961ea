"""Health of a web process, for probes: it only asks, so it is ready once it is connected to the
cluster.

Readiness is sticky, as a node's is: a database or a Redis that is away for a moment is no reason to
take all web processes out of service. The pages are public, so they answer yes or no; messages of
servers and drivers go to the log.
"""

import logging

from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from sharding_app import wiring
from sharding_app.errors import WrongContext

logger = logging.getLogger("sharding.client")
_was_ready = False


def connected() -> bool:
    """Tell whether this process is connected to the cluster; the first call begins to connect."""
    try:
        portal = wiring.portal()
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
    """Answer whether the process is, or was, connected to the cluster. `/startup` answers the
    same.
    """
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
    """Answer that the process lives, without a look at the database or Redis."""
    return _verdict(True, "it answers")
