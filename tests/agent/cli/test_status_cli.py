import json
import os

from edgemeter.agent.base.file_lock import AGENT_LOCK, FileLock
from edgemeter.agent.delivery.outbox import Outbox
from edgemeter.agent.delivery.outbox_file import OUTBOX
from tests.fixtures.command import edgemeter
from tests.fixtures.publishing import put


def test_the_status_of_an_agent_names_what_waits_and_why(tmp_path):
    """One record of three is too large for its broker.

    The agent that runs is named by its process.
    """
    environment = {**os.environ, "EDGEMETER_HOME": str(tmp_path)}
    empty = edgemeter("agent", "status", env=environment)
    assert empty.stdout == "agent: none runs here: `edgemeter agent up`\noutbox: empty\n"
    with Outbox(tmp_path / OUTBOX) as outbox:
        put(outbox, 3)
        outbox.set_aside(2, "record 2 has 5000 bytes without samples")
    lock = FileLock(tmp_path / AGENT_LOCK)
    assert lock.take("the agent of 'pi-1'")
    text = edgemeter("agent", "status", env=environment).stdout
    document = json.loads(edgemeter("agent", "status", "--format", "json", env=environment).stdout)
    lock.release()
    assert f"agent: the agent of 'pi-1' (pid {os.getpid()}, since " in text
    assert (
        "1 of 3 records that wait cannot be sent: record 2 has 5000 bytes without samples: " in text
    )
    assert document["agent"] in text
    assert (document["outbox"], document["remedy"] in text) == ("warn", True)
