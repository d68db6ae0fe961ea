"""How a process reaches a server through a proxy."""

from pathlib import Path

from sharding_app.embedded.settings import database, lead_elsewhere, started


def test_a_server_in_the_box_is_reached_through_the_proxy_as_well(tmp_path: Path) -> None:
    """Its own port would take the place of the proxy's, whose cuts would cut nothing."""
    entry = database(tmp_path)
    lead_elsewhere(entry, 1234)
    assert started(entry)["PORT"] == "1234"
    assert not (tmp_path / "postgres").exists(), "no server was started for it"
