"""Metrics in the plain text format of Prometheus, version 0.0.4. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]


class Sample(NamedTuple):
    labels: Labels
    value: float


class Buckets(NamedTuple):
    """A histogram: its counts, one more than bounds, and the sum of the values."""

    labels: Labels
    bounds: Sequence[float]
    counts: Sequence[int]
    sum: float


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    help: str
    samples: Sequence[Sample | Buckets]


class Rising:
    """Keeps a process's counters from falling between two readings.

    Some are sums over links, and lose the counts of a link when it ends. To Prometheus a fall is
    a new beginning at zero, so that all that is left would count as an increase.
    """

    def __init__(self) -> None:
        self._read: dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, float]] = {}
        "Of each sample the last value, and its losses by then."

    def __call__(self, families: Iterable[Family]) -> list[Family]:
        return [self._kept(each) if each.kind == "counter" else each for each in families]

    def _kept(self, family: Family) -> Family:
        return family._replace(samples=[self._risen(family.name, each) for each in family.samples])

    def _risen(self, name: str, sample: Sample | Buckets) -> Sample | Buckets:
        if not isinstance(sample, Sample):
            return sample
        key = name, tuple(sample.labels.items())
        last, lost = self._read.get(key, (0.0, 0.0))
        lost += max(0.0, last - sample.value)
        self._read[key] = sample.value, lost
        return sample._replace(value=sample.value + lost)


def render(families: Iterable[Family]) -> str:
    """Render families of metrics. Families without samples are left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        lines += [f"# HELP {family.name} {_escaped(family.help)}", f"# TYPE {family.name} {family.kind}"]
        for sample in family.samples:
            lines += _lines(family.name, sample)
    return "\n".join([*lines, ""])


def _lines(name: str, sample: Sample | Buckets) -> list[str]:
    if isinstance(sample, Sample):
        return [f"{name}{_labels(sample.labels)} {_number(sample.value)}"]
    found = []
    seen = 0
    for bound, count in zip((*sample.bounds, float("inf")), sample.counts, strict=True):
        seen += count
        found.append(f"{name}_bucket{_labels({**sample.labels, 'le': _number(bound)})} {seen}")
    return [
        *found,
        f"{name}_sum{_labels(sample.labels)} {_number(sample.sum)}",
        f"{name}_count{_labels(sample.labels)} {seen}",
    ]


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    inside = ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in labels.items())
    return f"{{{inside}}}"


def _escaped(text: str, *, quotes: bool = False) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(float(value))
