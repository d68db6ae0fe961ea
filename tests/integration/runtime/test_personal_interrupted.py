"""The erasure of a person by a process that is killed between two of its steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest
from django.conf import settings
from django.db import connection
from django.test import override_settings

from sharding_app import Personal, SubjectErased, Unavailable, erase_subject
from sharding_app.models import Decision, Event, Subject
from sharding_app.settings.load import get_settings
from sharding_app.wiring import conninfo
from tests.integration.runtime.persons import Buyer, Sale
from tests.support.live import ROOT
from tests.support.slack import SLACK

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sharding_real]

KEYS = ["Xk2mP9vQ4wL7tR1zB8nH5cJ3"]
NAME = "Annabel Quixote"
SCRIPT = """
import json, os, signal, sys
from django.conf import settings

given = json.loads(sys.argv[1])
settings.DATABASES, settings.SHARDING, settings.CHANNEL_LAYERS = given["databases"], given["sharding"], given["layers"]

import django

django.setup()

from sharding_app.adapters.postgres.subjects import Subjects
from sharding_app.operations import subjects
from tests.integration.runtime import persons


def kill_around(owner, name, step, when):
    real = getattr(owner, name)

    def killing(*args, **options):
        if when == "before" and (step is None or step == args[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*args, **options)
        if when == "after" and (step is None or step == args[1]):
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, killing)


place, when = given["step"], given["when"]
if place == "clean":
    kill_around(Subjects, "clean", None, when)
elif place == "entity":
    kill_around(subjects, "erase", None, when)
else:
    kill_around(Subjects, "rows", place, when)
subjects.erase_subject("ann")
"""


@pytest.fixture(scope="module", autouse=True)
def _keys() -> Iterator[None]:
    with override_settings(SHARDING={**settings.SHARDING, "PERSONAL_KEYS": KEYS, "KEYS": KEYS}):
        yield


def killed(step: str, when: str) -> None:
    """Have a process erase ann, and kill it at a step."""
    database = {**settings.DATABASES["default"], "NAME": connection.settings_dict["NAME"]}
    given = {
        "databases": {"default": database},
        "sharding": settings.SHARDING,
        "layers": settings.CHANNEL_LAYERS,
        "step": step,
        "when": when,
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(given, default=str)],
        cwd=ROOT, env={**os.environ, "DJANGO_SETTINGS_MODULE": "project.settings"}, check=False, timeout=60 * SLACK,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_the_persons_entities_do_not_wait_for_another_vacuum() -> None:
    """One that prevents a wraparound yields to no other, and may take hours."""
    Buyer.ref("ann").sync.register(Personal(NAME, "ann"))
    with psycopg.connect(**cast(Any, conninfo(get_settings().lifeline_database))) as other:
        other.execute("LOCK TABLE sharding_subject IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(Unavailable, match="lock timeout"):
            erase_subject("ann")
    assert not Event.objects.filter(entity="ann").exists()
    erased = Subject.objects.filter(erased_at__isnull=False)
    assert erased.filter(wrapped=None, finished_at=None).count() == 1
    erase_subject("ann")
    assert not erased.filter(finished_at=None).exists()


@pytest.mark.parametrize(
    ("step", "when", "key_is_gone", "events"),
    [
        ("subject_erase", "before", False, 1),
        ("subject_erase", "after", True, 1),
        ("entity", "after", True, 0),
        ("clean", "after", True, 0),
        ("subject_finish", "before", True, 0),
        ("subject_finish", "after", True, 0),
    ],
)
def test_it_is_carried_to_its_end_by_another_call(
    step: str, when: str, key_is_gone: bool, events: int
) -> None:
    Buyer.ref("ann").sync.register(Personal(NAME, "ann"))
    Sale.ref("lamp").sync.bid("ann", NAME, 7)
    killed(step, when)
    is_finished = (step, when) == ("subject_finish", "after")
    erased = Subject.objects.filter(erased_at__isnull=False)
    assert erased.count() == key_is_gone
    assert erased.filter(wrapped=None).count() == key_is_gone, "mark and key change in one commit"
    assert erased.filter(finished_at__isnull=False).count() == is_finished
    assert Event.objects.filter(entity="ann").count() == events
    assert Decision.objects.filter(action="subject_erased").count() == is_finished
    if key_is_gone:
        with pytest.raises(SubjectErased):
            Sale.ref("chair").sync.bid("ann", NAME, 8)

    again = erase_subject("ann")

    assert again.entities["entities.Buyer"].events == events
    assert erased.filter(wrapped=None, finished_at__isnull=False).count() == 1
    assert not Event.objects.filter(entity="ann").exists()
    assert Decision.objects.filter(action="subject_erased").count() == 1, "it is told once"
    Sale.ref("lamp").sync.leave_memory()
    assert Sale.ref("lamp").sync.shown() == {"ann": "(erased)"}
