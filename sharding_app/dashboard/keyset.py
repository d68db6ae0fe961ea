"""Change lists over tables of any size: pages by key, never by offset, and nothing is counted.

Rows are read along the primary key, one entity type after the other (or one projection), so that
each page costs one short walk over the index, however deep it lies and however large the journal
is. The place where the next page begins travels in the query string (`after`). One statement finds
the types that have rows at all for a page; no other type is asked.
"""

import json
from collections.abc import Iterator
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.utils import quote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import ValidationError
from django.core.paginator import Paginator
from django.db.models import BigIntegerField, BooleanField, F, Func, Model, QuerySet, Value
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from sharding_app.adapters.django.database import bounded_reads, further_journals
from sharding_app.models import EntityType, ProjectionVersion
from sharding_app.operations.each_journal import Copies, Down, ask, journal_name, read_copies
from sharding_app.protocol.journals import CLUSTERS_OWN

AFTER_VAR = "after"
LOOKS = 5
ROWS_OF_LOOK = 2_000
"""Where copies leave a page with too few rows, the page looks at this many more rows, `LOOKS` times
at most.
"""

Key = tuple[Any, ...]


def key_text(key: Key) -> str:
    """A row's key as one text: what stands in the admin's addresses."""
    return json.dumps(key, ensure_ascii=False, separators=(",", ":"))


def parse_key(text: str, model: type[Model]) -> Key | None:
    """The key that a text stands for; None: it is none of this model's."""
    try:
        parts = json.loads(text)
        fields: list[Any] = [model._meta.get_field(name) for name in key_names(model)]
        if not isinstance(parts, list) or len(parts) != len(fields):
            return None
        key = tuple(field.to_python(part) for field, part in zip(fields, parts, strict=True))
    except (ValueError, TypeError, RecursionError, ValidationError):
        return None
    fits = all(_storable(field, part) for field, part in zip(fields, key, strict=True))
    return key if fits else None


def _storable(field: Any, part: object) -> bool:
    """PostgreSQL has no place for other values, so no row has them."""
    if isinstance(part, int):
        bits = 63 if isinstance(field, BigIntegerField) else 31
        return bool(-(2**bits) <= part < 2**bits)
    return isinstance(part, str) and storable(part)


def storable(text: str) -> bool:
    """Whether PostgreSQL can have this text: JSON's escapes make some that have no encoding."""
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:
        return False


def key_names(model: type[Model]) -> tuple[str, ...]:
    """The columns of the primary key, in its order."""
    return tuple(field.attname for field in model._meta.pk_fields)


def relations(model: type[Model]) -> tuple[str, ...]:
    """The relations of the primary key."""
    return tuple(field.name for field in model._meta.pk_fields if field.is_relation)


def following(rows: QuerySet[Any], key: Key) -> QuerySet[Any]:
    """The rows of one type that follow a key of that type.

    The columns behind the type are compared as one row, which is one place in the index. A
    comparison of whole keys, as Django writes it for `pk__gt`, walks there from the type's first
    row.
    """
    _, *names = key_names(rows.model)
    here = Func(*(F(name) for name in names), function="ROW", output_field=BooleanField())
    there = Func(*(Value(part) for part in key[1:]), function="ROW", output_field=BooleanField())
    return rows.filter(
        Func(here, there, template="%(expressions)s", arg_joiner=" > ", output_field=BooleanField())
    )


class HeadFilter(SimpleListFilter):
    """By the first column of a table's key."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset


class TypeFilter(HeadFilter):
    """By entity type."""

    title = _("entity type")
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(number), name) for number, name in EntityType.objects.values_list("id", "name")]


class ProjectionFilter(HeadFilter):
    """By the version of a projection."""

    title = _("projection")
    parameter_name = "projection"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(each.pk), str(each)) for each in ProjectionVersion.objects.all()]


class OnePage(Paginator):  # type: ignore[type-arg] # as above
    """What is shown is all that is counted."""

    @property
    def count(self) -> int:
        return len(self.object_list)


class KeysetChangeList(ChangeList):
    """Reads one page and one row more, which tells whether there is a next one."""

    model_admin: Any
    next_page: str | None = None
    first_page: str | None = None

    def get_filters_params(self, params: Any = None) -> Any:
        found = super().get_filters_params(params)
        found.pop(AFTER_VAR, None)
        return found

    def get_results(self, request: HttpRequest) -> None:
        after = None
        self.down: list[Down] = []
        if AFTER_VAR in self.params:
            after = parse_key(self.params[AFTER_VAR], self.model)
            if after is None:
                raise IncorrectLookupParameters(AFTER_VAR)
            self.first_page = self.get_query_string(remove=[AFTER_VAR])
        wanted = self.list_per_page + 1
        rows, looked_at = self._rows(after, wanted)
        if len(rows) >= wanted:
            rows.pop()
            looked_at = tuple(rows[-1].pk)
        if looked_at is not None:
            self.next_page = self.get_query_string({AFTER_VAR: key_text(looked_at)})
        self.result_list = rows
        self.result_count = len(rows)
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = False
        self.can_show_all = False
        self.multi_page = False
        self.paginator = OnePage(rows, self.list_per_page)

    def _rows(self, after: Key | None, wanted: int) -> tuple[list[Any], Key | None]:
        """The rows that are shown, of all journals that may have any, in the order of the key.
        Where copies leave too few of them, the last key that was looked at comes with them.
        """
        journals = [CLUSTERS_OWN, *(further_journals() if self.model_admin.in_journals else ())]
        if len(journals) == 1:
            return self._rows_of(None, after, wanted), None
        copies = read_copies()
        names = {journal_name(each): each for each in journals}
        asked = ask(journals, lambda alias: self._bounded_rows(alias, names[alias], copies, after, wanted))
        self.down = asked.down
        ends = [end for _, end in asked.found.values() if end is not None]
        looked_at = min(ends, default=None)
        rows = [row for some, _ in asked.found.values() for row in some]
        if looked_at is not None:
            rows = [row for row in rows if tuple(row.pk) <= looked_at]
        return sorted(rows, key=lambda row: tuple(row.pk))[:wanted], looked_at

    def _bounded_rows(
        self, alias: str, name: str, copies: Copies, after: Key | None, wanted: int
    ) -> tuple[list[Any], Key | None]:
        """The rows of a journal that are no copies; and, if there may be more of them behind many
        that are, the last key that was looked at.
        """
        found: list[Any] = []
        many = wanted
        with bounded_reads(alias):
            for _ in range(LOOKS):
                rows = self._rows_of(alias, after, many)
                found += [row for row in rows if copies.lies_in(name, row.type_id, row.entity, row.shard)]
                if len(found) >= wanted or len(rows) < many:
                    return found[:wanted], None
                after, many = tuple(rows[-1].pk), ROWS_OF_LOOK
        return found, after

    def _rows_of(self, alias: str | None, after: Key | None, wanted: int) -> list[Any]:
        rows: list[Any] = []
        for found in self._parts(alias, after, wanted):
            # A page of a list may stand for any number of bytes: it shows none of the columns with
            # contents.
            part = found.defer(*self.model_admin.large)
            part = part.prefetch_related(*relations(self.model)).order_by(*key_names(self.model))
            rows += part[: wanted - len(rows)]
            if len(rows) >= wanted:
                break
        return rows

    def _parts(self, alias: str | None, after: Key | None, wanted: int) -> Iterator[QuerySet[Any]]:
        """The rows of a journal, in the order of the key: those of one type, then those of later
        types.
        """
        heads = self._heads()
        rows = self.root_queryset
        if alias is not None:
            heads, rows = heads.using(alias), rows.using(alias)
        if after is not None:
            first, *_ = key_names(self.model)
            same = following(rows.filter(**{first: after[0]}), after)
            yield from self.model_admin.searched(same, self.query, heads.filter(id=after[0]), wanted)
            heads = heads.filter(id__gt=after[0])
        yield from self.model_admin.searched(rows, self.query, heads, wanted)

    def _heads(self) -> QuerySet[Any]:
        """The types, or projections, that are wanted, in the order of their numbers."""
        (by_head,) = self.model_admin.list_filter
        chosen = self.params.get(by_head.parameter_name, "")
        head: Any = self.model._meta.pk_fields[0].related_model
        heads: QuerySet[Any] = head.objects.order_by("id")
        if chosen:
            if not chosen.isdecimal() or len(chosen) > 9:
                raise IncorrectLookupParameters(by_head.parameter_name)
            heads = heads.filter(id=int(chosen))
        return heads

    def url_for_result(self, result: Any) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        site = self.model_admin.admin_site.name
        return reverse(name, args=(quote(key_text(result.pk)),), current_app=site)
