"""Health and metrics of the site, and the events of live pages:
`path("sharding/", include("sharding_app.http.urls"))`, at any place.
"""

from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from django.urls import path

from sharding_app.http.health import alive, ready
from sharding_app.http.metrics import metrics
from sharding_app.http.pages import live_stream

app_name = "sharding"


def _apart(view: Callable[..., Any]) -> Any:
    """Keep a view out of ATOMIC_REQUESTS: it answers without the database, or is a coroutine."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


def _open(view: Callable[..., Any]) -> Any:
    """Keep Django's LoginRequiredMiddleware away too: a probe has no login, and metrics a token."""
    apart = _apart(view)
    apart.login_required = False
    return apart


urlpatterns = [
    path("startup", _open(ready), name="startup"),
    path("ready", _open(ready), name="ready"),
    path("alive", _open(alive), name="alive"),
    path("metrics", _open(metrics), name="metrics"),
    path("live-pages", _apart(live_stream), name="live-pages"),
]
