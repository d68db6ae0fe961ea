"""The floor (`bench.floor`: the same path with no framework), run in turns with ours, for the ratio of the two.

It gets the servers as DATABASE_URL and REDIS_URL.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings as django_settings

from sharding_app.adapters.postgres.conninfo import from_django_settings
from sharding_app.bench.result import Result
from sharding_app.conf import get_settings

COUNT = 20_000
RATIOS = ("ops_per_s", "p50_ms", "p99_ms")


class ProbeFailed(Exception):
    """The floor cannot be measured here, or ended with an error."""


async def probe(in_flight: int) -> dict[str, dict[str, float]]:
    """Run it once; its figures by workload. Raises ProbeFailed."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sharding_app.bench.floor", "--in-flight", str(in_flight), "--n", str(COUNT),
        env={**os.environ, "DATABASE_URL": database_url(), "REDIS_URL": redis_url()},
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, said = await child.communicate()
    if child.returncode:
        raise ProbeFailed(
            f"the probe ended with exit code {child.returncode}: {said.decode(errors='replace')}"
        )
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith(b"{")]
    return {line["workload"]: line for line in lines}


def compare(ours: Result, theirs: Mapping[str, float]) -> None:
    """Note our figures as parts of theirs, and theirs."""
    found = {f"probe_{name}": getattr(ours, name) / theirs[name] for name in RATIOS}
    ours.ratio = {**(ours.ratio or {}), **found}
    ours.note = (
        f"the probe: {theirs['ops_per_s']:,.0f}/s, p50 {theirs['p50_ms']:g} ms, p99 {theirs['p99_ms']:g} ms"
    )


def database_url() -> str:
    """The database of the settings, as a URL."""
    params = from_django_settings(django_settings.DATABASES[get_settings().database])
    user, password = quote(params.pop("user", ""), safe=""), quote(params.pop("password", ""), safe="")
    host, port, name = params.pop("host", ""), params.pop("port", ""), params.pop("dbname", "")
    who = f"{user}:{password}@" if password else f"{user}@" if user else ""
    # A folder of a socket goes into the query: it may not stand in the place of a host.
    params |= {"host": host} if host.startswith("/") else {}
    where = "" if host.startswith("/") else f"{host}:{port}" if port else host
    return f"postgresql://{who}{where}/{quote(name, safe='')}" + (f"?{urlencode(params)}" if params else "")


def redis_url() -> str:
    """The first host of the channel layer. Raises ProbeFailed where it has no address."""
    layer: Mapping[str, Any] = django_settings.CHANNEL_LAYERS[get_settings().channel_layer]
    host = (layer.get("CONFIG", {}).get("hosts") or ["redis://localhost:6379"])[0]
    who = ""
    if isinstance(host, Mapping):
        user, password = (quote(str(host.get(key) or ""), safe="") for key in ("username", "password"))
        who = f"{user}:{password}@" if user or password else ""
        host = host.get("address") or (host.get("host"), host.get("port", 6379))
    if isinstance(host, (tuple, list)):
        host = f"redis://{host[0]}:{host[1]}"
    if not isinstance(host, str):
        raise ProbeFailed("the channel layer's configuration names no address for the probe")
    scheme, separator, rest = host.partition("://")
    return f"{scheme}{separator}{who}{rest}" if separator else host
