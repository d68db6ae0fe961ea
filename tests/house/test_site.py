"""The demo site: settings that start nothing, commands that say one clear sentence, a README that
CI executes.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from pytest_django.fixtures import Settings

from manage import needs_servers
from project.settings.base import DATA_FOLDER
from project.settings.urls import database, redis_host
from project.shop.administrator import FILE, after_migrate
from sharding_app.embedded import DataFolder, Secret, Servers

ROOT = Path(__file__).resolve().parents[2]
RUN = "python3 -m venv .venv && .venv/bin/python -m pip install -qr requirements.txt && .venv/bin/python manage.py runcluster"
TEST = "python3 -m venv .venv && .venv/bin/python -m pip install -qr requirements.txt && .venv/bin/python -m pytest -q -n 4"


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python of ours in the project, with nothing but this added to the environment."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if key not in {"DATABASE_URL", "REDIS_URL", "SECRET_KEY"}
    }
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**kept, **environment},
        stdin=subprocess.DEVNULL,
    )


def test_the_readme_has_the_two_lines_and_ci_runs_the_second() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert lines.count(RUN) == lines.count(TEST) == 1
    script = (ROOT / ".ci" / "run").read_text()
    (pattern,) = re.findall(r"test_line=\$\(grep -E '(.+)' README\.md\)", script)
    assert [line for line in lines if re.search(pattern, line)] == [TEST]
    # Its first half installs, before the checks that go on beside its second half, which tests.
    assert 'bash -c "${test_line% && *}"' in script
    assert 'bash -c "${test_line##* && }"' in script


@pytest.mark.parametrize("name", ["requirements.txt", ".ci/requirements.txt"])
def test_requirements_are_wheels_pinned_and_have_hashes(name: str) -> None:
    """A file that an index replaces is refused: pip takes those whose hash stands here, and no
    others.
    """
    text = (ROOT / name).read_text().replace(" \\\n    ", " ")
    first, second, *others = text.splitlines()
    assert (first, second) == ("--only-binary=:all:", "--require-hashes")
    pins = [line for line in others if line and not line.startswith(("#", "sharding-app @ file:"))]
    pattern = r"[a-z0-9.-]+(\[\w+\])?==[\w.]+( ; [^#]+?)?( --hash=sha256:[0-9a-f]{64})+"
    assert [pin for pin in pins if not re.fullmatch(pattern, pin)] == []


def test_an_old_python_is_told_so_by_pip(tmp_path: Path) -> None:
    """The line for old Pythons is asked for on this one: pip has to stop at it, hashes or not."""
    text = (ROOT / "requirements.txt").read_text().replace('python_version < "3.11"', "python_version > '3'")
    (tmp_path / "requirements.txt").write_text(text)
    pip = ("-m", "pip", "install", "--dry-run", "--no-index", "-qr", str(tmp_path / "requirements.txt"))
    answer = python(*pip)
    assert answer.returncode != 0
    assert "this-needs-Python-3.11-or-newer" in answer.stderr.splitlines()[0]


AUDIT = """
import json, subprocess, sys
class Answer: returncode, stdout, stderr = 0, {stdout!r}, {stderr!r}
subprocess.run = lambda *a, **k: Answer
sys.argv = {arguments!r}
import runpy; runpy.run_path(".ci/audit.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("packages", "stderr", "passes"),
    [
        ([{"name": "a", "version": "1", "vulns": []}], "", True),
        ([{"name": "a", "skip_reason": "not found"}], "", False),
        ([{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "not found"}], "", False),
        ([], "", False),
        (None, "ConnectionError: refused", False),
        ([{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": []}]}], "", False),
    ],
)
def test_an_audit_that_audited_nothing_does_not_pass(packages: Any, stderr: str, passes: bool) -> None:
    stdout = "" if packages is None else json.dumps({"dependencies": packages})
    script = AUDIT.format(stdout=stdout, stderr=stderr, arguments=["audit.py", "requirements.txt"])
    assert (python("-c", script).returncode == 0) is passes


def test_importing_settings_starts_nothing(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, subprocess, socket\n"
        "def refuse(*a, **k): raise AssertionError('started or connected')\n"
        "subprocess.Popen = refuse\nsocket.socket.connect = refuse\n"
        f"data = pathlib.Path({str(tmp_path / 'data')!r})\n"
        "from sharding_app import embedded\n"
        "import project.settings as settings\n"
        "print(settings.DATABASES['default']['PORT'], settings.CHANNEL_LAYERS)\n"
        "print(embedded.database(data)['PORT'], embedded.channel_layer(data))\n"
    )
    first, again = python("-c", script), python("-c", script)
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout != ""
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        ".gitignore",
        "access.json",
        "holders",
        "lock",
    ]


@pytest.mark.parametrize(
    ("line", "needed"),
    [
        ("", False),
        ("help", False),
        ("migrate --help", False),
        ("check --deploy", False),
        ("check --database default", True),
        ("makemigrations --check", False),
        ("sharding_simulate --seeds 3", False),
        ("sharding_schema --check", False),
        ("migrate", True),
        ("runserver 8001", True),
        ("runcluster --nodes 3", True),
        ("sharding_status --json", True),
        ("shell", True),
        ("test", True),
    ],
)
def test_only_commands_that_need_servers_start_them(line: str, needed: bool) -> None:
    assert needs_servers(line.split()) is needed


@pytest.mark.both_ways
def test_given_urls_are_what_settings_use(servers: Servers) -> None:
    given = "DATABASE_URL" in os.environ
    assert (servers.folder is None) is given
    assert settings.DATABASES["default"]["PORT"] == database(servers.database_url)["PORT"]
    for layer in settings.CHANNEL_LAYERS.values():
        assert layer["CONFIG"]["hosts"] == [redis_host(servers.redis_url)]


WIRED = "import sys, django; django.setup(); import sharding_app.wiring; print('redis' in sys.modules)"


@pytest.mark.parametrize("redis_url", ["redis://127.0.0.1:1", ""])
def test_what_a_layer_needs_is_imported_before_a_loop_runs_or_never(redis_url: str) -> None:
    """A node whose loop waits for an import warns that its loop stands still."""
    urls = {"DATABASE_URL": "postgresql://u@127.0.0.1:1/x", "REDIS_URL": redis_url}
    answer = python("-c", WIRED, DJANGO_SETTINGS_MODULE="project.settings", **urls)
    assert answer.stdout == f"{bool(redis_url)}\n", answer.stderr


@pytest.mark.both_ways
@pytest.mark.django_db
def test_the_database_is_a_real_postgres_that_waits_for_each_commit() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT version(), current_setting('synchronous_commit')")
        version, waits = cursor.fetchone()
    assert version.startswith("PostgreSQL ")
    assert waits == "on"


def test_the_demo_waits_for_the_disk() -> None:
    assert DataFolder(DATA_FOLDER).access().durable


def test_a_database_url_is_read_whole() -> None:
    found = database("postgres://us%40er:p%2Fw@db.example:6543/na%20me?sslmode=require")
    assert (found["USER"], found["PASSWORD"], found["NAME"]) == ("us@er", "p/w", "na me")
    assert (found["HOST"], found["PORT"], found["OPTIONS"]) == ("db.example", "6543", {"sslmode": "require"})
    assert database("postgresql:///shop?host=/var/run/postgresql")["HOST"] == "/var/run/postgresql"
    with pytest.raises(ImproperlyConfigured, match="journal needs PostgreSQL"):
        database("sqlite:///db.sqlite3")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:hidden#part@db.example/shop",
        "postgresql://user:hid/den@db.example:5432/shop#x",
        "postgresql://user:hidden@db.example:port/shop",
        "postgresql://[hidden/shop",
        "user:hidden@db.example/shop",
    ],
)
def test_a_url_that_is_none_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ImproperlyConfigured) as refused:
        database(url)
    assert "hid" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_a_redis_url_is_read_whole() -> None:
    assert redis_host("rediss://us%40er:p%2Fw@redis.example:6380/2?x=1") == {
        "address": "rediss://redis.example:6380/2?x=1",
        "socket_timeout": None,
        "username": "us@er",
        "password": "p/w",
    }
    assert "password" not in redis_host("redis://127.0.0.1:6379/0")


def test_a_secret_is_printed_as_stars() -> None:
    assert Secret("hidden") == "hidden"
    assert "hidden" not in f"{ {'password': Secret('hidden')} }"


def test_production_settings_name_what_is_missing_and_pass_the_deployment_checks() -> None:
    check = (
        "manage.py",
        "check",
        "--deploy",
        "--fail-level",
        "WARNING",
        "--settings",
        "project.settings.production",
    )
    missing = python(*check, SECRET_KEY="k" * 20)
    assert missing.returncode != 0
    assert "Set ALLOWED_HOSTS in the environment" in missing.stderr
    passed = python(*check, **PRODUCTION)
    assert passed.returncode == 0, passed.stderr


PRODUCTION = {
    "SECRET_KEY": "Zq3-_8xYwVu7TsRqPoNmLkJiHgFeDcBa0918273645-unguessable-and-long-enough",
    "SHARDING_KEYS": "a-new-key-of-32-bytes-or-a-few-more,an-old-key-of-32-bytes-or-a-few-more",
    "ALLOWED_HOSTS": "shop.example.org, www.example.org",
    "DATABASE_URL": "postgresql://user:hidden@db.example.org/shop?sslmode=verify-full",
    "REDIS_URL": "rediss://:hidden@redis.example.org/0",
}
IMPORT = "import project.settings.production as s; print(s.SHARDING['ENCRYPT'], s.SHOP_NEEDS_LOGIN)"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"REDIS_URL": "redis://:hidden@redis.example.org/0"}, "REDIS_URL must begin with rediss://"),
        ({"DATABASE_URL": "postgresql://u:hidden@db.example.org/shop"}, "needs ?sslmode=verify-full"),
        ({"DATABASE_URL": "postgresql://u:hidden@db.example.org/shop?sslmode=prefer"}, "needs ?sslmode=verify-full"),
        ({"ALLOWED_HOSTS": "shop.example.org,*"}, "'*' takes any Host header"),
    ],
)  # fmt: skip
def test_production_refuses_what_others_can_read(changed: dict[str, str], said: str) -> None:
    answer = python("-c", IMPORT, **{**PRODUCTION, **changed})
    assert answer.returncode != 0
    assert said in answer.stderr.splitlines()[-1]
    assert "hidden" not in answer.stderr


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"REDIS_URL": "redis://redis.example.org/0", "DATABASE_URL": "postgresql://db/shop", "CLEAR_TEXT": "redis, postgres"},
        {"REDIS_URL": "unix:///run/redis.sock", "DATABASE_URL": "postgresql:///shop?host=/run/postgresql"},
        {"REDIS_URL": ""},
    ],
)  # fmt: skip
def test_production_encrypts_and_asks_customers_to_log_in(changed: dict[str, str]) -> None:
    answer = python("-c", IMPORT, **{**PRODUCTION, **changed})
    assert answer.stdout == "True True\n", answer.stderr


def test_missing_packages_are_said_in_one_sentence() -> None:
    answer = python("-S", "-E", "manage.py", "migrate")
    assert answer.returncode == 1
    (sentence,) = answer.stderr.splitlines()
    assert "is not installed in" in sentence
    assert "pip install -qr requirements.txt" in sentence


def test_a_server_that_cannot_be_had_is_said_in_one_sentence(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib, project.settings.base as base, manage\n"
        f"base.DATA_FOLDER = pathlib.Path({str(tmp_path / 'data')!r})\n"
        "sys.argv = ['manage.py', 'migrate']\nmanage.main()\n"
    )
    answer = python("-c", script, EMBEDDED_POSTGRES="no-such-wheel")
    assert answer.returncode == 2
    assert "No PostgreSQL was found in no-such-wheel." in answer.stderr.splitlines()[-1]


@pytest.mark.django_db
def test_the_demo_has_one_administrator_with_a_random_password(
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    users = get_user_model()
    settings.DATA_FOLDER = tmp_path
    settings.DEMO_ADMIN = True
    after_migrate(using="default")
    assert not users.objects.exists(), "a test's database is left alone"

    monkeypatch.setitem(connection.settings_dict, "NAME", "sharding")
    after_migrate(using="default")
    after_migrate(using="default")
    kept = json.loads((tmp_path / FILE).read_text())
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    (administrator,) = users.objects.all()
    assert administrator.is_superuser
    assert administrator.check_password(kept["password"])
    said = capsys.readouterr().out
    assert str(tmp_path / FILE) in said
    assert kept["password"] not in said, "standard output ends up in logs that others may read"

    administrator.delete()
    settings.DEMO_ADMIN = False
    after_migrate(using="default")
    assert not users.objects.exists()
