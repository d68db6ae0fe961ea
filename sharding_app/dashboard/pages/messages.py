"""Pages about durable messages and timers: what waits, of all types or one, and a single one."""

from collections.abc import Sequence
from urllib.parse import urlencode

from django.http import Http404
from django.utils.translation import gettext as _

from sharding_app.dashboard import messages, words
from sharding_app.dashboard.jsontext import pretty
from sharding_app.dashboard.keyset import storable
from sharding_app.dashboard.pages.page import Asked, Page, page
from sharding_app.dashboard.presenters import messages as shown
from sharding_app.dashboard.presenters.homes import View
from sharding_app.models import Message
from sharding_app.operations.cache import Look
from sharding_app.operations.each_journal import Down
from sharding_app.operations.snapshot import TypeRow
from sharding_app.protocol.ids import MAX_ENTITY_ID_BYTES


def messages_page(look: Look, asked: Asked) -> Page:
    query = asked.query
    state = query.get("state", messages.PENDING)
    if state not in messages.STATES:
        raise Http404(_("There is no such page."))
    types = types_with_messages(look)
    number, entity = query.get("type", ""), query.get("entity", "")
    chosen = [each for each in types if number in ("", str(each.number))]
    if number and not any(str(each.number) == number for each in look.cluster.types):
        raise Http404(_("The cluster knows no entity type of this number."))
    context: View = {
        "counts": shown.counts(look),
        "uncounted": bool(look.cluster.uncounted),
        "state": state,
        "states": messages.STATES,
        "type_number": number,
        "types_shown": [{"number": str(each.number), "name": each.config.name} for each in types],
        "entity": entity,
        "filters": urlencode({"state": state, "type": number, "entity": entity}),
        "place": urlencode({"after": query["after"]}) if "after" in query else "",
        "message_rows": [],
        "note": "",
        "next": None,
        "first": "after" in query,
    }
    if not asked.live:
        context |= _found(look, asked, chosen, state, entity)
    return page(look, asked, "messages", _("Messages and timers"), ("message_counts",), context)


def types_with_messages(look: Look) -> list[TypeRow]:
    """Return the types whose entities have ever stored a message or timer; all where that is not
    known.
    """
    names = {each.type for each in look.cluster.message_counts}
    return [each for each in look.cluster.types if each.config.name in names or look.cluster.uncounted]


def _found(look: Look, asked: Asked, types: list[TypeRow], state: str, entity: str) -> View:
    if entity:
        return _of_entity(look, asked, types, state, entity)
    after = None
    if "after" in asked.query:
        after = messages.parse_place(asked.query["after"])
        if after is None:
            raise Http404(_("There is no such page."))
    found = messages.read_page(types, state, after, journals=look.cluster.journal_names)
    return {
        "message_rows": shown.message_rows(look, found.messages, payloads=asked.rights.payloads),
        "next": None if found.next is None else found.next.text,
        "note": without(found.down),
    }


def _of_entity(look: Look, asked: Asked, types: list[TypeRow], state: str, entity: str) -> View:
    if not storable(entity) or len(entity.encode()) > MAX_ENTITY_ID_BYTES:
        return {
            "note": _("No entity can have this id: it is too long, or contains a null character."),
        }
    rows: list[View] = []
    whole = True
    down: dict[str, Down] = {}
    for each in types:
        found = messages.read_entity(each, entity, look.cluster.journal_names)
        whole = whole and found.whole
        down |= {one.name: one for one in found.down}
        rows += shown.message_rows(
            look, messages.in_state(found.messages, state, look.cluster.now), payloads=asked.rights.payloads
        )
    return {"message_rows": rows, "note": without([*down.values()]) or ("" if whole else not_whole())}


def without(down: Sequence[Down]) -> str:
    """Say which journals are missing on a page."""
    return " ".join(
        _("The journal {} does not answer, and nothing of it is shown: {}.").format(
            each.name, each.why.rstrip(".")
        )
        for each in down
    )


def not_whole() -> str:
    return _("There may be more: only its timers and a part of the messages of its shard were searched.")


def of_entity(look: Look, row: TypeRow, entity: str, *, payloads: bool) -> View:
    """Return what the page of an entity shows of its messages and timers."""
    if row not in types_with_messages(look):
        return {"message_rows": [], "messages_note": ""}
    found = messages.read_entity(row, entity, look.cluster.journal_names)
    return {
        "message_rows": shown.message_rows(look, found.messages, payloads=payloads),
        "messages_note": without(found.down) or ("" if found.whole else not_whole()),
    }


def message_page(look: Look, asked: Asked) -> Page:
    wanted = asked.query.get("id", "")
    found: Message | None = None
    down: Sequence[Down] = ()
    if wanted and messages.is_id(wanted):
        found, down = messages.read_one(wanted, look.cluster.journal_names)
    context: View = {"message": None, "note": without(down)}
    if found is not None:
        context = {
            "message": shown.message_rows(look, [found], payloads=asked.rights.payloads)[0],
            "size": words.size(found.size),  # type: ignore[attr-defined] # annotated
            "arguments": _arguments(found) if asked.rights.payloads and not asked.live else None,
        }
    title = _("A message that is gone") if found is None else found.id
    return page(
        look, asked, "message", title, (), context,
        section="messages", trail=(("messages/", _("Messages and timers")),),
    )  # fmt: skip


def _arguments(found: Message) -> str:
    if found.shown_args is None:  # type: ignore[attr-defined] # annotated
        return _("Too long to be shown.")
    return pretty(messages.arguments(found))
