"""Contributes to the table of set-ups: a bundle for each set-up that this machine ran, and the row that follows from it."""

import hashlib
from pathlib import Path

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.bundle.archive import read_bundle
from edgemeter.agent.bundle.verify import verify
from edgemeter.agent.bundle.write import check_folder, write_bundle
from edgemeter.agent.contract.record import RunRecord, decode
from edgemeter.agent.contract.record_conditions import Environment
from edgemeter.agent.doctor.setups import Trial, TrialLevel, trial_of
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger

UNNAMED = "this machine"


def share(ledger_path: Path, environment: Environment, folder: Path) -> list[tuple[Path, Trial]]:
    """Write a bundle of the newest usable run of each set-up on a machine of this environment into `folder`; return them with their rows.

    Raises:
        ConfigError: the ledger has no such run, or the folder cannot be written.
    """
    rows = []
    check_folder(folder)
    if ledger_path.is_file():
        with SqliteLedger(ledger_path, "read") as ledger:
            for record in _newest(ledger, environment):
                text = ledger.text(record)
                with_samples = decode(text) if text is not None else record
                if with_samples.samples:
                    path = write_bundle(folder, with_samples, None)
                    rows.append((path, trial_of_bundle(path, UNNAMED)))
    if not rows:
        raise ConfigError(
            f"{str(ledger_path)!r} has no measured run of this machine that is not invalid: "
            "`edgemeter run` a model with the runtime to share first"
        )
    return rows


def trial_of_bundle(path: Path, by: str, level: TrialLevel = "run") -> Trial:
    """Return the row that a bundle shows, once its figures are recomputed from its samples.

    Raises:
        ConfigError: it is damaged, a figure in it differs, or its run is no trial.
    """
    verification = verify(path)
    if not verification.holds:
        fields = ", ".join(difference.field for difference in verification.differences[:5])
        why = verification.error or (f"{fields} differ from what its samples give" if fields else "its signature is wrong")
        raise ConfigError(f"the bundle {str(path)!r} shows no trial: {why}: share the run again (`edgemeter doctor --share DIR`)")
    return trial_of(read_bundle(path).record, hashlib.sha256(path.read_bytes()).hexdigest(), by, level)


def _newest(ledger: SqliteLedger, environment: Environment) -> list[RunRecord]:
    """Return the newest run of each set-up, the oldest first."""
    newest: dict[tuple[object, ...], RunRecord] = {}
    for row in ledger.records():
        record = row.record
        try:
            trial = trial_of(record, "0" * 64, UNNAMED)
        except ConfigError:
            continue
        if _machine(record.environment) == _machine(environment):
            key = (trial.board, trial.os, trial.python, trial.runtime, trial.backend, trial.accelerator, *sorted(trial.packages.items()))
            newest.pop(key, None)
            newest[key] = record
    return list(newest.values())


def _machine(environment: Environment) -> tuple[str | None, ...]:
    """Return what tells whether a run is of this kind of machine: a collector's ledger holds those of others too."""
    return (environment.board, environment.soc, environment.arch, environment.cpu)
