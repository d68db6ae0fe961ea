"""The limits in bytes of regions and links.

No seed comes near those that a simulated node has: here they are tight, and the judge counts all
that is held (promise 9).
"""

from contextlib import nullcontext

import msgspec
import pytest

from sharding_app.testing.simulation import checker, virtual_node
from sharding_app.testing.simulation.runs import Job, SeedResult, run
from tests.simulation.planted import planted

REGION = "region_without_limit_of_bytes"
LINK = "link_without_limit_of_bytes"


def tight(monkeypatch: pytest.MonkeyPatch, mistake: str, *, plant: bool = True) -> SeedResult:
    """Run a seed with the tight limit that a mistake ignores. `plant`: with that mistake."""
    region, links, job = virtual_node.REGION, virtual_node.LINKS, Job(4, 4)
    if mistake == REGION:
        region = msgspec.structs.replace(region, max_bytes=700)
        job = Job(0, 3, steps=8000)  # later scenes need more room
    else:
        links = msgspec.structs.replace(links, max_queue_bytes=450)
    for place in (virtual_node, checker):
        monkeypatch.setattr(place, "REGION", region)
        monkeypatch.setattr(place, "LINKS", links)
    with planted(mistake) if plant else nullcontext():
        return run(job)


@pytest.mark.parametrize("mistake", [REGION, LINK])
def test_tight_limits_are_kept(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tight(monkeypatch, mistake, plant=False).broken is None


def test_a_region_of_too_many_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tight(monkeypatch, REGION)
    assert found.promise == 9
    assert "a region of" in str(found.broken)


def test_a_link_of_too_many_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tight(monkeypatch, LINK)
    assert found.promise == 9
    assert "the link to" in str(found.broken)
