"""What a migration after the first may do to the tables that grow with use: nothing that rewrites
them or locks them for long.
"""

import re
from collections.abc import Iterator

LOADED = frozenset({"sharding_event", "sharding_snapshot", "sharding_remembered", "sharding_shard"})
"""Millions of rows, or locked by each append."""

_COMMENT = re.compile(r"--[^\n]*")
_BODY = re.compile(r"\$(\w*)\$.*?\$\1\$", re.DOTALL)
_NAME = r"(?:@schema@\.)?(\w+)"
_BRIEF = (
    # A column without a default, or with a constant: only the catalogue changes.
    re.compile(r"ADD COLUMN \w+ [\w ]+?(COLLATE \"C\")?(NOT NULL DEFAULT ('[^']*'|-?\d+|true|false))?$"),
    re.compile(r"ADD CONSTRAINT \w+ .* NOT VALID$"),
    re.compile(r"VALIDATE CONSTRAINT \w+$"),
    re.compile(r"(RE)?SET \([^)]*\)$"),
    re.compile(r"DROP COLUMN \w+$"),
    re.compile(r"(ENABLE|DISABLE) TRIGGER \w+$"),
)


def statements(sql: str) -> Iterator[str]:
    """Each statement of a file on one line, without comments and without the bodies of
    functions.
    """
    for each in _BODY.sub("$$", _COMMENT.sub("", sql)).split(";"):
        if text := " ".join(each.split()):
            yield text


def broken(sql: str) -> list[str]:
    """What a file may not do, statement by statement."""
    made: set[str] = set()
    found = []
    for each in statements(sql):
        if table := re.match(rf"CREATE TABLE {_NAME}", each):
            made.add(table[1])
        elif why := _fault(each, made):
            found.append(f"{why}: {each}")
    return found


def _fault(statement: str, made: set[str]) -> str:
    loaded = LOADED - made
    if index := re.match(rf"CREATE (?:UNIQUE )?INDEX (CONCURRENTLY )?.*?\bON {_NAME}", statement):
        return (
            "" if index[1] or index[2] in made else "an index of a table that is there is built CONCURRENTLY"
        )
    if change := re.match(rf"ALTER TABLE (?:ONLY )?{_NAME} (.*)", statement):
        if change[1] not in loaded:
            return ""
        steps = re.split(r", (?=ADD|ALTER|DROP|SET|VALIDATE|RENAME)", change[2])
        fine = all(any(brief.match(step) for brief in _BRIEF) for step in steps)
        return "" if fine else "it rewrites a table that grows, or reads all of it under a lock"
    if re.match(r"(UPDATE|DELETE|INSERT|TRUNCATE|CLUSTER|VACUUM|LOCK|REINDEX|COPY|DO|WITH)\b", statement):
        return "a migration changes tables, not rows"
    if drop := re.match(r"DROP TABLE (.*)", statement):
        named = {each.strip().rpartition(".")[2] for each in drop[1].split(",")}
        return "a table that is in use is not dropped" if named & loaded else ""
    return ""
