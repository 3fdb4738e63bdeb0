"""Facts about `edgemeter run --bundle`, `edgemeter bundle verify`, `show` and `keygen`."""

import json
import os
import re
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
    """Return how `edgemeter ARGUMENTS` ended."""
    environ = {name: os.environ[name] for name in ("HOME", "EDGEMETER_RUN_LOCK")}
    return in_process.edgemeter(*arguments, env={"PATH": "/usr/bin:/bin", "COLUMNS": "120", **environ, **environment})


def better(files):
    """Improve the median in the record."""
    record = json.loads(files["record.json"])
    record["latency"]["p50_ms"] /= 2
    files["record.json"] = json.dumps(record).encode()


@pytest.mark.services
def test_a_run_writes_bundles_that_verify(tmp_path):
    """The whole way: keygen, two runs of a suite, signed by the configured key, verified with the public one; then one is bettered."""
    keygen = edgemeter("bundle", "keygen", tmp_path / "lab.key")
    assert keygen.returncode == 0, keygen.stderr
    (tmp_path / "config.toml").write_text(f'signing_key_file = "{tmp_path}/lab.key"\n')
    (tmp_path / "suite.toml").write_text(f'name = "two"\n[[case]]\nmodel = "{MODEL}"\nmode = "rapid"\nrepeats = 2\n')
    options = ("--config", tmp_path / "config.toml", "--bundle", tmp_path / "results", "--json", "--power", "none")
    result = edgemeter("run", tmp_path / "suite.toml", *options)
    assert result.returncode == 0, result.stderr
    bundles = sorted((tmp_path / "results").iterdir())
    ids = {run["id"] for run in json.loads(result.stdout)["runs"]}
    assert {path.name for path in bundles} == {f"{run_id}.edgemeter" for run_id in ids}
    assert len(ids) == 2
    verified = edgemeter("bundle", "verify", tmp_path / "results", "--public-key", tmp_path / "lab.key.pub", "--json")
    assert verified.returncode == 0, verified.stdout
    for bundle in json.loads(verified.stdout)["bundles"]:
        assert (bundle["state"], bundle["differences"], bundle["signature"]["expected"]) == ("same", [], True)
        assert bundle["checked"] > 20
        assert bundle["signature"]["fingerprint"] in keygen.stdout
    rezip(bundles[0], better)
    verified = edgemeter("bundle", "verify", *bundles, "--json")
    assert verified.returncode == 1
    differing = {bundle["record"]: bundle for bundle in json.loads(verified.stdout)["bundles"]}
    assert {bundle["state"] for bundle in differing.values()} == {"same", "differs"}
    bettered = differing[bundles[0].stem]
    assert "latency.p50_ms" in {difference["field"] for difference in bettered["differences"]}
    assert bettered["signature"]["state"] == "wrong"


def test_what_verify_and_show_print(tmp_path):
    """A sound bundle, one that differs and a damaged one, each with its status; members of a bundle, its record and its signature."""
    sound = write_bundle(tmp_path)
    bettered, broken = (tmp_path / f"{name}.edgemeter" for name in ("bettered", "broken"))
    bettered.write_bytes(sound.read_bytes())
    broken.write_bytes(sound.read_bytes()[:500])
    printed = []
    for arguments, status in (
        (("verify", sound, broken), 1),
        (("verify", rezip(bettered, better)), 1),
        (("show", sound), 0),
        (("show", broken), 2),
    ):
        result = edgemeter("bundle", *arguments)
        assert result.returncode == status
        printed.append(f"$ bundle {arguments[0]}\n{result.stdout}{result.stderr}")
    document = json.loads(edgemeter("bundle", "show", sound, "--json").stdout)
    assert (document["signature"]["state"], document["record"]["samples"]) == ("unsigned", [])
    text = "\n".join(printed).replace(str(tmp_path), "FOLDER").replace(sound.stem, "RUN")
    same_as_snapshot("bundle", re.sub(r"\S+  [0-9a-f]{12}", "BYTES  SHA256", text))


def test_wrong_usage_is_one_line(tmp_path):
    """Status 2, before anything is measured."""
    for arguments, says in [
        (("bundle", "verify"), "BUNDLE|FOLDER"),
        (("bundle", "verify", "x.edgemeter", "--public-key", "none.pub"), "none.pub"),
        (("bundle", "keygen", "/nonexistent/key"), "/nonexistent/key"),
        (("run", "--model", str(MODEL), "--bundle", str(MODEL)), "bundles"),
        (("run", "--model", str(MODEL), "--bundle", "{tmp}", "--signing-key-file", "none.key"), "none.key"),
    ]:
        result = edgemeter(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
        assert result.returncode == 2, result.stderr
        assert says in result.stderr
        assert "Traceback" not in result.stderr
