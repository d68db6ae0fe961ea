"""A program in processes whose strings hash differently: what comes out of it must not depend on
that.
"""

import subprocess
import sys
from collections.abc import Sequence


def outputs(program: str, hashes: Sequence[str] = ("1", "2")) -> set[str]:
    return {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": number, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in hashes
    }
