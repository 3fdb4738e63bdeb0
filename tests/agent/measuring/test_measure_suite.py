"""Facts about the file of results."""

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.cli.session import write_document
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.measuring.measure_suite import RecordKeeping
from edgemeter.agent.measuring.suites import suite_of
from tests.fixtures.command import edgemeter
from tests.fixtures.played_session import play, run_of
from tests.fixtures.record_factory import make_record
from tests.fixtures.replay_case import write_replay
from tests.fixtures.rows import table_row
from tests.fixtures.small_disk import fill, small_disk


def test_quiet_hides_progress_and_hints_and_no_warning(tmp_path, monkeypatch):
    """Standard output has the results alone, and a case that was left out is still named."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path / "home"))
    write_replay(tmp_path, "a")
    (tmp_path / "suite.toml").write_text(
        'name = "s"\n[[case]]\nmodel = "a.replay.json"\nruntime = ["replay", "onnx"]\n'
    )
    play(monkeypatch, lambda letter, _: run_of(letter, 2.0))
    left_out = "edgemeter: left out: case 1: onnx does not read a.replay.json\n"
    quiet = edgemeter("run", tmp_path / "suite.toml", "--quiet")
    assert (quiet.returncode, quiet.stderr) == (0, left_out)
    assert "Latency" in quiet.stdout
    assert "saved as" not in quiet.stdout
    aloud = edgemeter("run", tmp_path / "suite.toml")
    assert aloud.stdout.startswith(quiet.stdout.rstrip())
    assert "saved as" in aloud.stdout
    assert aloud.stderr.startswith(left_out)
    assert len(aloud.stderr) > len(left_out)


def test_models_of_a_command_are_named_in_errors_and_no_suite_is():
    """Nobody wrote one; the error says which option to change."""
    for models, settings, says in [
        (
            ("m.onnx",),
            Settings(runtime="litert"),
            "litert does not read m.onnx, onnx does: choose another --runtime, or leave it out",
        ),
        (
            ("m.onnx",),
            Settings(annotations="a.json"),
            (
                "m.onnx: annotations need data: give --data PATH (data = PATH in a suite), or "
                "leave them out"
            ),
        ),
        (("a.onnx",), Settings(together="together"), "a.onnx: together 'together' names one case"),
    ]:
        with table_row(says), pytest.raises(ConfigError) as refused:
            suite_of(None, [Path(model) for model in models], settings)
        assert str(refused.value).startswith(says)
    suite = suite_of(None, [Path("a.onnx"), Path("b.tflite")], Settings(runtime="onnx"))
    assert suite.left_out == ("onnx does not read b.tflite, litert does",)


@pytest.mark.needs("mount")
def test_results_that_find_no_room_leave_the_file_as_it_was(tmp_path):
    """A partial document must not be read as the whole, and the error says what to do."""
    errors = []
    with small_disk(tmp_path / "disk", 1) as disk:
        (disk / "runs.json").write_text("earlier")
        fill(disk / "filler")
        write_document(disk / "runs.json", bytes(100_000), errors)
        assert (disk / "runs.json").read_text() == "earlier"
        assert {path.name for path in disk.iterdir()} == {"runs.json", "filler"}
    (error,) = errors
    assert "--output" in str(error)


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_results_replace_a_file_and_follow_a_link(tmp_path, mode):
    """The file keeps its permissions, and a link such as /dev/stdout stays a link."""
    path, link = tmp_path / "runs.json", tmp_path / "link.json"
    path.touch()
    path.chmod(mode)
    link.symlink_to(path)
    for written_path, document in ((path, b"{}"), (link, b"[]")):
        write_document(written_path, document, errors := [])
        assert (errors, path.read_bytes(), path.stat().st_mode & 0o777) == (
            [],
            document + b"\n",
            mode,
        )
    assert link.is_symlink()


def test_a_run_that_has_ended_is_stored_although_ctrl_c_comes_meanwhile(monkeypatch):
    """Outbox and ledger both have the record before the interrupt is raised."""
    monkeypatch.setattr(interrupts, "_interrupt", interrupts._Interrupt())
    record, stored = make_record(), []

    def keeper(name):
        def keep(kept_record):
            interrupts._interrupt.arrive(signal.SIGINT)
            stored.append(name)
            return kept_record

        return SimpleNamespace(keep=keep)

    keeping = RecordKeeping(keeper("outbox"), keeper("ledger"))
    with pytest.raises(KeyboardInterrupt):
        keeping.keep(record)
    assert (stored, keeping.records) == (["outbox", "ledger"], [record])
