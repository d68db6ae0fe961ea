"""Run a command with DATABASE_URL and REDIS_URL of servers that are there for it alone.

python .ci/with_servers.py COMMAND...
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from sharding_app.embedded import OwnPostgres, OwnRedis


def main(command: list[str]) -> int:
    """Start servers, run the command, stop the servers; return how the command ended."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o711)  # the servers may have to run as another user
        own = OwnPostgres(Path(place))
        own.server.durable = False  # tests make and empty thousands of tables
        with own as postgres, OwnRedis(Path(place)) as redis:
            given = {**os.environ, "DATABASE_URL": postgres.url, "REDIS_URL": redis.url}
            return subprocess.run(command, env=given, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
