"""One entity through its history: its state at any of its events, its events, its snapshots.

The state is what the type's own code makes of the journal: the newest snapshot that is not newer
than the wanted event, and the events from there on. That code runs here, in the web process;
whatever it raises is shown and disturbs nothing. At most `MAX_REPLAY` events and `MAX_REPLAY_BYTES`
are read and replayed for one page, one page after the other in a process, and every query walks
along a key. The server cuts what is only shown, before it is read.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Func, IntegerField, Sum, TextField
from django.db.models.functions import Cast, Left
from django.utils.translation import gettext as _

from sharding_app.adapters.django.database import READ_SECONDS, bounded_reads
from sharding_app.dashboard.jsontext import fields
from sharding_app.entities.entity_type import EntityType
from sharding_app.entities.registry import registry
from sharding_app.models import Event, RememberedEntity, Snapshot
from sharding_app.operations.each_journal import ONE_JOURNAL, in_journal, journal_of_entity
from sharding_app.protocol.records import TypeConfig

MAX_REPLAY = 20_000
MAX_REPLAY_BYTES = 20_000_000
MAX_PAYLOAD_SHOWN = 20_000
"""More characters of one payload are not read for the list of events."""
EVENTS_SHOWN = 50
SNAPSHOTS_SHOWN = 20
MAX_SEQ = 2**63 - 1

Record = tuple[int, str, int, str]
"""Number, name, version, payload."""

_replaying = threading.Lock()
"""A replay may need a second of CPU and a lot of memory: one at a time in a process."""


class _Bytes(Func):
    """How long a JSON column is as text."""

    function = "octet_length"
    template = "%(function)s(%(expressions)s::text)"
    output_field = IntegerField()


@dataclass(slots=True, kw_only=True)
class History:
    first: int = 0
    "The oldest event that the journal still has; 0: it has none."
    last: int = 0
    at: int = 0
    "The event after which the state is shown."
    events: list[Event] = field(default_factory=list)
    "Newest first, up to `at`."
    snapshots: list[Snapshot] = field(default_factory=list)
    remembered: bool = False
    shard: int | None = None
    journal: str = ""
    "The name of the journal that was read; empty: the cluster's own."

    @property
    def known(self) -> bool:
        """Whether anything of it is stored."""
        return bool(self.last or self.snapshots or self.remembered)


@dataclass(slots=True)
class State:
    """What an entity was after an event: its fields as JSON, and which of them that event
    changed.
    """

    fields: list[tuple[str, str, bool]] = field(default_factory=list)
    trouble: str = ""


def read_history(
    number: int,
    config: TypeConfig,
    entity: str,
    at: int | None,
    *,
    payloads: bool = False,
    journals: Sequence[str] = ONE_JOURNAL,
) -> History:
    """Read the rows of an entity. The contents of its events are included only if `payloads` is
    set, in the form of `shown_payload`. `journals`: the names of all, one of which has the rows.
    Raises JournalsDown if that one does not answer.
    """
    name = entity_journal(number, config, entity, journals)
    with in_journal(name) as alias, bounded_reads(alias):
        found = _read_history(number, config, entity, at, alias, payloads=payloads)
    found.journal = name
    return found


def entity_journal(number: int, config: TypeConfig, entity: str, journals: Sequence[str]) -> str:
    """Return the name of the journal that has the rows of an entity. Raises JournalsDown."""
    if len(journals) == 1:
        return journals[0]
    return journal_of_entity(journals, number, entity, shard_by_id(config, entity))


def _read_history(
    number: int, config: TypeConfig, entity: str, at: int | None, alias: str, *, payloads: bool
) -> History:
    events = Event.objects.using(alias).filter(type_id=number, entity=entity)
    snapshots = list(
        Snapshot.objects.using(alias)
        .filter(type_id=number, entity=entity)
        .order_by("-seq")
        .defer("state")[:SNAPSHOTS_SHOWN]
    )
    first = events.order_by("seq").values_list("seq", flat=True).first() or 0
    last = events.order_by("-seq").values_list("seq", flat=True).first() or 0
    reach = max(last, snapshots[0].seq if snapshots else 0)
    wanted = reach if at is None else max(0, min(at, reach))
    shown_events = events.filter(seq__lte=wanted).order_by("-seq").defer("payload", "reply")
    if payloads:
        shown_events = shown_events.annotate(
            shown_payload=Left(Cast("payload", TextField()), MAX_PAYLOAD_SHOWN + 1)
        )
    shown = list(shown_events[:EVENTS_SHOWN])
    stored = [*shown[:1], *snapshots[:1]]
    shard = stored[0].shard if stored else shard_by_id(config, entity)
    remembered = (
        shard is not None
        and RememberedEntity.objects.using(alias).filter(type_id=number, shard=shard, entity=entity).exists()
    )
    return History(
        first=first,
        last=reach,
        at=wanted,
        events=shown,
        snapshots=snapshots,
        remembered=remembered,
        shard=shard,
    )


def shard_by_id(config: TypeConfig, entity: str) -> int | None:
    """Where an id leads to; None: the function that says so is not installed here, or fails."""
    shard = config.shard_by_hash(entity)
    known = installed(config.name)
    if shard is not None or known is None or known.extractor is None:
        return shard
    try:
        return int(known.extractor.checked_shard_id(entity))
    except Exception:  # noqa: BLE001  (the user's own function)
        return None


def installed(type_name: str) -> EntityType | None:
    """The type's code, if it is here."""
    return registry.all().get(type_name)


def state_at(
    number: int, config: TypeConfig, entity: str, at: int, journals: Sequence[str] = ONE_JOURNAL
) -> State:
    """Rebuild an entity as it was after its event of that number."""
    known = installed(config.name)
    if known is None:
        return State(
            trouble=_("The code of {} is not installed here, so its events cannot be replayed.").format(
                config.name
            )
        )
    if known.kind != "event_sourced":
        return State()
    if not _replaying.acquire(timeout=READ_SECONDS):
        return State(trouble=_("Another entity is being replayed for another page. Try again in a moment."))
    try:
        with in_journal(entity_journal(number, config, entity, journals)) as alias, bounded_reads(alias):
            found = _stored(number, entity, at, alias)
        return found if isinstance(found, State) else rebuilt(known, entity, *found)
    finally:
        _replaying.release()


def _stored(
    number: int, entity: str, at: int, alias: str
) -> State | tuple[tuple[int, str] | None, list[Record]]:
    """Read a snapshot and the events after it up to `at`; or say why they are not to be had."""
    snapshots = Snapshot.objects.using(alias).filter(type_id=number, entity=entity).defer("state")
    sized = snapshots.annotate(length=_Bytes("state"))
    snapshot = sized.filter(seq__lt=max(at, 1)).order_by("-seq").first() or sized.filter(seq=at).first()
    after = snapshot.seq if snapshot else 0
    if at - after > MAX_REPLAY:
        return State(
            trouble=_(
                "There are {} events between the last snapshot and this event: too many to replay for a page."
            ).format(at - after)
        )
    events = Event.objects.using(alias).filter(type_id=number, entity=entity)
    rows = events.filter(seq__gt=after, seq__lte=at).order_by("seq")
    length = (snapshot.length if snapshot else 0) + (
        rows.order_by().aggregate(length=Sum(_Bytes("payload")))["length"] or 0
    )
    if length > MAX_REPLAY_BYTES:
        return State(
            trouble=_(
                "The last snapshot and the events up to this one have {} bytes: too many to replay for a page."
            ).format(length)
        )
    records: list[Record] = list(rows.values_list("seq", "name", "version", "payload"))
    if [seq for seq, *_rest in records] != list(range(after + 1, at + 1)):
        return State(
            trouble=_("The journal no longer has all events up to this one, and has no earlier snapshot.")
        )
    return (after, snapshot.state) if snapshot else None, records


def rebuilt(
    known: EntityType, entity: str, snapshot: tuple[int, str] | None, records: Sequence[Record]
) -> State:
    """Replay records on a snapshot; the last one's changes are marked."""
    try:
        made: Any = known.new(entity)
        if snapshot is not None:
            known.load_state(made, snapshot[1])
        before: dict[str, str] = {}
        if records:
            known.replay(made, records[:-1])
            before = dict(fields(known.dump_state(made).decode()))
            known.replay(made, records[-1:])
        after = fields(known.dump_state(made).decode())
    except Exception as error:  # noqa: BLE001  (the user's own code, and whatever once was stored)
        return State(trouble=f"{type(error).__qualname__}: {error}")
    return State([(name, text, bool(records) and before.get(name) != text) for name, text in after])
