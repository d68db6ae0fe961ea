"""docs/workers.md, executed from top to bottom against a cluster in memory."""

from tests.docs.pages import Page, run_in_memory
from tests.support.live import ROOT


def test_the_page_runs() -> None:
    page = Page(ROOT / "docs" / "workers.md")
    assert len(page.asks) == 3
    run_in_memory(page)
