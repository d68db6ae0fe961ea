"""How much longer than on a quiet machine a test waits for real processes before it gives up.

A limit ends a wait for something that does not happen; it says nothing of how fast things are. CI
runs several suites on two cores, so it sets this.
"""

import os

SLACK = float(os.environ.get("ACCEPTANCE_SLACK") or 1)
