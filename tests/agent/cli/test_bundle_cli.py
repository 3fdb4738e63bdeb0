"""Facts about `edgemeter run --bundle`, `edgemeter runs bundle verify` and `keygen`."""

import json
import os
from pathlib import Path

import pytest

from tests.fixtures import command as in_process
from tests.fixtures.bundle_factory import rezip, write_bundle
from tests.fixtures.snapshot import same_as_snapshot

MODEL = Path(__file__).resolve().parents[2] / "fixtures" / "runtimes" / "replay.replay.json"


@pytest.fixture(autouse=True)
def _home(tmp_path_factory, monkeypatch):
    """Let a run find no configuration, and take its lock where nobody else does."""
    monkeypatch.setenv("HOME", str(tmp_path_factory.mktemp("home")))


def edgemeter(*arguments, **environment):
    environ = {name: os.environ[name] for name in ("HOME", "EDGEMETER_RUN_LOCK")}
    return in_process.edgemeter(
        *arguments, env={"PATH": "/usr/bin:/bin", "COLUMNS": "120", **environ, **environment}
    )


def better(files):
    record = json.loads(files["record.json"])
    record["latency"]["p50_ms"] /= 2
    files["record.json"] = json.dumps(record).encode()


@pytest.mark.services
def test_a_run_writes_bundles_that_verify(tmp_path):
    """Two runs of a suite are signed by the configured key and verified with the public one.

    Then a figure of one bundle is improved, which is found.
    """
    keygen = edgemeter("runs", "bundle", "key", tmp_path / "lab.key")
    assert keygen.returncode == 0, keygen.stderr
    (tmp_path / "config.toml").write_text(f'signing_key_file = "{tmp_path}/lab.key"\n')
    (tmp_path / "suite.toml").write_text(
        f'name = "two"\n[[case]]\nmodel = "{MODEL}"\nmode = "rapid"\nrepeats = 2\n'
    )
    options = (
        "--config",
        tmp_path / "config.toml",
        "--bundle",
        tmp_path / "results",
        "--format",
        "json",
        "--power",
        "none",
    )
    result = edgemeter("run", tmp_path / "suite.toml", *options)
    assert result.returncode == 0, result.stderr
    bundles = sorted((tmp_path / "results").iterdir())
    ids = {run["id"] for run in json.loads(result.stdout)["runs"]}
    assert {path.name for path in bundles} == {f"{run_id}.edgemeter" for run_id in ids}
    assert len(ids) == 2
    verified = edgemeter(
        "runs",
        "bundle",
        "verify",
        tmp_path / "results",
        "--public-key",
        tmp_path / "lab.key.pub",
        "--format",
        "json",
    )
    assert verified.returncode == 0, verified.stdout
    for bundle in json.loads(verified.stdout)["bundles"]:
        assert (bundle["state"], bundle["differences"], bundle["signature"]["expected"]) == (
            "same",
            [],
            True,
        )
        assert {"latency", "throughput_per_s", "samples", "windows"} <= set(bundle["checked"])
        assert bundle["signature"]["fingerprint"] in keygen.stdout
    rezip(bundles[0], better)
    verified = edgemeter("runs", "bundle", "verify", *bundles, "--format", "json")
    assert verified.returncode == 1
    differing = {bundle["record"]: bundle for bundle in json.loads(verified.stdout)["bundles"]}
    assert {bundle["state"] for bundle in differing.values()} == {"same", "differs"}
    bettered = differing[bundles[0].stem]
    assert "latency.p50_ms" in {difference["field"] for difference in bettered["differences"]}
    assert bettered["signature"]["state"] == "wrong"


def test_what_verify_prints(tmp_path):
    """A sound, a differing and a damaged bundle are printed, each with its exit status."""
    sound = write_bundle(tmp_path)
    bettered, broken = (tmp_path / f"{name}.edgemeter" for name in ("bettered", "broken"))
    bettered.write_bytes(sound.read_bytes())
    broken.write_bytes(sound.read_bytes()[:500])
    printed = []
    for bundles, status in (((sound,), 0), ((sound, broken), 1), ((rezip(bettered, better),), 1)):
        result = edgemeter("runs", "bundle", "verify", *bundles)
        assert result.returncode == status
        printed.append(f"$ bundle verify\n{result.stdout}{result.stderr}")
    text = "\n".join(printed).replace(str(tmp_path), "FOLDER").replace(sound.stem, "RUN")
    same_as_snapshot("bundle", text)


def test_wrong_usage_is_one_line(tmp_path):
    """The command exits with status 2 before anything is measured."""
    (tmp_path / "config.toml").write_text('signing_key_file = "none.key"\n')
    for arguments, says in [
        (("runs", "bundle", "verify"), "BUNDLE|FOLDER"),
        (("runs", "bundle", "verify", "x.edgemeter", "--public-key", "none.pub"), "none.pub"),
        (("runs", "bundle", "key", "/nonexistent/key"), "/nonexistent/key"),
        (("run", str(MODEL), "--bundle", str(MODEL)), "bundles"),
        (("run", str(MODEL), "--bundle", "{tmp}", "--config", "{tmp}/config.toml"), "none.key"),
    ]:
        result = edgemeter(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
        assert result.returncode == 2, result.stderr
        assert says in result.stderr
        assert "Traceback" not in result.stderr
