"""How much longer than on a quiet machine a test waits for real processes before it gives up.

A limit ends a wait for something that does not happen; it says nothing of how fast things are. CI
runs several suites on two cores, so it sets this.
"""

import os

SLACK = float(os.environ.get("ACCEPTANCE_SLACK") or 1)
PATIENT = {"ASK_TIMEOUT_SECONDS": 5.0 * SLACK}
"""Settings of SHARDING: calls without a time of their own wait as long as by default, with slack. A
client joins, a node starts and a shard finds its home in that time.
"""
STEADY = {
    "LEASE_TTL_SECONDS": min(3.0 * SLACK, 10.0),
    "LEASE_OWN_LIMIT_SECONDS": min(2.0 * SLACK, 6.0),
}
"""Settings of SHARDING where no home may move: a node that gets no processor for as long as its
lease lasts is taken for dead. No lease may last longer than a loop may stand still.
"""
