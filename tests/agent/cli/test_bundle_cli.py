"""Facts about `edgemeter run --bundle`, `edgemeter bundle verify`, `show` and `keygen`."""

import json
import os
from pathlib import Path

import pytest

from tests.fixtures import command as in_process
from tests.fixtures.bundle_factory import rezip, write_bundle

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
    pytest.importorskip("cryptography")
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


@pytest.mark.services
def test_every_scenario_verifies(tmp_path):
    """Real runs of all of one model, power read beside them: whatever the engine states, energy or the reason for none, comes out again."""
    (tmp_path / "power.csv").write_text("t_s,power_w\n0,3.1\n0.05,3.2\n0.1,3.0\n0.15,3.1\n")
    (tmp_path / "config.toml").write_text(f'[sensors.replay]\npath = "{tmp_path}/power.csv"\nscope = "board-input"\n')
    cases = ("single_stream", "multi_stream", "offline", "poisson", "steady")
    rated = ("poisson", "steady")
    written = [f'[[case]]\nscenario = "{name}"\n' + ("rate_per_s = 50.0\n" if name in rated else "") for name in cases]
    defaults = f'[defaults]\nmodel = "{MODEL}"\nmode = "rapid"\nrepeats = 1\nidle_seconds = 1.0\n'
    (tmp_path / "suite.toml").write_text(f'name = "all"\n{defaults}{"".join(written)}')
    options = ("--power", "replay", "--config", tmp_path / "config.toml", "--bundle", tmp_path / "results", "--json")
    result = edgemeter("run", tmp_path / "suite.toml", *options)
    assert result.returncode == 0, result.stderr
    assert sorted(run["scenario"] for run in json.loads(result.stdout)["runs"]) == sorted(cases)
    verified = edgemeter("bundle", "verify", *sorted((tmp_path / "results").iterdir()), "--json")
    assert verified.returncode == 0, verified.stdout
    assert all(bundle["checked"] > 30 and bundle["state"] == "same" for bundle in json.loads(verified.stdout)["bundles"])


def test_a_difference_is_a_row_of_a_table(tmp_path):
    """Field, stated, recomputed; status 1."""
    verified = edgemeter("bundle", "verify", rezip(write_bundle(tmp_path), better))
    assert verified.returncode == 1
    (row,) = [line.split() for line in verified.stdout.splitlines() if line.lstrip().startswith("latency.p50_ms")]
    assert float(row[1]) * 2 == pytest.approx(float(row[2]), rel=1e-6)
    assert "not signed" in verified.stdout
    assert "not recomputed: memory" in verified.stdout


def test_a_damaged_bundle_fails_in_one_line(tmp_path):
    """Next to a sound one, whose result is still reported."""
    sound = write_bundle(tmp_path)
    broken = tmp_path / "broken.edgemeter"
    broken.write_bytes(sound.read_bytes()[:500])
    verified = edgemeter("bundle", "verify", sound, broken)
    assert verified.returncode == 1
    assert "none differ" in verified.stdout
    (line,) = [line for line in verified.stdout.splitlines() if ": damaged: " in line]
    assert line.startswith(str(broken))
    assert verified.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("bundle", "verify"), "Missing argument 'BUNDLE|FOLDER...'"),
        (("bundle", "verify", "x.edgemeter", "--public-key", "none.pub"), "cannot read the key 'none.pub'"),
        (("bundle", "keygen", "/nonexistent/key"), "cannot write the key '/nonexistent/key'"),
        (("run", "--model", str(MODEL), "--bundle", str(MODEL)), "cannot write bundles to"),
        (("run", "--model", str(MODEL), "--bundle", "{tmp}", "--signing-key-file", "none.key"), "cannot read the key 'none.key'"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, arguments, says):
    """Status 2, before anything is measured."""
    pytest.importorskip("cryptography")
    result = edgemeter(*(argument.replace("{tmp}", str(tmp_path)) for argument in arguments))
    assert result.returncode == 2, result.stderr
    assert says in result.stderr
    assert "Traceback" not in result.stderr


def test_a_bundle_shows_its_record_its_files_and_its_signature(tmp_path):
    """As text, and as one document with the whole record but its samples; a damaged one is one line."""
    path = write_bundle(tmp_path)
    printed = edgemeter("bundle", "show", path)
    assert printed.returncode == 0, printed.stderr
    document = json.loads(edgemeter("bundle", "show", path, "--json").stdout)
    assert [member["file"] for member in document["members"]][:1] == ["record.json"]
    assert all(member["file"] in printed.stdout for member in document["members"])
    assert (document["signature"]["state"], document["record"]["samples"]) == ("unsigned", [])
    assert document["record"]["id"] in printed.stdout
    assert "not signed" in printed.stdout
    path.write_bytes(path.read_bytes()[:200])
    broken = edgemeter("bundle", "show", path)
    assert (broken.returncode, broken.stdout, len(broken.stderr.splitlines())) == (2, "", 1)
