"""A system check: whether the project's `asgi.py` has the line for the dashboard's live updates.

The module is read, not imported: importing it may start things. The project's modules that it
imports are read too. Installed packages are not: no project writes this line there.
"""

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks

ROUTING = "sharding_app.http.routing"
_DEEPEST = 4


def check_live_updates(app_configs: Any = None, **_: Any) -> list[checks.CheckMessage]:
    """Report missing live updates. It is no error: the dashboard polls."""
    if not apps.is_installed("django.contrib.admin"):
        return []
    module = str(getattr(settings, "ASGI_APPLICATION", None) or "").rpartition(".")[0]
    if module and leads_to_routing(module):
        return []
    text = "The dashboard in the admin has no live updates: it polls every two seconds."
    hint = (
        f'Add "websocket": URLRouter(websocket_urlpatterns) from {ROUTING} to the ProtocolTypeRouter that ASGI_APPLICATION'
        " names, or silence this check."
    )
    return [checks.Info(text, hint=hint, id="sharding.I001")]


def leads_to_routing(module: str, depth: int = 0) -> bool:
    """Tell whether a module of the project, or one that it imports, imports our routes."""
    if depth > _DEEPEST:
        return False
    source = _source(module)
    return source is not None and any(
        name == ROUTING or leads_to_routing(name, depth + 1) for name in _imported(source, module)
    )


def _source(module: str) -> Path | None:
    """Return the file of a module of the project. Parent packages are not imported either."""
    top, *below = module.split(".")
    if top in {*sys.stdlib_module_names, "django", "channels", "sharding_app"}:
        return None
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if not below:
        paths = [Path(spec.origin)] if spec.origin else []
    else:
        paths = [Path(place, *below) for place in spec.submodule_search_locations or ()]
        paths = [each / "__init__.py" if each.is_dir() else each.with_suffix(".py") for each in paths]
    found = (each for each in paths if each.is_file() and each.suffix == ".py")
    return next((each for each in found if "site-packages" not in each.parts), None)


def _imported(source: Path, module: str) -> Iterator[str]:
    try:
        tree = ast.parse(source.read_bytes())
    except (OSError, SyntaxError):
        return
    package = module if source.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{each.name}" for each in node.names)
