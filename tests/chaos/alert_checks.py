"""Check processes of a chaos run of alerts, forked from one that has imported everything; deadlines of minutes are seconds here.

A line of arguments in (JSON), the pid out; the parent kills it, or waits for its status in the file named first.
"""

import json
import os
import sys
import time
from pathlib import Path

import apprise

from edgemeter.agent.cli.main import main
from edgemeter.collector.alerts import channels, check
from edgemeter.collector.cli.alerts import alerts  # noqa: F401 - imported once for all

ANSWER_S = 2.5


def serve() -> None:
    """Fork a check for each line, until there are no more."""
    check.SENDING_S, check.ANSWER_S, channels.POST_TIMEOUT_S = 1.0, ANSWER_S, 2.0
    apprise.Apprise.instantiate("json://localhost")
    for line in sys.stdin:
        status_file, log, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _check(Path(status_file), Path(log), arguments)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        Path(f"{status_file}.ended").touch()


def _check(status_file: Path, log: Path, arguments: list[str]) -> None:
    with log.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        print(f"--- {time.time():.0f} {' '.join(arguments)}", flush=True)
    status = 99
    try:
        main(arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.stdout.flush()
        status_file.write_text(str(status))
        # As the end of a process: threads that wait for an answer go with it.
        os._exit(status)


if __name__ == "__main__":
    serve()
