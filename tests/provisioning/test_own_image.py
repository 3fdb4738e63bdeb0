"""Facts about the script for Mender on the page about fleets."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tasks" / "fleet.md"


def block(kind):
    (text,) = [
        part.partition("\n")[2].partition("```")[0]
        for part in PAGE.read_text().split(f"```{kind}")[1:]
    ]
    return text


@pytest.mark.services
@pytest.mark.parametrize(("state", "status"), [("absent", 0), ("free", 0), ("held", 21)])
def test_menders_script_asks_for_a_later_try_while_something_measures(tmp_path, state, status):
    """The script returns 21, Mender's status for a later try, while a measurement runs.

    Where nothing was ever measured, there is no lock.
    """
    script, lock = tmp_path / "ArtifactReboot_Enter_00", tmp_path / "edgemeter-run.lock"
    script.write_text(block("sh"))
    script.chmod(0o755)
    if state != "absent":
        lock.touch()
    with (tmp_path / ("other" if state == "absent" else lock.name)).open("a") as holder:
        if state == "held":
            fcntl.flock(holder, fcntl.LOCK_EX)
        completed = subprocess.run(
            [script], env={**os.environ, "EDGEMETER_RUN_LOCK": str(lock)}, check=False
        )
    assert completed.returncode == status
    assert lock.exists() == (state != "absent")
