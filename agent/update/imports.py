"""Imports every installed runtime, each in a separate process.

It is run by `python -m edgemeter.agent.update.imports`. Prints the failed imports in one line, and
ends with status 1 if there are any. A library comes before those that need it.
"""

import signal
import sys

from edgemeter.agent.doctor.checks import RUNTIMES, check_software


def main() -> int:
    # If the agent has ended, nobody reads the output: exit silently.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    # However long a slow card takes: the supervisor allows a time that fits the board.
    wrong = [
        finding
        for finding in check_software(import_timeout_s=None)
        if finding.state == "bad" and finding.name in RUNTIMES
    ]
    if wrong:
        sys.stdout.write(f"{'; '.join(finding.what for finding in wrong)}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
