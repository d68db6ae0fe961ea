"""Health and metrics of the site, and the events of live pages:
`path("sharding/", include("sharding_app.http.urls"))`, at any place.
"""

from django.urls import path

from sharding_app.http.health import alive, ready
from sharding_app.http.metrics import metrics
from sharding_app.http.pages import live_stream

app_name = "sharding"

urlpatterns = [
    path("startup", ready, name="startup"),
    path("ready", ready, name="ready"),
    path("alive", alive, name="alive"),
    path("metrics", metrics, name="metrics"),
    path("live-pages", live_stream, name="live-pages"),
]
