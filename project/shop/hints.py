"""What a newcomer may try first: lines for `runcluster`, when all is up."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from project.shop.administrator import FILE, NAME
from sharding_app.embedded import DataFolder
from sharding_app.operations.console import manage_line, short_path

TRY = "from project.shop.entities import Cart; print(Cart.ref('alice').sync.add('book', 2))"


def first_steps(site: str | None, **_ignored: Any) -> list[tuple[str, str]]:
    """Return the administrator's password file, if the demo has made one, and a cart to fill."""
    lines = []
    demo = getattr(settings, "DEMO_ADMIN", False)
    password = DataFolder(settings.DATA_FOLDER).path / FILE
    if demo and password.exists():
        lines.append(("Login", f"{NAME}, with the password in {short_path(password)}"))
    elif not demo:
        lines.append(("Login", f"{manage_line('createsuperuser')} makes an administrator"))
    if site:
        lines.append(("Cart", f"curl -X POST -d sku=book -d quantity=2 {site}carts/alice/"))
    lines.append(("Shell", f'{manage_line("shell", "-c")} "{TRY}"'))
    return lines
