"""OpenTelemetry, if its API is installed and a provider is set: the context of each call.

Contract: `active` is None until `look` finds a provider. A process looks when it makes its first
connection to the cluster, and when it starts. Without a provider nothing is measured, and the
traced versions of the engine's parts (`contrib.opentelemetry`) are not even imported. Context
crosses processes in the envelope's field `trace`, as the project's own propagators write it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, cast

from sharding_app.redaction import told, traceable

logger = logging.getLogger("sharding.node")

if TYPE_CHECKING:
    from opentelemetry import trace as otel
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

MAX_TRACE = 4096
"""Limit of a carried context in characters. A larger baggage stays behind."""
NAME = "sharding_app"
Kind = Literal["client", "producer", "consumer", "internal"]
Attributes = dict[str, str | int]
P = ParamSpec("P")
T = TypeVar("T")


def _harmless(instead: Callable[[], Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let errors of the project's tracing code cost a span, and no command.

    Such code: span processors, samplers and propagators.
    """

    def around(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except BaseException as error:  # noqa: BLE001
                _failed(error)
                return cast(T, instead())

        return call

    return around


_failures = 0


def _failed(error: BaseException) -> None:
    """Log the first failure, and then one in a thousand."""
    global _failures
    if _failures % 1000 == 0:
        logger.error(
            "tracing raised %s: spans are lost, commands are not", type(error).__qualname__,
            exc_info=traceable(error), extra={"action": "tracing_failed"},
        )  # fmt: skip
    _failures += 1


def _no_span() -> Any:
    from opentelemetry.trace import INVALID_SPAN

    return INVALID_SPAN


class Tracer:
    """The services of OpenTelemetry that the traced parts need."""

    def __init__(self, provider: otel.TracerProvider) -> None:
        from opentelemetry import context, propagate, trace

        self._api, self._context, self._propagate = trace, context, propagate
        self._tracer = provider.get_tracer(NAME)

    @_harmless(str)
    def carry(self, span: Span | None = None, parent: Context | None = None) -> str:
        """Return the present context, or a span's (begun in `parent`), in a form that travels."""
        context = None if span is None else self._api.set_span_in_context(span, parent)
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier, context)
        text = "\n".join(f"{name}:{value}" for name, value in carrier.items())
        return text if len(text) <= MAX_TRACE else f"traceparent:{carrier.get('traceparent', '')}"

    @_harmless(lambda: None)
    def context(self, trace: str) -> Context | None:
        """Return the carried context; None: nothing was carried, and the present context counts."""
        if not trace:
            return None
        return self._propagate.extract(dict(line.partition(":")[::2] for line in trace.split("\n")))

    @_harmless(_no_span)
    def start(
        self, name: str, kind: Kind, attributes: Attributes, parent: Context | None = None,
        traces: Sequence[str] = (),
    ) -> Span:  # fmt: skip
        """Begin a span. `traces` are contexts that it is linked with."""
        found = (self._api.get_current_span(self.context(trace)).get_span_context() for trace in traces)
        links = [self._api.Link(each) for each in found if each.is_valid]
        span: Span = self._tracer.start_span(
            name, parent, self._api.SpanKind[kind.upper()], {f"sharding.{k}": v for k, v in attributes.items()}, links
        )  # fmt: skip
        return span

    def child(self, name: str, attributes: Attributes, parent: Span | None) -> Span:
        """Begin a span inside another one, or in the present context."""
        return self.start(
            name, "internal", attributes, None if parent is None else self._api.set_span_in_context(parent)
        )

    @contextmanager
    def inside(self, span: Span, parent: Context | None = None) -> Iterator[None]:
        """Put calls and new tasks inside a span that was begun in `parent`.

        The span is not ended here.
        """
        token = self._attached(span, parent)
        try:
            yield
        finally:
            self._detach(token)

    @_harmless(lambda: None)
    def _attached(self, span: Span, parent: Context | None) -> Any:
        return self._context.attach(self._api.set_span_in_context(span, parent))

    @_harmless(lambda: None)
    def _detach(self, token: Any) -> None:
        if token is not None:
            self._context.detach(token)

    @_harmless(lambda: None)
    def end(self, span: Span, error: BaseException | str | None = None) -> None:
        """End a span, with its error."""
        if isinstance(error, BaseException):
            span.record_exception(traceable(error), {"exception.type": type(error).__qualname__})
        if error is not None:
            text = error if isinstance(error, str) else told(error)
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, text))
        span.end()


active: Tracer | None = None
_traced: Callable[[], Mapping[type[Any], type[Any]]] = dict


def set_traced(traced: Callable[[], Mapping[type[Any], type[Any]]]) -> None:
    """Say where the parts with spans come from, by the class of the plain part.

    It is asked only while a provider is set.
    """
    global _traced
    _traced = traced


def part(plain: type[T]) -> type[T]:
    """Return the class to make a part of the engine of: the one with spans while a provider is
    set.
    """
    return plain if active is None else _traced().get(plain, plain)


def look() -> Tracer | None:
    """Look for a provider."""
    global active
    active = _found()
    return active


def carry() -> str:
    """Return the present context for an envelope; empty if no tracing is set up."""
    return "" if active is None else active.carry()


def _found() -> Tracer | None:
    try:
        from opentelemetry import trace
    except ImportError:
        return None
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
        return None
    return Tracer(provider)
