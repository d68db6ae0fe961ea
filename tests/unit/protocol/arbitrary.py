"""Any message and any frame that the wire can carry, made from the annotations: a new message type
is there at once.
"""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from sharding_app.protocol import messages
from sharding_app.protocol.messages import AnyMessage, Frame, NodeTrend, OfShards, Wait, WaitProbe

NUMBERS = st.integers(0, (1 << 63) - 1)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
INTEGERS = st.integers(-(1 << 63), (1 << 64) - 1)
st.register_type_strategy(str, st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
st.register_type_strategy(int, INTEGERS)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))


def of_shards(kind: type[OfShards]) -> st.SearchStrategy[Any]:
    """An epoch for each shard: others are refused where they are made."""
    return st.lists(st.tuples(INTEGERS, INTEGERS), max_size=5).flatmap(
        lambda pairs: message_of(
            kind, shards=st.just([pair[0] for pair in pairs]), epochs=st.just([pair[1] for pair in pairs])
        )
    )


def node_trend(kind: type[NodeTrend]) -> st.SearchStrategy[Any]:
    """A value for each moment: others are refused where they are made."""
    number = st.floats(allow_nan=False, allow_infinity=False)
    samples = st.lists(st.tuples(number, number | st.none()), max_size=5)
    return samples.flatmap(
        lambda pairs: message_of(
            kind,
            at=st.just([pair[0] for pair in pairs]),
            figures=st.just({"commands": [pair[1] for pair in pairs]}),
        )
    )


def message_of(kind: type, **given: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = {field.encode_name: values_of(field.type) for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **{**fields, **given})


def values_of(annotation: Any) -> st.SearchStrategy[Any]:
    """Hypothesis knows no least length of msgspec's, so a list could be one that is refused."""
    for meta in getattr(annotation, "__metadata__", ()):
        if isinstance(meta, msgspec.Meta) and meta.min_length:
            (item,) = get_args(get_args(annotation)[0])
            return st.lists(st.from_type(item), min_size=meta.min_length, max_size=5)
    return st.from_type(annotation)


for _kind in vars(messages).values():
    if isinstance(_kind, type) and issubclass(_kind, msgspec.Struct):
        # Not by their signatures, in which the defaults are no values.
        st.register_type_strategy(_kind, of_shards if issubclass(_kind, OfShards) else message_of)
st.register_type_strategy(
    WaitProbe, message_of(WaitProbe, way=st.lists(st.from_type(Wait), min_size=1, max_size=5))
)
st.register_type_strategy(NodeTrend, node_trend)


def any_of(kinds: Sequence[type[Any]]) -> st.SearchStrategy[Any]:
    return st.one_of(*[st.from_type(kind) for kind in kinds])


MESSAGES: st.SearchStrategy[AnyMessage] = any_of(get_args(AnyMessage))
FRAMES = st.builds(
    Frame,
    wire=NUMBERS,
    source=NAMES,
    target=NAMES,
    stream=NUMBERS,
    seq=NUMBERS,
    ack_stream=NUMBERS,
    ack=NUMBERS,
    credit=NUMBERS,
    body=st.lists(MESSAGES, max_size=30),
    clock=NUMBERS,
    yours=NUMBERS,
)
