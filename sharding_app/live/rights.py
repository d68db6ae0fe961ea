"""Who may watch a view in a browser.

A public view: each browser that has its token. Any other one: a user who is logged in, and whom the
entity's `may_watch` lets, or that of the project (``SHARDING["MAY_WATCH"]``). Without such a hook
nothing but public views is shown. The entity is not loaded for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from django.db import Error
from django.utils.module_loading import import_string

from sharding_app.entities.registry import registry
from sharding_app.live.topics import Topic
from sharding_app.settings.load import get_settings

logger = logging.getLogger("sharding.client")

MayWatch = Callable[[Any, type[Any], str, str], bool]
"""The project's hook: user, entity class, entity id, view."""


def may_watch(topic: Topic, user: Any) -> bool:
    """Tell whether a user may watch. It may ask the database, so it runs in a thread.

    Raises an error of the database, since the answer is unknown then. A hook that raises another
    one, or returns another value than True, says no.
    """
    if topic.handler.public:
        return True
    if user is None or not user.is_authenticated or not user.is_active:
        return False
    source, cls = topic.source, registry.get(topic.source.type_name).cls
    try:
        if not hasattr(cls.may_watch, "__sharding_default__"):
            answer = cls.may_watch(user, source.entity, source.view)
        elif path := get_settings().may_watch:
            answer = import_string(path)(user, cls, source.entity, source.view)
        else:
            answer = False
    except Error:
        raise
    except Exception:
        logger.exception(
            "may_watch of %s failed: the view is not shown", source.type_name,
            extra={"action": "live_refused"},
        )  # fmt: skip
        return False
    if not isinstance(answer, bool):
        logger.error(
            "may_watch of %s must return True or False, not %r: the view is not shown",
            source.type_name, type(answer).__qualname__, extra={"action": "live_refused"},
        )  # fmt: skip
    return answer is True
