"""Audit the pins for known vulnerabilities, and say plainly what could not be audited.

    python .ci/audit.py requirements.txt

A vulnerability fails. A registry that has no advisories for us, or does not answer, does not: it is printed.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main(file: str) -> int:
    """Run pip-audit and judge its answer."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--disable-pip",
        "--no-deps",
        "--format=json",
        "--progress-spinner=off",
    ]
    answer = subprocess.run([*command, f"--requirement={file}"], capture_output=True, text=True, check=False)
    try:
        packages = json.loads(answer.stdout)["dependencies"]
    except (ValueError, KeyError):
        unreachable = ("ConnectionError", "ServiceError", "Connection refused", "timed out", "Max retries")
        if any(word in answer.stderr for word in unreachable):
            print(
                f"NOT AUDITED: the advisory service did not answer: {answer.stderr.strip().splitlines()[-1]}"
            )
            return 0
        print(answer.stderr)
        return 1
    skipped = [each["name"] for each in packages if "skip_reason" in each]
    if skipped:
        print(
            f"NOT AUDITED: the advisory service knows nothing of {len(skipped)} of {len(packages)} packages from here."
        )
    found = [(each, vulnerability) for each in packages for vulnerability in each.get("vulns", [])]
    for each, vulnerability in found:
        fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
        print(f"{each['name']} {each['version']}: {vulnerability['id']}, fixed in {fixed}")
    print(f"{len(packages) - len(skipped)} packages audited, {len(found)} vulnerabilities.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
