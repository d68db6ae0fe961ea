"""Health and metrics of the site, and the events of live pages:
`path("sharding/", include("sharding_app.http.urls"))`, at any place.
"""

from collections.abc import Callable
from typing import Any

from django.urls import path

from sharding_app.adapters.django.database import without_transaction
from sharding_app.http.health import alive, ready
from sharding_app.http.metrics import metrics
from sharding_app.http.pages import live_stream

app_name = "sharding"


def _open(view: Callable[..., Any]) -> Any:
    """Keep Django's LoginRequiredMiddleware away too: a probe has no login, and metrics a token."""
    opened: Any = without_transaction(view)
    opened.login_required = False
    return opened


urlpatterns = [
    path("startup", _open(ready), name="startup"),
    path("ready", _open(ready), name="ready"),
    path("alive", _open(alive), name="alive"),
    path("metrics", _open(metrics), name="metrics"),
    path("live-pages", without_transaction(live_stream), name="live-pages"),
]
