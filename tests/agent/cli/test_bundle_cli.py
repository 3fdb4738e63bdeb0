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
    kept = {name: os.environ[name] for name in ("HOME", "EDGEMETER_RUN_LOCK")}
    return in_process.edgemeter(*arguments, env={"PATH": "/usr/bin:/bin", "COLUMNS": "120", **kept, **environment})


def better(files):
    """Improve the median in the record."""
    record = json.loads(files["record.json"])
    record["latency"]["p50_ms"] /= 2
    files["record.json"] = json.dumps(record).encode()


@pytest.mark.slow
def test_a_run_writes_bundles_that_verify(tmp_path):
    """The whole way: keygen, two runs of a suite, signed by the configured key, verified with the public one; then one is bettered."""
    pytest.importorskip("cryptography")
    made = edgemeter("bundle", "keygen", tmp_path / "lab.key")
    assert made.returncode == 0, made.stderr
    (tmp_path / "config.toml").write_text(f'signing_key_file = "{tmp_path}/lab.key"\n')
    (tmp_path / "suite.toml").write_text(f'name = "two"\n[[case]]\nmodel = "{MODEL}"\nmode = "rapid"\nrepeats = 2\n')
    options = ("--config", tmp_path / "config.toml", "--bundle", tmp_path / "results", "--json", "--power", "none")
    done = edgemeter("run", tmp_path / "suite.toml", *options)
    assert done.returncode == 0, done.stderr
    bundles = sorted((tmp_path / "results").iterdir())
    ids = {run["id"] for run in json.loads(done.stdout)["runs"]}
    assert {path.name for path in bundles} == {f"{one}.edgemeter" for one in ids}
    assert len(ids) == 2
    found = edgemeter("bundle", "verify", tmp_path / "results", "--key", tmp_path / "lab.key.pub", "--json")
    assert found.returncode == 0, found.stdout
    for one in json.loads(found.stdout)["bundles"]:
        assert (one["state"], one["differences"], one["signature"]["expected"]) == ("same", [], True)
        assert one["checked"] > 20
        assert one["signature"]["fingerprint"] in made.stdout
    rezip(bundles[0], better)
    found = edgemeter("bundle", "verify", *bundles, "--json")
    assert found.returncode == 1
    differing = {one["record"]: one for one in json.loads(found.stdout)["bundles"]}
    assert {one["state"] for one in differing.values()} == {"same", "differs"}
    bettered = differing[bundles[0].stem]
    assert "latency.p50_ms" in {one["field"] for one in bettered["differences"]}
    assert bettered["signature"]["state"] == "wrong"


@pytest.mark.slow
def test_every_scenario_verifies(tmp_path):
    """Real runs of all four, power read beside them: whatever the engine states, energy or the reason for none, comes out again."""
    (tmp_path / "power.csv").write_text("t_s,power_w\n0,3.1\n0.05,3.2\n0.1,3.0\n0.15,3.1\n")
    (tmp_path / "config.toml").write_text(f'[sensors.replay]\npath = "{tmp_path}/power.csv"\nscope = "board-input"\n')
    cases = ("single_stream", "multi_stream", "offline", "poisson")
    written = [f'[[case]]\nscenario = "{name}"\n' + ("rate_per_s = 50.0\n" if name == "poisson" else "") for name in cases]
    defaults = f'[defaults]\nmodel = "{MODEL}"\nmode = "rapid"\nrepeats = 1\nidle_seconds = 1.0\n'
    (tmp_path / "suite.toml").write_text(f'name = "all"\n{defaults}{"".join(written)}')
    options = ("--power", "replay", "--config", tmp_path / "config.toml", "--bundle", tmp_path / "results", "--json")
    done = edgemeter("run", tmp_path / "suite.toml", *options)
    assert done.returncode == 0, done.stderr
    assert sorted(run["scenario"] for run in json.loads(done.stdout)["runs"]) == sorted(cases)
    found = edgemeter("bundle", "verify", *sorted((tmp_path / "results").iterdir()), "--json")
    assert found.returncode == 0, found.stdout
    assert all(one["checked"] > 30 and one["state"] == "same" for one in json.loads(found.stdout)["bundles"])


def test_a_difference_is_a_row_of_a_table(tmp_path):
    """Field, stated, recomputed; status 1."""
    found = edgemeter("bundle", "verify", rezip(write_bundle(tmp_path), better))
    assert found.returncode == 1
    (row,) = [line.split() for line in found.stdout.splitlines() if line.lstrip().startswith("latency.p50_ms")]
    assert float(row[1]) * 2 == pytest.approx(float(row[2]), rel=1e-6)
    assert "not signed" in found.stdout
    assert "not recomputed: memory" in found.stdout


def test_a_damaged_bundle_fails_in_one_line(tmp_path):
    """Next to a sound one, whose result is still reported."""
    whole = write_bundle(tmp_path)
    broken = tmp_path / "broken.edgemeter"
    broken.write_bytes(whole.read_bytes()[:500])
    found = edgemeter("bundle", "verify", whole, broken)
    assert found.returncode == 1
    assert "none differ" in found.stdout
    (line,) = [line for line in found.stdout.splitlines() if ": damaged: " in line]
    assert line.startswith(str(broken))
    assert found.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("bundle", "verify"), "Missing argument 'BUNDLE|FOLDER...'"),
        (("bundle", "verify", "x.edgemeter", "--key", "none.pub"), "cannot read the key 'none.pub'"),
        (("bundle", "keygen", "/nonexistent/key"), "cannot write the key '/nonexistent/key'"),
        (("run", "--model", str(MODEL), "--bundle", str(MODEL)), "cannot write bundles to"),
        (("run", "--model", str(MODEL), "--bundle", "{tmp}", "--signing-key-file", "none.key"), "cannot read the key 'none.key'"),
    ],
)
def test_wrong_usage_is_one_line(tmp_path, arguments, says):
    """Status 2, before anything is measured."""
    pytest.importorskip("cryptography")
    done = edgemeter(*(one.replace("{tmp}", str(tmp_path)) for one in arguments))
    assert done.returncode == 2, done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_bundle_shows_its_record_its_files_and_its_signature(tmp_path):
    """As text, and as one document with the whole record but its samples; a damaged one is one line."""
    path = write_bundle(tmp_path)
    shown = edgemeter("bundle", "show", path)
    assert shown.returncode == 0, shown.stderr
    found = json.loads(edgemeter("bundle", "show", path, "--json").stdout)
    assert [one["file"] for one in found["members"]][:1] == ["record.json"]
    assert all(one["file"] in shown.stdout for one in found["members"])
    assert (found["signature"]["state"], found["record"]["samples"]) == ("unsigned", [])
    assert found["record"]["id"] in shown.stdout
    assert "not signed" in shown.stdout
    path.write_bytes(path.read_bytes()[:200])
    broken = edgemeter("bundle", "show", path)
    assert (broken.returncode, broken.stdout, len(broken.stderr.splitlines())) == (2, "", 1)
