"""`SHARDING`: typed, frozen, helpful when wrong."""

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from sharding_app import wiring
from sharding_app.protocol.allocation.least_shards import LeastShardAllocation
from sharding_app.settings import load
from sharding_app.settings.load import FIELDS, Problem, get_settings, read
from sharding_app.settings.schema import Knob, Settings
from tests.docs.settings_table import PAGE, table


def problems(**sharding: Any) -> list[Problem]:
    return read(sharding, {})[1]


def only(**sharding: Any) -> Problem:
    [problem] = problems(**sharding)
    return problem


def test_the_defaults_are_sound() -> None:
    settings, wrong = read({}, {})
    assert wrong == []
    assert settings.lease_ttl_seconds == 3.0
    assert settings.number_of_shards == 1000


def test_an_unknown_key_suggests_the_right_one() -> None:
    problem = only(PING_INTERVALL_SECONDS=1)
    assert "'PING_INTERVALL_SECONDS'" in problem.text
    assert problem.hint == "Did you mean 'PING_INTERVAL_SECONDS'?"
    assert only(database="x").hint == "Did you mean 'DATABASE'?"
    assert "sharding_app.settings.schema.Settings" in only(XYZZY=1).hint


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("MIN_NODES", "3", "must be a whole number, not '3' (str)"),
        ("MIN_NODES", True, "must be a whole number, not True (bool)"),
        ("MIN_NODES", None, "must be a whole number, not None (NoneType)"),
        ("MIN_NODES", 2.5, "must be a whole number, not 2.5 (float)"),
        ("ROLES", "backend", "must be a list of strings, not 'backend' (str)"),
        ("ROLES", ["a", 1], "must be a list of strings"),
        ("ENCRYPT", 1, "must be True or False, not 1 (int)"),
        ("PING_INTERVAL_SECONDS", "fast", "must be a number, not 'fast' (str)"),
        ("PING_INTERVAL_SECONDS", float("nan"), "must be finite"),
        ("LEASE_TTL_SECONDS", float("inf"), "must be finite"),
        ("LEASE_TTL_SECONDS", 0.5, "must be at least 1"),
        ("JOURNAL_CONNECTIONS", 0, "must be at least 1"),
        ("JOURNAL_CONNECTIONS", 33, "must be at most 32"),
        ("ASK_TIMEOUT_SECONDS", 0, "must be greater than 0"),
        ("TRANSACTION_LOCK_TIMEOUT_SECONDS", 0.0004, "must be at least 0.001"),
        ("TRANSACTION_LOCK_TIMEOUT_SECONDS", 3e6, "must be at most 86400"),
        ("REBALANCE_RELATIVE_LIMIT", 1.5, "must be at most 1"),
        ("KEEP_EVENTS_DAYS", 365_001, "must be at most 365000"),
        ("COMMAND_WINDOW_SECONDS", 1.1e9, "must be at most 1000000000"),
        ("ASK_TIMEOUT_SECONDS", 10**12, "must be at most 1000000000"),
        ("MESSAGE_BACKOFF_MAX_SECONDS", 1e300, "must be at most 1000000000"),
        ("KEEP_EVENTS", 2**63, "must be at most 9223372036854775807"),
        ("KEEP_EVENTS", 10**400, "must be at most 9223372036854775807"),
        ("MIN_NODES_OF_ROLE", {"a": "2"}, "must be a dict from names to whole numbers"),
        ("COORDINATOR", 1.5, "must be True, False or the name of a role"),
    ],
)
def test_a_wrong_value_says_where_and_what(key: str, value: object, said: str) -> None:
    problem = only(**{key: value})
    assert f"SHARDING[{key!r}] {said}" in problem.text


def test_all_problems_are_told_at_once() -> None:
    assert len(problems(MIN_NODES="3", XYZZY=1, ROLES=5)) == 3
    with override_settings(SHARDING={"MIN_NODES": "3", "XYZZY": 1}):
        with pytest.raises(ImproperlyConfigured) as told:
            get_settings()
        assert "MIN_NODES" in str(told.value)
        assert "XYZZY" in str(told.value)


def test_sharding_must_be_a_dict() -> None:
    assert "must be a dict, not list" in read([("MIN_NODES", 1)], {})[1][0].text


@pytest.mark.parametrize(
    ("sharding", "said"),
    [
        ({"LEASE_OWN_LIMIT_SECONDS": 2.5}, "too close to LEASE_TTL_SECONDS"),
        ({"LEASE_TTL_SECONDS": 2.0}, "too close to LEASE_TTL_SECONDS"),
        ({"PING_INTERVAL_SECONDS": 1.1}, "too long for LEASE_OWN_LIMIT_SECONDS"),
        ({"LOOP_STALL_LIMIT_SECONDS": 2.0}, "must not be shorter than LEASE_TTL_SECONDS"),
        ({"LOOP_STALL_END_SECONDS": 9.0}, "must not be shorter than LOOP_STALL_LIMIT_SECONDS"),
        ({"ENCRYPT": True}, "needs KEYS"),
        ({"KEYS": ["short"]}, "at least 16 bytes"),
        ({"KEYS": ["a" * 32]}, "easy to guess"),
        ({"KEYS": ["secretsecretsecretsecret"]}, "easy to guess"),
        ({"KEYS": ["abcdefghijklmnopqrstuvwxyz"]}, "easy to guess"),
        ({"STEERING_KEYS": ["short"]}, "STEERING_KEYS']: a key must have at least 16 bytes"),
        ({"KEYS": ["0123456789abcdef"], "STEERING_KEYS": ["0123456789abcdef"]}, "share a key"),
        ({"MIN_NODES_OF_ROLE": {"a": 0}}, "must be at least 1"),
        ({"DEAF_AFTER_SECONDS": 1.5}, "at least twice ECHO_INTERVAL_SECONDS"),
        ({"LINK_ADDRESS": "127.0.0.1"}, "needs KEYS"),
        ({"LINK_ADDRESS": "node-1/x", "KEYS": ["0123456789abcdef"]}, "a host and a port"),
        ({"LINK_ADDRESS": "node-1:x", "KEYS": ["0123456789abcdef"]}, "LINK_ADDRESS"),
        ({"LINK_BIND": "10.0.0.5"}, "no effect without LINK_ADDRESS"),
        (
            {"LINK_ADDRESS": "node-1", "KEYS": ["0123456789abcdef"], "LINK_TLS": {"key": __file__}},
            "must name",
        ),
        ({"LINK_WINDOW_BYTES": 70_000}, "window_bytes must hold"),
        ({"LINK_RESEND_AFTER_SECONDS": 0.03}, "at least twice ack_delay_seconds"),
    ],
)
def test_values_that_do_not_fit_together(sharding: dict[str, Any], said: str) -> None:
    assert said in only(**sharding).text


def test_the_hint_for_the_own_limit_is_itself_allowed() -> None:
    hint = only(LEASE_OWN_LIMIT_SECONDS=2.9).hint
    allowed = float(hint.removeprefix("Make it at most ").rstrip("."))
    assert problems(LEASE_OWN_LIMIT_SECONDS=allowed) == []


def test_a_key_is_never_shown() -> None:
    secret = "a-secret-that-nobody-may-see"
    assert secret not in repr(read({"KEYS": [secret]}, {})[0])
    assert secret not in str(only(KEYS=secret))


def test_it_is_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        read({}, {})[0].min_nodes = 3  # type: ignore[misc]


def test_override_settings_takes_effect_and_is_undone() -> None:
    before = get_settings()
    with override_settings(SHARDING={"MIN_NODES": 7}):
        assert get_settings().min_nodes == 7
    assert get_settings() == before


def test_the_layer_and_the_lifeline_follow_what_is_configured() -> None:
    assert read({}, {"default": {}})[0].channel_layer == "default"
    assert read({}, {"default": {}, "sharding": {}})[0].channel_layer == "sharding"
    assert read({"CHANNEL_LAYER": "other"}, {"sharding": {}})[0].channel_layer == "other"
    assert read({"DATABASE": "journal"}, {})[0].lifeline_database == "journal"
    assert read({"DATABASE": "journal", "LIFELINE_DATABASE": "direct"}, {})[0].lifeline_database == "direct"
    assert read({"LIFELINE_DATABASE": None}, {})[0].lifeline_database == "default"


def test_without_a_layer_that_joins_processes_all_links_are_direct() -> None:
    memory = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}
    for chosen in ({}, {"LINKS": "auto"}):
        assert read(chosen, {})[0].links == "direct"
        assert read(chosen, memory)[0].links == "direct"
        assert read(chosen, {"default": {}})[0].links == "auto"
    assert read({"LINKS": "channel_layer"}, {})[0].links == "channel_layer"
    assert read({"LINKS": "channel_layer"}, memory)[0].links == "channel_layer"


def test_values_reach_the_parts() -> None:
    settings, wrong = read(
        {
            "LEASE_TTL_SECONDS": 6,
            "LEASE_OWN_LIMIT_SECONDS": 4,
            "PING_INTERVAL_SECONDS": 1,
            "MIN_NODES_OF_ROLE": {"backend": 2},
            "BUFFER_SIZE": 5,
            "SUSPECT_AFTER_SECONDS": 0.2,
            "REBALANCE_ABSOLUTE_LIMIT": 3,
            "NUMBER_OF_SHARDS": 30,
            "COORDINATOR": "boss",
            "KEYS": ["0123456789abcdef"],
        },
        {},
    )
    assert wrong == []
    assert settings.lifeline.ping_interval_seconds == 1.0
    assert settings.lifeline.answer_timeout_seconds == 4.0
    assert settings.coordination.min_members_of_role == {"backend": 2}
    assert settings.region_limits.max_calls == 5
    assert settings.link_limits.suspect_after_seconds == 0.2
    assert isinstance(settings.allocation, LeastShardAllocation)
    assert settings.allocation.absolute_limit == 3
    assert settings.type_defaults.number_of_shards == 30
    assert settings.sealing_keys == (b"0123456789abcdef",)
    node = settings.node(name="n1", roles=("boss",), app_version="2.0")
    assert (node.lease_ttl_seconds, node.candidate, node.app_version) == (6.0, True, "2.0")
    assert not settings.node(name="n1").candidate


def _other(default: Any) -> Any:
    if isinstance(default, bool):
        return not default
    return default / 2 if isinstance(default, float) else (default or 0) + 1


def test_each_value_reaches_every_part_that_its_key_names() -> None:
    changed = {"passivation": "composite", "min_nodes_of_role": {"backend": 2}, "use_lease": "postgres"}
    for key in dataclasses.fields(Settings):
        targets = key.metadata["knob"].targets
        if not targets or key.name == "app_version":
            continue
        default = getattr(Settings(), key.name)
        value: Any = changed[key.name] if key.name in changed else _other(default)
        settings = Settings(**{key.name: value})
        for target in targets:
            assert getattr(settings._part(target.part), target.field) == value, key.name


def test_a_node_is_called_what_its_command_line_says_else_the_settings_else_host_and_process() -> None:
    assert wiring.node_config("east").name == "east"
    assert wiring.node_config().name.endswith(f"-{os.getpid()}")
    with override_settings(SHARDING={"NODE_NAME": "west"}):
        assert wiring.node_config("east").name == "east"
        assert wiring.node_config().name == "west"


def test_nothing_is_read_at_import() -> None:
    """Without DJANGO_SETTINGS_MODULE any look at the settings would fail."""
    code = "import sharding_app.settings.load, sharding_app.checks, sharding_app.signals, sharding_app.apps"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PATH": ""}, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_each_key_has_one_default_a_unit_and_a_text() -> None:
    hints = {name: field.type for name, field in FIELDS.items()}
    for key, field in FIELDS.items():
        knob: Knob = field.metadata["knob"]
        assert knob.help.endswith(".")
        if hints[key] == "float" or hints[key] is float:
            assert key.endswith(("_SECONDS", "_LIMIT")), key


def test_no_option_does_nothing() -> None:
    """Each is read somewhere by the code, or reaches a part of it."""
    root = Path(load.__file__).parents[2]
    code = "\n".join(file.read_text() for file in root.rglob("*.py") if file != Path(load.__file__))
    own = [key for key, field in FIELDS.items() if not field.metadata["knob"].targets]
    idle = [key for key in own if not re.search(rf"(settings|self|settings\(\))\.{key.lower()}\b", code)]
    assert idle == []


def test_the_page_is_up_to_date() -> None:
    assert table() in PAGE.read_text(), "run: python -m tests.docs.settings_table"


WILD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.integers()),
)


@given(st.dictionaries(st.one_of(st.sampled_from(sorted(FIELDS)), st.text(), st.integers()), WILD))
def test_any_dict_gives_settings_or_problems_and_never_raises(sharding: dict[Any, Any]) -> None:
    settings, wrong = read(sharding, {})
    assert isinstance(settings, Settings)
    if not wrong:
        for key, value in sharding.items():
            if value is not None:
                assert getattr(settings, key.lower()) in (
                    value,
                    tuple(value) if isinstance(value, list) else value,
                )
