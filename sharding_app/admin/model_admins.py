"""The cluster's tables in the admin: to be looked at, never to be changed, whatever permissions the
user has.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin import ModelAdmin, ShowFacets, SimpleListFilter, display
from django.db.models import Model, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _

from sharding_app.adapters.django.database import (
    ReadTooLong,
    bounded_reads,
    further_journals,
    journal_alias,
)
from sharding_app.dashboard.decision_tones import TONES
from sharding_app.dashboard.jsontext import pretty
from sharding_app.dashboard.keyset import (
    HeadFilter,
    KeysetChangeList,
    ProjectionFilter,
    TypeFilter,
    key_names,
    parse_key,
    storable,
)
from sharding_app.dashboard.permissions import may_see_payloads, shown_command
from sharding_app.models import EntityType, Node
from sharding_app.operations.each_journal import (
    JournalsDown,
    copies_among,
    in_journal,
    journal_name,
)
from sharding_app.protocol.journals import CLUSTERS_OWN
from sharding_app.protocol.numbering import Numbering


class ReadOnlyAdmin(ModelAdmin):  # type: ignore[type-arg] # generic for the type checker alone
    """Shows rows. Nothing is counted beyond what is shown."""

    actions = None
    # Facets count over a whole table, filtered by whatever stands in the address.
    show_facets = ShowFacets.NEVER
    list_per_page = 50
    show_full_result_count = False
    change_form_template = "sharding_app/record.html"
    payloads: tuple[str, ...] = ()
    "Columns that only those see who may see payloads; shown by the method `content`."
    order: tuple[str, ...] = ()

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Take what the declared filters ask for, and no other look-up: each would be a question
        about hidden columns.
        """
        return lookup in {
            each.parameter_name
            for each in self.list_filter
            if isinstance(each, type) and issubclass(each, SimpleListFilter)
        }

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        return super().get_object(request, object_id, from_field) if storable(object_id) else None

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        return self._bounded(
            request, lambda: super(ReadOnlyAdmin, self).changelist_view(request, extra_context)
        )

    def changeform_view(
        self, request: HttpRequest, object_id: Any = None, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        view = super().changeform_view
        return self._bounded(request, lambda: view(request, object_id, form_url, extra_context))

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        return self._bounded(
            request, lambda: super(ReadOnlyAdmin, self).history_view(request, object_id, extra_context)
        )

    def _bounded(self, request: HttpRequest, view: Callable[[], HttpResponse]) -> HttpResponse:
        """Show what a view shows, or that its reads took too long."""
        try:
            with bounded_reads(has_other_rows=True):
                return view()
        except ReadTooLong as error:
            return self.nothing(request, _("This took too long"), str(error), 503)
        except JournalsDown as error:
            return self.nothing(request, _("A journal does not answer"), str(error), 503)

    def nothing(self, request: HttpRequest, title: Any, trouble: str, status: int) -> HttpResponse:
        """A page that says why there is nothing to see."""
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "trouble": trouble,
            "base": self.base(),
        }
        return TemplateResponse(request, "sharding_app/nothing.html", context, status=status)

    def base(self) -> str:
        """The dashboard's address on this site."""
        return reverse("admin:sharding_cluster_changelist", current_app=self.admin_site.name)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        names = [
            field.name for field in self.opts.concrete_fields if field.name not in ("pk", *self.payloads)
        ]
        if self.payloads and may_see_payloads(request.user):
            names.append("content")
        return names

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        return self.get_fields(request, obj)

    @display(description=_("content"))
    def content(self, row: Any) -> str:
        return format_html("<pre class='sharding-json'>{}</pre>", pretty(getattr(row, self.payloads[0])))


class KeysetAdmin(ReadOnlyAdmin):
    """A table that may have any number of rows."""

    change_list_template = "sharding_app/keyset_list.html"
    large: tuple[str, ...] = ()
    "Columns that lists do not read."
    in_journals = False
    "Whether each further journal has rows of its own."
    list_filter: ClassVar[tuple[type[HeadFilter]]] = (TypeFilter,)
    sortable_by = ()
    search_fields: ClassVar[tuple[str, ...]] = ("entity",)

    def get_list_display(self, request: HttpRequest) -> Any:
        names = tuple(super().get_list_display(request))
        return (*names, "lies_in") if self._tells_journals() else names

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        names = [name for name in super().get_fields(request, obj) if name != "journal"]
        return [*names, "lies_in"] if self._tells_journals() else names

    def _tells_journals(self) -> bool:
        """Whether rows lie in several journals, or are about them."""
        about = any(field.name == "journal" for field in self.opts.concrete_fields)
        return (about or self.in_journals) and bool(further_journals())

    @display(description=_("journal"))
    def lies_in(self, row: Any) -> str:
        """The journal that a row names, or in which it lies itself."""
        return str(row._state.db) if self.in_journals else journal_name(row.journal)

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[KeysetChangeList]:
        return KeysetChangeList

    def get_object(self, request: HttpRequest, object_id: str, from_field: Any = None) -> Any:
        key = parse_key(object_id, self.model)
        if key is None:
            return None
        hidden = () if may_see_payloads(request.user) else self.large
        names = (CLUSTERS_OWN, *(further_journals() if self.in_journals else ()))
        copies = copies_among(names)
        for name in names:
            with in_journal(name) as alias:
                found: Any = self.model._default_manager.using(alias).filter(pk=key).defer(*hidden).first()
            if found is not None and (
                len(names) == 1 or copies.lies_in(name, found.type_id, found.entity, found.shard)
            ):
                return found
        return None

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """The list, with the journals of which it shows nothing since they do not answer."""
        response = super().changelist_view(request, extra_context)
        shown = getattr(response, "context_data", None) or {}
        for each in getattr(shown.get("cl"), "down", ()):
            text = _("The journal {} does not answer, and nothing of it is shown: {}.")
            messages.warning(request, text.format(each.name, each.why.rstrip(".")))
        return response

    def searched(
        self, rows: QuerySet[Any], query: str, heads: QuerySet[Any], wanted: int
    ) -> Iterator[QuerySet[Any]]:
        """Rows that a search finds along the index, in parts by type (or projection): of these
        only those that have any, and no more of them than rows are wanted.
        """
        if not storable(query):
            return
        if query and self.search_fields:
            rows = rows.filter(entity__startswith=query)
        # Of each type the first row alone: a sub-query for each type, which goes along the index.
        head, *names = key_names(self.model)
        first = rows.filter(**{head: OuterRef("id")}).order_by(*names).values(names[0])[:1]
        having = heads.alias(first=Subquery(first)).filter(first__isnull=False)
        for number in having.values_list("id", flat=True)[:wanted]:
            yield rows.filter(**{head: number})

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """The change list searches for itself, type by type."""
        return queryset, False


class NodeAdmin(ReadOnlyAdmin):
    list_display = ("name", "state", "incarnation", "host", "pid", "app_version", "deaf", "joined_at")
    search_fields = ("name__startswith", "incarnation__startswith")


class EntityTypeAdmin(ReadOnlyAdmin):
    list_display = ("name", "kind", "number_of_shards", "shards_wanted", "role", "store_mode", "extractor")
    search_fields = ("name__startswith",)


class LeaseAdmin(ReadOnlyAdmin):
    list_display = ("name", "owner", "token", "acquired_at", "lasts_until")
    search_fields = ("name__startswith",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        owner = Node.objects.filter(incarnation=OuterRef("owner")).values("leases_until")
        until = Coalesce("expires_at", Subquery(owner))
        leases: QuerySet[Any] = super().get_queryset(request).annotate(until=until)
        return leases

    @display(description=_("lasts until"))
    def lasts_until(self, row: Any) -> datetime | None:
        """The time in the owner's row, which prolongs all leases of the owner."""
        found: datetime | None = row.until
        return found


class ActionFilter(SimpleListFilter):
    """By what was decided; the choices are known, so no table is read for them."""

    title = _("action")
    parameter_name = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(name, name) for name in sorted(TONES)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(action=self.value()) if self.value() else queryset


class DecisionAdmin(ReadOnlyAdmin):
    list_display = ("at", "action", "subject", "detail", "term")
    search_fields = ("subject__startswith", "action__exact")
    list_filter = (ActionFilter,)


class ShardAdmin(KeysetAdmin):
    list_display = ("shard", "type", "home", "epoch", "step", "updated_at")
    search_help_text = _("The number of a shard.")

    def searched(
        self, rows: QuerySet[Any], query: str, heads: QuerySet[EntityType], wanted: int
    ) -> Iterator[QuerySet[Any]]:
        """With a number: one row of each type, by its whole key."""
        if not query:
            yield from super().searched(rows, query, heads, wanted)
        elif query.isdecimal() and len(query) < 10:
            yield rows.filter(pk__in=[(number, int(query)) for number in heads.values_list("id", flat=True)])


class EventAdmin(KeysetAdmin):
    in_journals = True
    list_display = ("entity", "seq", "name", "at", "type", "asked", "shard", "epoch")
    search_help_text = _("The beginning of an entity's id. Case matters.")
    payloads = ("payload", "reply", "command")
    large = ("payload", "reply")

    @display(description=_("command"))
    def asked(self, row: Any) -> str:
        """The command without the digest of its arguments."""
        return shown_command(row.command, payloads=False) or self.get_empty_value_display()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        names = super().get_fields(request, obj)
        return [*names, "command" if may_see_payloads(request.user) else "asked"]


class SnapshotAdmin(KeysetAdmin):
    in_journals = True
    list_display = ("entity", "seq", "at", "type", "shard", "epoch")
    search_help_text = EventAdmin.search_help_text
    payloads = ("state",)
    large = ("state",)


class EntityRowAdmin(KeysetAdmin):
    """A table whose key ends with the id of an entity."""

    search_help_text = _("The full id of an entity.")

    def keys(self, heads: QuerySet[Any], entity: str) -> list[tuple[int, int, str]]:
        """Return all keys that rows of this entity may have."""
        raise NotImplementedError

    def searched(
        self, rows: QuerySet[Any], query: str, heads: QuerySet[Any], wanted: int
    ) -> Iterator[QuerySet[Any]]:
        """With an id: its rows, by their whole keys."""
        if not query:
            yield from super().searched(rows, query, heads, wanted)
        elif storable(query):
            yield rows.filter(pk__in=self.keys(heads, query))


class RememberedEntityAdmin(EntityRowAdmin):
    in_journals = True
    list_display = ("entity", "type", "shard", "epoch", "at")

    def keys(self, heads: QuerySet[Any], entity: str) -> list[tuple[int, int, str]]:
        # A further journal knows the numbers and names of types alone.
        types = heads.using(journal_alias())
        types = types.values_list("id", "number_of_shards", "shards_wanted", "groups_resized")
        return [(number, Numbering(*numbers).shard_of(entity), entity) for number, *numbers in types]


class ProjectionVersionAdmin(ReadOnlyAdmin):
    list_display = ("name", "version", "live", "paused", "created_at", "live_at")
    search_fields = ("name__startswith",)


class ProjectionPositionAdmin(KeysetAdmin):
    list_display = ("first_slice", "last_slice", "projection", "events", "turn", "at", "fill_type")
    list_filter = (ProjectionFilter,)
    search_fields = ()


class HeldEntityAdmin(EntityRowAdmin):
    list_display = ("entity", "type", "projection", "next", "failures", "parked", "retry_at", "at")
    list_filter = (ProjectionFilter,)
    payloads = ("error",)
    large = ("error",)

    def keys(self, heads: QuerySet[Any], entity: str) -> list[tuple[int, int, str]]:
        followed = heads.values_list("id", "type_ids")
        return [(number, each, entity) for number, types in followed for each in types]

    @display(description=_("error"))
    def content(self, row: Any) -> str:
        return str(row.error)


def admins() -> dict[type[Model], type[ReadOnlyAdmin]]:
    """Which model is shown by which class."""
    from sharding_app import models

    return {
        models.Node: NodeAdmin,
        models.EntityType: EntityTypeAdmin,
        models.Shard: ShardAdmin,
        models.Event: EventAdmin,
        models.Snapshot: SnapshotAdmin,
        models.RememberedEntity: RememberedEntityAdmin,
        models.Lease: LeaseAdmin,
        models.ProjectionVersion: ProjectionVersionAdmin,
        models.ProjectionPosition: ProjectionPositionAdmin,
        models.HeldEntity: HeldEntityAdmin,
        models.Decision: DecisionAdmin,
    }
