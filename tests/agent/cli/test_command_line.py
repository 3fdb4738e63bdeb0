"""Facts about the command line as a process.

They concern how it starts, ends, fails and is interrupted; everything else about commands is tested
in one process.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from edgemeter.agent.contract.record import encode
from tests.fixtures.record_factory import make_record

pytestmark = pytest.mark.command

MODEL = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes" / "replay.replay.json"
EDGEMETER = [sys.executable, "-m", "edgemeter.agent.cli.main"]
RUN = ["run", str(MODEL), "--mode", "rapid", "--power", "none", "--device", "pi-1"]
HEAVY = (
    "numpy",
    "msgspec",
    "ai_edge_litert",
    "onnxruntime",
    "torch",
    "PIL",
    "paho",
    "amqtt",
    "psutil",
    "edgemeter.collector",
)


def start(home, *arguments, **settings):
    environment = os.environ | {"EDGEMETER_HOME": str(home)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    return subprocess.Popen(
        [*EDGEMETER, *arguments], env=environment, stdin=subprocess.DEVNULL, text=True, **pipes
    )


def ended(process):
    out, err = process.communicate()
    return process.returncode, out, err


def test_it_has_a_version(tmp_path):
    """The version is printed on standard output, with status 0."""
    status, out, err = ended(start(tmp_path, "--version"))
    assert (status, out.split()[:2], err) == (0, ["edgemeter,", "version"], "")


def test_help_names_every_command_and_imports_nothing_heavy():
    """Help imports neither numpy, nor a runtime, nor a group of commands."""
    code = (
        "import sys; from edgemeter.agent.cli.main import main\ntry: main(['--help'])\nfinally: "
        "print(*sys.modules, file=sys.stderr)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert set(HEAVY).isdisjoint(completed.stderr.split())
    for command in ("run", "doctor", "config", "energy", "compare", "trend", "collector", "models"):
        assert f"\n  {command}" in completed.stdout


def test_an_error_is_one_line_on_standard_error(tmp_path):
    """The exit status is 2, standard output is empty, and there is no traceback."""
    status, out, err = ended(start(tmp_path, "run", "nowhere.onnx"))
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert "nowhere.onnx" in err


def test_a_reader_that_has_gone_ends_it_without_a_word(tmp_path):
    """The reader of a pipe may end first, as in `| head`."""
    reading, writing = os.pipe()
    os.close(reading)
    process = start(tmp_path, "config", "variables", stdout=writing)
    os.close(writing)
    status, _, err = ended(process)
    assert (status, err) == (1, "")


def test_a_run_prints_one_document_and_is_saved(tmp_path):
    """The run is in the ledger below the home, and standard error has one line about the case."""
    status, out, err = ended(start(tmp_path, *RUN, "--repeats", "1", "--format", "json"))
    assert status == 0, err
    (run,) = json.loads(out)["runs"]
    assert (run["device"], run["model"]["name"]) == ("pi-1", "replay.replay")
    assert (tmp_path / "ledger.sqlite").exists()


def test_ctrl_c_ends_a_run_with_its_status(tmp_path):
    """The status is 130 without a traceback, after the first run has ended with its line."""
    lines = (
        'name = "two cases"',
        *(
            f"[[case]]\nmodel = '{MODEL}'\nmode = \"rapid\"\nrepeats = {repeats}"
            for repeats in (1, 1000)
        ),
    )
    (tmp_path / "suite.toml").write_text("\n".join(lines))
    process = start(tmp_path, "run", str(tmp_path / "suite.toml"), "--power", "none")
    assert any(line.startswith("[1/") for line in process.stderr)
    process.send_signal(signal.SIGINT)
    status, _, err = ended(process)
    assert status == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "interrupt",
    [
        "Dropped()",
        "exec('signal.raise_signal(signal.SIGINT)')",
        "type('Wrapping', (), {'field': Wrapped()})",
    ],
)
def test_ctrl_c_ends_a_session_wherever_it_arrives(tmp_path, interrupt):
    """However the interrupt arrives, the other 999 runs are not measured.

    Python drops it in `__del__`, wraps it in `__set_name__`, and after `exec` ends by the signal.
    """
    code = f"""
        import signal
        from edgemeter.agent.cli.main import main
        from edgemeter.agent.engine import isolation

        class Dropped:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        class Wrapped:
            def __set_name__(self, owner, name):
                signal.raise_signal(signal.SIGINT)

        def interrupted(*arguments, run=isolation.run_isolated, interrupts=[1]):
            while interrupts:
                interrupts.clear()
                {interrupt}
            return run(*arguments)

        isolation.run_isolated = interrupted
        main()
    """
    (tmp_path / "interrupted.py").write_text(textwrap.dedent(code))
    command = [sys.executable, "-m", "interrupted", *RUN, "--repeats", "1000"]
    environment = os.environ | {"EDGEMETER_HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    status, _, err = ended(process)
    assert (status, err.splitlines()[-1].partition(" before")[0]) == (130, "edgemeter: interrupted")
    assert "Traceback" not in err


def test_a_process_that_held_many_records_collects_no_garbage_when_it_ends(tmp_path):
    """A collection of msgspec's types at the end may crash, which would hide the exit status."""
    (tmp_path / "runs.json").write_bytes(
        b'{"runs": [%s]}'
        % b",".join(encode(make_record(id=f"{number:032x}")) for number in range(300))
    )
    code = """if True:
        import atexit, gc, sys
        from edgemeter.agent.cli.main import main
        # The first registered function is called last.
        atexit.register(
            lambda: print("kept" if gc.get_freeze_count() > 300 else "collected", file=sys.stderr)
        )
        main()
    """
    written = [
        sys.executable,
        "-c",
        code,
        "report",
        str(tmp_path / "runs.json"),
        "--output",
        str(tmp_path / "runs.csv"),
    ]
    completed = subprocess.run(
        written,
        env=os.environ | {"EDGEMETER_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (completed.returncode, completed.stderr.splitlines()[-1]) == (0, "kept")
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 301
