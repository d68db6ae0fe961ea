"""Health of a web process, for probes: it only asks, so it is ready once it is connected to the cluster.

Sticky, as a node's is: who was ready stays so, since a database or a Redis that is away for a moment is no reason to take all
web processes out of service. Open to everybody, and says nothing but yes or no and why.
"""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from sharding_app import bootstrap
from sharding_app.errors import WrongContext

_was_ready = False


def connection_trouble() -> str:
    """Why this process is not connected to the cluster yet; empty: it is. The first call begins to connect."""
    try:
        portal = bootstrap.portal()
    except WrongContext as error:
        return str(error)
    return "" if portal.process is not None else portal.trouble or "it is about to join"


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
    if _was_ready:
        return _verdict(True, "connected to the cluster")
    trouble = connection_trouble()
    _was_ready = not trouble
    return _verdict(_was_ready, trouble or "connected to the cluster")


@require_safe
@never_cache
def alive(request: HttpRequest) -> JsonResponse:
    """It answers, so it lives. Neither the database nor Redis is looked at."""
    return _verdict(True, "it answers")
