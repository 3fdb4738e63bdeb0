"""The program `edgemeter`, which is also `python -m edgemeter.agent.cli`.

From its first line, Ctrl-C ends it without a traceback.
"""

import os
import signal


def main() -> None:
    """Run the command line; while it is imported, there is nothing to clean up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))
    from edgemeter.agent.cli.main import main as command

    command()


if __name__ == "__main__":
    main()
