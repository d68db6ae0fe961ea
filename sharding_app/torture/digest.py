"""The state of a register in two numbers: how many tokens it holds, and a digest over all of them in their order."""

from zlib import crc32

State = tuple[int, int]

EMPTY: State = (0, 0)


def after(state: State, token: str) -> State:
    """Return the state once this token is appended."""
    count, digest = state
    return count + 1, crc32(token.encode(), digest)
