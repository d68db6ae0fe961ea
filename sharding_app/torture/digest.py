"""The state of a register in two numbers: the number of its tokens, and a digest over them in
order.
"""

from zlib import crc32

State = tuple[int, int]

EMPTY: State = (0, 0)


def after(state: State, token: str) -> State:
    """Return the state once this token is appended."""
    count, digest = state
    return count + 1, crc32(token.encode(), digest)
