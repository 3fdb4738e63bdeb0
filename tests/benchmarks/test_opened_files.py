"""Facts about which files a run opens."""

import os

from tests.benchmarks import opened_files
from tests.benchmarks.first_look import replay_run


def test_the_files_of_both_processes_are_noted(tmp_path):
    """Bytecode of the session and of the runtime, the model, and a library that the loader opened; nothing that is only installed."""
    command = [*replay_run(tmp_path), "--repeats", "1"]
    opened = opened_files.of_a_run(command, {**os.environ, "EDGEMETER_HOME": str(tmp_path / "home")})
    names = {path.name.partition(".")[0] for path in opened if path.suffix in {".py", ".pyc"} and "/agent/" in str(path)}
    assert {"together", "worker", "replay"} <= names
    assert tmp_path / "m.replay.json" in opened
    assert any("openblas" in path.name for path in opened)
    assert not any("/tests/" in str(path) and "numpy" in str(path) for path in opened)
