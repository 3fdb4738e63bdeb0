"""Facts about services in which a thread dies of an unexpected error.

Each service ends at once, with a line that names the thread.
"""

import os
import subprocess
import sys

import pytest

from tests.fixtures.comparison_factory import make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.publishing import TUNED, started
from tests.fixtures.servers import mosquitto

DEADLINE_S = 120
COMMAND = "from edgemeter.agent.cli.main import main; import sys; main(sys.argv[1:])"
DAEMON = (
    "from edgemeter.agent.daemon.daemon import run_daemon; import sys; "
    "sys.exit(run_daemon(sys.argv[1]))"
)


def ended(tmp_path, method, *arguments, program=COMMAND):
    """Return the lines of a service that ends by itself because `method` fails.

    `method` is a dotted name; it fails in a way that no code of ours foresees.
    """
    module, _, name = method.partition(":")
    patch = (
        f"import {module} as patched\ndef fail(*_): raise OverflowError('too large')\n"
        f"patched.{name} = fail\n{program}"
    )
    environment = {**os.environ, "EDGEMETER_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-c", patch, *map(str, arguments)]
    process = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=DEADLINE_S
    )
    assert process.returncode == 1, process.stderr
    assert "Traceback" not in process.stderr
    return process.stderr.splitlines()


@pytest.mark.services
def test_the_page_ends_if_nobody_keeps_it_up_to_date(tmp_path):
    """The page ends, because without the thread that keeps it up to date it would never change."""
    path = fill(tmp_path / "ledger.sqlite", [make_run()])
    lines = ended(
        tmp_path,
        "edgemeter.collector.compare.case_book:CaseBook.refresh",
        "collector",
        "web",
        "--ledger",
        path,
        "--port",
        0,
    )
    assert "the thread 'edgemeter-page' died (OverflowError: too large" in lines[-1]


@pytest.mark.mosquitto
def test_the_collector_ends_whichever_of_its_threads_dies(tmp_path):
    """The collector ends whichever of its threads dies, and its supervisor starts it again."""
    with started(mosquitto(tmp_path, *TUNED)) as broker:
        for method, thread in (
            (
                "edgemeter.collector.receive.collector:Collector._apply_retention",
                "edgemeter-ledger",
            ),
            (
                "edgemeter.collector.receive.collector:Collector.has_room",
                "paho-mqtt-client-collector-",
            ),
        ):
            lines = ended(
                tmp_path,
                method,
                "collector",
                "up",
                "--broker",
                broker,
                "--ledger",
                tmp_path / "ledger.sqlite",
            )
            assert f"the thread '{thread}" in lines[-1]
            assert "' died (OverflowError: too large" in lines[-1]


@pytest.mark.services
def test_the_agent_ends_if_its_publisher_dies(tmp_path):
    """The agent ends, because without its publisher it would deliver nothing any more."""
    options = (
        '{"device": "pi-1", "fleet": "lab", "broker": "127.0.0.1:1", "config": null, "files": {}}'
    )
    lines = ended(
        tmp_path, "edgemeter.agent.delivery.publisher:Publisher.step", options, program=DAEMON
    )
    assert "the thread 'edgemeter-publisher' died (OverflowError: too large" in lines[-1]
