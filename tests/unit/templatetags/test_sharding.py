"""The tags show a view at once, with what the script needs to follow it, and escape everything."""

from __future__ import annotations

import re
from html import unescape
from time import monotonic
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.template import Context, Template
from django.test import RequestFactory, override_settings

from sharding_app import EventSourced, InvalidCall, WrongContext, applies, command, event, view
from sharding_app.live.topics import read_token
from sharding_app.testing import ClusterThread
from tests.support.slack import SLACK

LOCMEM = {
    "page/auction.html": "{% load i18n %}<b id='p'>{{ value.price }}</b> {{ value.leader }} {% translate 'Yes' %} {{ entity_id }}",
    "page/broken.html": "{{ value.price|add:'x'|date:1|no_such }}",
}
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {"loaders": [("django.template.loaders.locmem.Loader", LOCMEM)]},
    }
]
EVIL = '"><script>alert(1)</script>'


@event
class Bid:
    by: str
    price: float


class Auction(EventSourced, name="tests.tags.Auction"):
    price: float = 0.0
    leader: str = ""

    @command
    def bid(self, by: str, price: float) -> None:
        self.persist(Bid(by, price))

    @view(public=True)
    def current(self) -> dict[str, Any]:
        return {"price": self.price, "leader": self.leader}

    @view(public=True)
    def twice(self, factor: int) -> float:
        return self.price * factor

    @applies(Bid)
    def on_bid(self, happened: Bid) -> None:
        self.price, self.leader = happened.price, happened.by


def render(source: str, **context: Any) -> str:
    return Template("{% load sharding %}" + source).render(Context(context))


@pytest.fixture
def auction(sharding_cluster: ClusterThread) -> Any:
    ref = Auction.ref(EVIL)
    ref.sync.bid("<i>ann</i>", 7.0)
    return ref


def test_a_field_is_shown_at_once_and_escaped(auction: Any) -> None:
    html = render(
        '{% live auction "current" field="price" %}{% live auction "current" field="leader" %}',
        auction=auction,
    )
    assert ">7</span>" in html
    assert ">&lt;i&gt;ann&lt;/i&gt;</span>" in html
    assert "<i>" not in html
    assert "script" not in html
    tokens = re.findall(r'data-live="([^"]*)"', html)
    assert len(set(tokens)) == 1, "both are one subscription"
    topic = read_token(unescape(tokens[0]))
    assert (topic.source.entity, topic.source.view, topic.template) == (EVIL, "current", "")


def test_a_view_with_arguments_and_another_element(auction: Any) -> None:
    html = render('{% live auction "twice" 3 tag="strong" %}', auction=auction)
    assert html.startswith("<strong ")
    assert html.endswith(">21</strong>")


@override_settings(TEMPLATES=TEMPLATES)
def test_a_template_makes_the_first_look_as_all_later_ones(auction: Any) -> None:
    from django.utils import translation

    with translation.override("de"):
        html = render('{% live auction "current" template="page/auction.html" %}', auction=auction)
    assert "<b id='p'>7,0</b> &lt;i&gt;ann&lt;/i&gt; Ja &quot;&gt;&lt;script&gt;" in html
    assert html.startswith("<div ")
    topic = read_token(unescape(re.findall(r'data-live="([^"]*)"', html)[0]))
    assert (topic.template, topic.language) == ("page/auction.html", "de")


def test_an_entity_is_asked_once_for_a_page(auction: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sharding_app.templatetags import sharding

    asked = []
    real = sharding._asked

    def ask(ref: Any, view: str, args: tuple[Any, ...]) -> Any:
        asked.append(view)
        return real(ref, view, args)

    monkeypatch.setattr(sharding, "_asked", ask)
    render(
        '{% live auction "current" field="price" %}' * 3, auction=auction, request=RequestFactory().get("/")
    )
    assert len(asked) == 1


def test_a_page_is_shown_while_the_entity_cannot_be_asked(
    sharding_cluster: ClusterThread, caplog: pytest.LogCaptureFixture
) -> None:
    for name in sharding_cluster.nodes:
        sharding_cluster.stop_node(name)
    html = render('{% live auction "current" field="price" %}', auction=Auction.ref("vase", timeout=0.05))
    assert 'data-live-state="lost"' in html
    assert html.endswith("></span>")
    assert "a page is shown without current" in caplog.text


@pytest.mark.parametrize("with_request", [True, False])
def test_the_views_of_a_page_wait_together_as_long_as_one_call(
    sharding_cluster: ClusterThread, caplog: pytest.LogCaptureFixture, with_request: bool
) -> None:
    for name in sharding_cluster.nodes:
        sharding_cluster.stop_node(name)
    refs = [Auction.ref(f"vase-{number}", timeout=0.5 * SLACK) for number in range(12)]
    request = {"request": RequestFactory().get("/")} if with_request else {}
    began = monotonic()
    html = render('{% for each in refs %}{% live each "current" %}{% endfor %}', refs=refs, **request)
    assert monotonic() - began < 3.0 * SLACK, "twelve times the timeout of a call would be twice that"
    assert html.count('data-live-state="lost"') == 12
    assert "the page has waited " in caplog.text


def test_a_view_that_may_wait_longer_is_asked_within_what_is_left(
    auction: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sharding_app.templatetags import sharding

    now, timeouts = [0.0], []

    def ask(ref: Any, view: str, args: tuple[Any, ...]) -> Any:
        timeouts.append(ref._ref_timeout)
        now[0] += 3.0
        return {}

    monkeypatch.setattr(sharding, "_asked", ask)
    monkeypatch.setattr(sharding, "monotonic", lambda: now[0])
    render(
        '{% live auction "current" %}{% live short "current" %}{% live long "current" %}',
        auction=auction, short=Auction.ref("b", timeout=2.0), long=Auction.ref("c", timeout=4.0),
    )  # fmt: skip
    assert timeouts == [None, 1.0]


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ('{% live auction "bid" %}', "is not a view"),
        ('{% live "vase" "current" %}', "needs a ref"),
        ('{% live auction "current" tag="b onclick=x" %}', "not the name of an element"),
        ('{% live auction "current" field="price" template="x.html" %}', "either field= or template="),
        ('{% live_url auction "bid" %}', "is not a view"),
    ],
)
def test_mistakes_are_told(auction: Any, source: str, error: str) -> None:
    with pytest.raises(InvalidCall, match=error):
        render(source, auction=auction)


def test_in_an_async_view_it_says_what_to_do(auction: Any) -> None:
    async def view() -> str:
        return render('{% live auction "current" field="price" %}', auction=auction)

    async def in_a_thread() -> str:
        return await sync_to_async(render)('{% live auction "current" field="price" %}', auction=auction)

    with pytest.raises(WrongContext, match="await sync_to_async"):
        async_to_sync(view)()
    assert async_to_sync(in_a_thread)().endswith(">7</span>")


def test_the_script_knows_where_the_site_takes_connections() -> None:
    request = RequestFactory().get("/", SCRIPT_NAME="/shop")
    html = render("{% live_script %}", request=request)
    assert re.search(r'data-live-socket="(/shop/sharding/live-pages/)?"', html), (
        "as the routes are loaded here"
    )
    assert 'data-live-stream="/sharding/live-pages"' in html
    assert 'src="/static/sharding_app/live-pages.js"' in html
    assert " defer>" in html
    assert 'data-live-socket="/ws/&quot;"' in render("{% live_script socket=path %}", path='/ws/"')


def test_the_status_is_hidden_at_first_and_read_aloud_later() -> None:
    html = render("{% live_status %}")
    assert 'role="status" aria-live="polite" hidden></p>' in html


def test_the_address_of_events_has_the_token(auction: Any) -> None:
    html = render('{% live_url auction "current" template="page/auction.html" %}', auction=auction)
    path, _, query = html.partition("?watch=")
    assert path == "/sharding/live-pages"
    from urllib.parse import unquote

    assert read_token(unquote(unescape(query))).template == "page/auction.html"
