"""The meaning of a server's failure: an answer about the rows, or no answer at all."""

import json
import re

import psycopg

from sharding_app.ports.deliveries import MessagesGone
from sharding_app.ports.journal import RowRefused, ShardsFenced
from sharding_app.protocol.ids import ShardId

LOST = (psycopg.Error, OSError)
"""All errors of a call that the server, the network or time may cause."""

UNSENDABLE = (UnicodeError, OverflowError)
"""Errors of the driver for a text with lone surrogates, or a number that no column holds."""

FENCED = "SH001"
STALE_TERM = "SH002"
GONE = "SH003"

_REFUSED_CLASSES = {"22", "23", "54"}
"""Data exception, integrity violation, limit exceeded: the row's own fault, now and later."""
_NO_TABLE = "42P01"
_MISSING = {_NO_TABLE, "42703", "42883"}
_NO_RIGHT = "42501"
_ROW_SECURITY = "check_enable_rls"
"""The function of the server that refuses a read because of row-level security."""
_COPY_LINE = re.compile(r"^COPY \w+, line (\d+)", re.MULTILINE)


def is_refused(error: BaseException) -> bool:
    """Tell whether a value was at fault, which the server, or the driver before it, will never
    take.
    """
    if isinstance(error, psycopg.Error):
        if error.sqlstate is None:
            return isinstance(error, psycopg.DataError)
        return error.sqlstate[:2] in _REFUSED_CLASSES
    return isinstance(error, UNSENDABLE)


def has_failed(error: BaseException | None) -> bool:
    """Tell whether the server itself says that the statement had no effect."""
    return isinstance(error, psycopg.Error) and error.diag.severity_nonlocalized == "ERROR"


def lacks_rights(error: BaseException | None) -> bool:
    """Tell whether the server refuses a statement to this role."""
    return isinstance(error, psycopg.Error) and error.sqlstate == _NO_RIGHT


def explain(error: BaseException) -> str:
    """Describe the error in one line, with the remedy where it is known."""
    if isinstance(error, psycopg.Error):
        if error.sqlstate in _MISSING:
            hint = ", or let its role's search_path lead to them" if error.sqlstate == _NO_TABLE else ""
            return f"the cluster's tables are missing or old: run `manage.py migrate`{hint} ({error.diag.message_primary})"
        if error.sqlstate == _NO_RIGHT and error.diag.source_function == _ROW_SECURITY:
            return f"row-level security would leave rows out for this role, see sharding.E017 ({error.diag.message_primary})"
        if error.sqlstate is not None:
            return f"{error.diag.message_primary} ({error.sqlstate})"
    return " ".join(str(error).split()) or type(error).__name__


def verdict(error: psycopg.Error, *, alone: bool = False) -> ShardsFenced | MessagesGone | RowRefused | None:
    """Return the server's verdict on the rows, or on one that was `alone`; None: it says nothing
    about them.
    """
    if error.sqlstate is None:
        return RowRefused(explain(error)) if isinstance(error, psycopg.DataError) else None
    if error.sqlstate == FENCED:
        return ShardsFenced(_stale(error.diag.message_detail or ""))
    if error.sqlstate == GONE:
        return _gone(error.diag.message_detail or "")
    if error.sqlstate[:2] in _REFUSED_CLASSES:
        line = _COPY_LINE.search(error.diag.context or "")
        return RowRefused(explain(error), int(line[1]) - 1 if line else 0 if alone else None)
    return None


def _stale(detail: str) -> frozenset[tuple[int, ShardId]]:
    return frozenset((int(type_id), int(shard)) for type_id, shard in json.loads(detail))


def _gone(detail: str) -> MessagesGone:
    found: list[tuple[str, float | str | None]] = json.loads(detail)
    gone = frozenset(message for message, left in found if left is None)
    early = {message: left for message, left in found if isinstance(left, int | float)}
    marked = {message: left == "partly" for message, left in found if isinstance(left, str)}
    return MessagesGone(gone, early, marked)
