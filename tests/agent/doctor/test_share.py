"""Facts about `edgemeter doctor --share`: what a machine ran becomes bundles and rows; anything else does not."""

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.archive import read_bundle
from edgemeter.agent.doctor import setups
from edgemeter.agent.doctor.share import share, trial_of_bundle
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.agent.machine import fingerprint
from tests.docs import boards
from tests.fixtures.command import edgemeter

EXAMPLE = read_bundle(next(boards.TRIALS.glob("*.edgemeter"))).record


@pytest.fixture
def ledger(tmp_path):
    """Return a function that stores records of runs, and returns the ledger's file."""
    path = tmp_path / "ledger.sqlite"

    def store(*records):
        with SqliteLedger(path) as open_ledger:
            for seq, record in enumerate(records, 1):
                named = msgspec.structs.replace(record, id=f"{seq:032x}", session=7, seq=seq)
                open_ledger.keep_own(named, 1 << 30)
        return path

    return store


def test_the_newest_run_of_each_set_up_is_shared(tmp_path, ledger):
    """Of two runs of one set-up the newer one; of another machine, invalid or replayed ones none."""
    replace = msgspec.structs.replace
    other_version = replace(EXAMPLE, runtime=replace(EXAMPLE.runtime, version="9.9.9"))
    invalid = replace(other_version, verdict=replace(EXAMPLE.verdict, state="invalid", reasons=("busy: all the time",)))
    replayed = replace(EXAMPLE, runtime=replace(EXAMPLE.runtime, name="replay"))
    elsewhere = replace(EXAMPLE, environment=replace(EXAMPLE.environment, board="Raspberry Pi 5 Model B Rev 1.0"))
    path = ledger(EXAMPLE, other_version, EXAMPLE, invalid, replayed, elsewhere)
    rows = share(path, EXAMPLE.environment, tmp_path / "shared")
    assert [trial.record for _, trial in rows] == [f"{seq:032x}" for seq in (2, 3)]
    assert [trial_of_bundle(bundle, trial.by) for bundle, trial in rows] == [trial for _, trial in rows]
    text = setups.as_toml([trial for _, trial in rows])
    assert msgspec.toml.decode(text, type=dict[str, list[setups.Trial]])["trial"] == [trial for _, trial in rows]


def test_a_machine_without_a_run_learns_what_to_do(tmp_path, ledger):
    """No ledger, or one of other machines only: one line with the remedy, and no bundle."""
    for path in (tmp_path / "absent.sqlite", ledger(EXAMPLE)):
        other = msgspec.structs.replace(EXAMPLE.environment, cpu="another")
        with pytest.raises(ConfigError, match="has no measured run of this machine that is not invalid: `edgemeter run` a model"):
            share(path, other, tmp_path / "shared")
    assert list((tmp_path / "shared").iterdir()) == []


def test_the_command_prints_rows_and_writes_bundles(tmp_path, ledger, monkeypatch):
    """The rows on stdout, as TOML; the files and what they contain on stderr."""
    monkeypatch.setenv("EDGEMETER_HOME", str(tmp_path))
    ledger(msgspec.structs.replace(EXAMPLE, environment=fingerprint.read()))
    process = edgemeter("doctor", "--share", tmp_path / "shared")
    assert process.returncode == 0, process.stderr
    (bundle,) = (tmp_path / "shared").iterdir()
    assert f'record = "{bundle.stem}"' in process.stdout
    assert f"wrote {bundle.name} to " in process.stderr
    assert "holds the record and its samples, with the names of this device and its fleet" in process.stderr
