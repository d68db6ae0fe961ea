"""Findings as text: a page for people, or one line for logs."""

import textwrap
from collections.abc import Callable, Sequence

from django.core.management.color import Style

from sharding_app.operations.console import counted
from sharding_app.operations.diagnosis.finding import Finding

WIDTH = 110


def page(findings: Sequence[Finding], style: Style) -> str:
    lines = []
    for each in findings:
        lines += [*entry(each, style), ""]
    return "\n".join([*lines, _verdict(findings, style)])


def entry(finding: Finding, style: Style) -> list[str]:
    """Return the lines of one finding: its id and place, the problem, and the fix."""
    colours: dict[str, Callable[[str], str]] = {
        "error": style.ERROR,
        "warning": style.WARNING,
        "note": style.NOTICE,
    }
    return [
        f"{colours[finding.severity](finding.severity)} {finding.id}, {finding.where}",
        *textwrap.wrap(finding.what, WIDTH, initial_indent="  ", subsequent_indent="  "),
        *textwrap.wrap(f"To do: {finding.fix}", WIDTH, initial_indent="  ", subsequent_indent="    "),
    ]


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
    return style.SUCCESS(f"No problems found{beside}.")
