"""`manage.py sharding_doctor`: find problems of the cluster and its servers, and how to fix
them.
"""

import time
from datetime import UTC, datetime
from typing import Any

from django.conf import settings as django_settings

from sharding_app.management.progress import Progress
from sharding_app.management.report_command import LookingCommand, Seen
from sharding_app.operations.connectivity import HEALTHY, PROBLEMS, UNREACHABLE
from sharding_app.operations.diagnosis import text
from sharding_app.operations.diagnosis.examinations import judge
from sharding_app.operations.diagnosis.finding import Finding
from sharding_app.operations.diagnosis.gather import gather
from sharding_app.operations.diagnosis.look import Look


class Command(LookingCommand):
    help = (
        "Examine settings, servers, nodes, shards and a sample of the journals. Report problems, and how to fix\n"
        "them. Nothing is changed. Ids with E and W are those of system checks. List ids in SILENCED_SYSTEM_CHECKS to\n"
        "silence them.\n\n"
        "Examples:\n"
        "  manage.py sharding_doctor                       once\n"
        "  manage.py sharding_doctor --watch 60            every minute, until Ctrl-C\n"
        "  manage.py sharding_doctor --json | jq '.findings[].id'\n\n"
        "Exit codes: 0 healthy, 1 problems found, 2 a server cannot be reached."
    )
    every_seconds = 30.0

    def look(self) -> None:
        progress = Progress(self.stderr, quiet=self.as_json or self.every is not None)
        try:
            self.show(self._once(progress))
            while self.every is not None:
                time.sleep(self.every)
                self.show(self._once(progress))
        finally:
            progress.done()

    def _once(self, progress: Progress) -> Seen:
        look = gather(progress)
        progress.done()
        findings = judge(look, getattr(django_settings, "SILENCED_SYSTEM_CHECKS", ()))
        at = datetime.now(UTC)
        return Seen(
            code=exit_code(look, findings),
            at=at,
            page=lambda: text.page(findings, self.style),
            line=lambda: f"{at:%Y-%m-%dT%H:%M:%SZ} {text.line(findings)}",
            facts=lambda: _report(look, findings),
        )


def exit_code(look: Look, findings: list[Finding]) -> int:
    if (look.database_trouble and not look.has_refused) or look.nodes_trouble:
        return UNREACHABLE
    return PROBLEMS if any(each.is_problem for each in findings) else HEALTHY


def _report(look: Look, findings: list[Finding]) -> dict[str, Any]:
    return {
        "healthy": exit_code(look, findings) == HEALTHY,
        "findings": [each.as_json() for each in findings],
        "records_sampled": sum(each.looked_at for each in look.journals),
    }
