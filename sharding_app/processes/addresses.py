"""The addresses of the servers in the settings, and how a process uses proxies instead."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from django.conf import settings as django_settings

from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.embedded.settings import lead_elsewhere, started
from sharding_app.settings.load import get_settings, layer_entries

LOOPBACK = "127.0.0.1"
POSTGRES_PORT, REDIS_PORT = 5432, 6379


class NoAddress(Exception):
    """The settings contain no address that another process could use."""


def database_url() -> str:
    """Return the database of the settings as a URL."""
    params = from_django_settings(django_settings.DATABASES[get_settings().database])
    user, password = quote(params.pop("user", ""), safe=""), quote(params.pop("password", ""), safe="")
    host, port, name = params.pop("host", ""), params.pop("port", ""), params.pop("dbname", "")
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    # A folder of a socket goes into the query: it may not stand in the place of a host.
    params |= {"host": host} if host.startswith("/") else {}
    where = "" if host.startswith("/") else f"{host}:{port}" if port else host
    return f"postgresql://{who}{where}/{quote(name, safe='')}" + (f"?{urlencode(params)}" if params else "")


def redis_url() -> str:
    """Return the first host of the channel layer; raise NoAddress if there is none."""
    if get_settings().links == "direct":
        raise NoAddress("all links are direct, so no channel layer is used")
    alias = get_settings().channel_layer
    layer: Mapping[str, Any] | None = layer_entries().get(alias)
    if layer is None:
        raise NoAddress(f"CHANNEL_LAYERS has no layer {alias!r}")
    host = (layer.get("CONFIG", {}).get("hosts") or ["redis://localhost:6379"])[0]
    who = ""
    if isinstance(host, Mapping):
        user, password = (quote(str(host.get(key) or ""), safe="") for key in ("username", "password"))
        who = f"{user}:{password}@" if user or password else ""
        host = host.get("address") or (host.get("host"), host.get("port", 6379))
    if isinstance(host, (tuple, list)):
        host = f"redis://{host[0]}:{host[1]}"
    if not isinstance(host, str):
        raise NoAddress("the configuration of the channel layer contains no address for the probe")
    scheme, separator, rest = host.partition("://")
    return f"{scheme}{separator}{who}{rest}" if separator else host


def postgres_address() -> tuple[str, int]:
    """Return the address of PostgreSQL; raise NoAddress if no proxy can be put in front of it."""
    config = started(django_settings.DATABASES[get_settings().database])
    host = str(config.get("HOST") or "")
    if not host or host.startswith("/") or "," in host:
        raise NoAddress("PostgreSQL is configured with a Unix socket or with several hosts")
    return host, int(config.get("PORT") or POSTGRES_PORT)


def redis_address() -> tuple[str, int]:
    """Return the address of Redis; raise NoAddress if no proxy can be put in front of it."""
    url = urlsplit(redis_url())
    if url.scheme != "redis" or not url.hostname:
        raise NoAddress(f"Redis is configured with {url.scheme}://")
    return url.hostname, url.port or REDIS_PORT


ADDRESSES = {"postgres": postgres_address, "redis": redis_address}


def reroute(through: Mapping[str, int]) -> None:
    """Connect this process to its servers through these loopback ports; call before it connects."""
    if port := through.get("postgres"):
        database = django_settings.DATABASES[get_settings().database]
        # The name stays: a certificate is checked against it, while the address is the proxy's.
        database["OPTIONS"] = {**(database.get("OPTIONS") or {}), "hostaddr": LOOPBACK}
        lead_elsewhere(database, port)
    if port := through.get("redis"):
        url = urlsplit(redis_url())
        before, separator, _ = url.netloc.rpartition("@")
        behind = urlunsplit(url._replace(netloc=f"{before}{separator}{LOOPBACK}:{port}"))
        layer: dict[str, Any] = django_settings.CHANNEL_LAYERS[get_settings().channel_layer]
        layer["CONFIG"] = {**layer.get("CONFIG", {}), "hosts": [behind]}
