"""Lint the files in deploy/, and compare them with the app: commands, variables, probes and times.

Run with a Python that has the dependency group `tools`. The Python of the project is the first
argument: its commands parse their own lines.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
PATHS = {
    "node": {"/startup", "/ready", "/alive"},
    "web": {f"/sharding/{each}" for each in ("startup", "ready", "alive")},
}
LEAVE = re.compile(r"--leave-timeout[\"', ]+(\d+)")
READ = re.compile(r"(?:environ\.get\(|environ\[|_required\()\"(\w+)\"")
OF_DJANGO = {"DJANGO_SETTINGS_MODULE"}
OF_OTHER_IMAGES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD", "SITE_HOST"}
OF_THE_FILE = {"POD_NAME"}
PARSE = """
import json, sys, django
from django.core.management import get_commands, load_command_class
django.setup()
for line in json.load(sys.stdin):
    name, *rest = line
    load_command_class(get_commands()[name], name).create_parser("manage.py", name).parse_args(rest)
"""


def main() -> int:
    """Return 1 where a linter or a comparison finds anything."""
    failed = [
        name for name, command in linters() if subprocess.run(command, cwd=ROOT, check=False).returncode
    ]
    wrong = [*failed, *commands(sys.argv[1]), *variables(), *probes(), *times()]
    print("\n".join(wrong) or f"deploy/: {len(list(DEPLOY.rglob('*.*')))} files agree with the app")
    return 1 if wrong else 0


def linters() -> Iterator[tuple[str, list[str]]]:
    tools = Path(sys.executable).parent
    yield "hadolint", [str(tools / "hadolint"), "deploy/Dockerfile"]
    compose = ["--builtin-schema", "vendor.compose-spec", "deploy/compose.yaml"]
    yield "check-jsonschema", [str(tools / "check-jsonschema"), "-q", *compose]
    of_clusters = [str(each) for each in KUBERNETES if each.name != "kustomization.yaml"]
    yield "kubernetes-validate", [str(tools / "kubernetes-validate"), "--quiet", "--strict", *of_clusters]


def documents() -> Iterator[dict[str, Any]]:
    for path in KUBERNETES:
        yield from yaml.safe_load_all(path.read_text())


def containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Yield the name, the container and the pod's specification of each workload."""
    for each in documents():
        if each["kind"] in ("Deployment", "Job"):
            pod = each["spec"]["template"]["spec"]
            for container in pod["containers"]:
                yield container["name"], container, pod


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def units() -> Iterator[tuple[str, configparser.SectionProxy]]:
    for path in sorted((DEPLOY / "systemd").iterdir()):
        unit = configparser.ConfigParser(interpolation=None, strict=False)
        unit.optionxform = str  # type: ignore[assignment,method-assign]
        unit.read(path)
        yield path.name, unit["Service"]


def lines() -> Iterator[list[str]]:
    """Yield what stands behind `manage.py` in each command."""
    found = [list(map(str, container.get("command", []))) for _, container, _ in containers()]
    for service in services().values():
        command = service.get("command", "")
        found.append(shlex.split(command if isinstance(command, str) else command[-1]))
    found += [shlex.split(service["ExecStart"]) for _, service in units()]
    for command in found:
        if "manage.py" in command:
            yield command[command.index("manage.py") + 1 :]


def commands(python: str) -> list[str]:
    all_lines = list(lines())
    if sum(line[0] == "sharding_node" for line in all_lines) != 3:
        return ["compose, Kubernetes and systemd each have to start nodes"]
    environment = {"DJANGO_SETTINGS_MODULE": "project.settings", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [python, "-c", PARSE], cwd=ROOT, env=environment, input=json.dumps(all_lines), text=True, check=False
    )
    return ["a command of deploy/ does not parse"] if done.returncode else []


def variables() -> list[str]:
    """Name the variables of deploy/ that no setting reads."""
    read = {
        name for path in (ROOT / "project/settings").glob("*.py") for name in READ.findall(path.read_text())
    }
    given = set()
    for each in documents():
        if each["kind"] == "Secret":
            given |= set(each["stringData"])
    for _, container, _ in containers():
        given |= {variable["name"] for variable in container.get("env", [])}
    for service in services().values():
        given |= set(service.get("environment", {}))
    given |= set(re.findall(r"^(\w+)=", (DEPLOY / "site.env.example").read_text(), re.MULTILINE))
    given |= set(re.findall(r"(\w+)=\S", (DEPLOY / "Dockerfile").read_text())) - {"PYTHONUNBUFFERED"}
    known = read | OF_DJANGO | OF_OTHER_IMAGES | OF_THE_FILE
    return [f"no setting reads {name}" for name in sorted(given - known)]


def probes() -> list[str]:
    wrong = [
        f"there is no container {name}" for name in sorted(PATHS.keys() - {name for name, *_ in containers()})
    ]
    urls = (ROOT / "sharding_app/http/urls.py").read_text()
    endpoint = (ROOT / "sharding_app/runtime/node/endpoint.py").read_text()
    wrong += [
        f"/{each}: the app has no answer there"
        for each in ("startup", "ready", "alive")
        if f'path("{each}"' not in urls or f"/{each}" not in endpoint
    ]
    wrong += [each for command, asked in health_ports() for each in _other_port(command, asked)]
    for name, container, _ in containers():
        paths = {probe["httpGet"]["path"] for key, probe in container.items() if key.endswith("Probe")}
        if name in PATHS and (not paths or paths - PATHS[name]):
            wrong.append(f"{name}: its probes ask for {sorted(paths)}, and it answers {sorted(PATHS[name])}")
        if name == "web" and not all(
            {"name": "X-Forwarded-Proto", "value": "https"} in probe["httpGet"].get("httpHeaders", [])
            for key, probe in container.items() if key.endswith("Probe")
        ):  # fmt: skip
            wrong.append("web: a probe without X-Forwarded-Proto takes a redirection for health")
    return wrong


def health_ports() -> Iterator[tuple[str, list[int]]]:
    """Yield the command of each node, and the ports at which its probes ask."""
    for _, container, _ in containers():
        if "sharding_node" in (command := str(container.get("command"))):
            yield command, [each["containerPort"] for each in container["ports"]]
    for service in services().values():
        if "sharding_node" in (command := str(service.get("command"))):
            yield (
                command,
                [int(each) for each in re.findall(r"http://[^:/]+:(\d+)/ready", str(service["healthcheck"]))],
            )


def _other_port(command: str, asked: list[int]) -> list[str]:
    given = re.search(r"--health-port\D+(\d+)", command)
    if given is None or asked != [int(given[1])]:
        return [f"a node answers at port {given and given[1]}, and its probes ask at {asked}"]
    return []


def times() -> list[str]:
    """Name what kills a node before its time to leave is over."""
    wrong = []
    for name, container, pod in containers():
        if "sharding_node" in (command := str(container.get("command"))):
            wrong += _patient(f"kubernetes, {name}", command, pod["terminationGracePeriodSeconds"])
    for name, service in services().items():
        if "sharding_node" in (command := str(service.get("command"))):
            grace = int(str(service["stop_grace_period"]).removesuffix("s"))
            wrong += _patient(f"compose, {name}", command, grace)
    for name, section in units():
        if "sharding_node" in (command := section["ExecStart"]):
            wrong += _patient(name, command, int(section["TimeoutStopSec"]))
            if "PrivateTmp" in section:
                wrong.append(f"{name}: with PrivateTmp the processes do not find each other's sockets")
    return wrong


def _patient(where: str, command: str, grace: int) -> list[str]:
    leave = LEAVE.search(command)
    if leave is None:
        return [f"{where}: the node's command has no --leave-timeout"]
    return (
        [f"{where}: killed after {grace} s, and leaves within {leave[1]} s"] if grace <= int(leave[1]) else []
    )


if __name__ == "__main__":
    sys.exit(main())
