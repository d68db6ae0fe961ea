"""Findings for people: a page, or one line where lines are collected."""

import textwrap
from collections.abc import Callable, Sequence

from django.core.management.color import Style

from sharding_app.doctor.finding import Finding
from sharding_app.management.console import counted

WIDTH = 110


def page(findings: Sequence[Finding], style: Style) -> str:
    colours: dict[str, Callable[[str], str]] = {
        "error": style.ERROR,
        "warning": style.WARNING,
        "note": style.NOTICE,
    }
    lines = []
    for each in findings:
        lines.append(f"{colours[each.severity](each.severity)} {each.id}, {each.where}")
        lines += textwrap.wrap(each.what, WIDTH, initial_indent="  ", subsequent_indent="  ")
        lines += textwrap.wrap(f"To do: {each.fix}", WIDTH, initial_indent="  ", subsequent_indent="    ")
        lines.append("")
    return "\n".join([*lines, _verdict(findings, style)])


def line(findings: Sequence[Finding]) -> str:
    problems = [each for each in findings if each.is_problem]
    words = f"unhealthy findings={len(problems)}" if problems else "healthy"
    return words + "".join(f" | {each.id} {each.what}" for each in problems)


def _verdict(findings: Sequence[Finding], style: Style) -> str:
    problems = sum(each.is_problem for each in findings)
    notes = len(findings) - problems
    beside = f" ({counted(notes, 'note')})" if notes else ""
    if problems:
        return style.ERROR(f"{counted(problems, 'problem')} found{beside}.")
    return style.SUCCESS(f"Nothing is wrong{beside}.")
