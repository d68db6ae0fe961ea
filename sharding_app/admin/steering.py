"""Steering."""

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse


def steer(request: HttpRequest, action: str, admin: Any) -> HttpResponse:
    raise Http404
