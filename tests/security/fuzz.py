"""`python -m tests.security.fuzz --runs 200000`: every decoder under atheris, which looks for bytes
that reach new code.

The tests beside it draw their bytes from hypothesis, on every platform. This one needs the package
`atheris` (`pip install --only-binary=:all: atheris`), which has wheels for Linux alone. Any error
but the decoder's own, and a frame that reads back as another one, ends it with a trace, the input
in a file, and exit code 77.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["sharding_app"]):
    from sharding_app.adapters.channels.seal import Sealer
    from sharding_app.ports.sealing import SealBroken
    from sharding_app.protocol.codec import DecodeError, decode_frame, encode_frame, salvage_frame
    from sharding_app.protocol.messages import Deliver, Frame
    from tests.security.test_decoders import DECODERS

KEY = b"0123456789abcdef0123456789abcdef"
FRAME = Frame(1, "a", "b", 1, 1, 1, 0, 100, [Deliver("shop.Cart", 2, 3, "id", 1, "add", b"\x91\x01")])


def frame(data: bytes) -> None:
    try:
        read = decode_frame(data)
    except DecodeError:
        return
    if decode_frame(encode_frame(read)) != read:
        raise AssertionError("a frame reads back as another one")


def salvage(data: bytes) -> None:
    try:
        _, lost = salvage_frame(data)
    except DecodeError:
        return
    if lost < 0:
        raise AssertionError("fewer than no messages were lost")


def sealed(data: bytes) -> None:
    for sealer in SEALERS:
        try:
            sealer.open(data)
        except SealBroken:
            continue
        if data not in SEEDS:
            raise AssertionError("opened bytes that no process sealed")


def declared(kind: str) -> Callable[[bytes], None]:
    decode, _, errors = DECODERS[kind]

    def read(data: bytes) -> None:
        try:
            decode(data)
        except errors:
            return

    return read


SEALERS = [Sealer([KEY]), Sealer([KEY], encrypt=True)]
TARGETS: list[Callable[[bytes], None]] = [frame, salvage, sealed, *map(declared, DECODERS)]
WHOLE = encode_frame(FRAME)
SEEDS = [
    WHOLE,
    *(sealer.seal(WHOLE) for sealer in SEALERS),
    *(example for _, example, _ in DECODERS.values()),
]


def one(data: bytes) -> None:
    """The first byte says which decoder gets the rest."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.security.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    # Not removed at the end: atheris leaves the process by itself, and what it has found lies
    # there.
    corpus = Path(tempfile.mkdtemp(prefix="sharding-fuzz-"))
    for number, _ in enumerate(TARGETS):
        for place, seed in enumerate(SEEDS):
            (corpus / f"{number}-{place}").write_bytes(bytes((number,)) + seed)
    sys.stdout.write(f"{len(TARGETS)} decoders, {given.runs} runs, seed {given.seed}, in {corpus}\n")
    sys.stdout.flush()
    flags = [
        f"-runs={given.runs}",
        f"-seed={given.seed}",
        "-max_len=600",
        f"-artifact_prefix={corpus}/failed-",
    ]
    atheris.Setup([sys.argv[0], *flags, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
