"""The checks before the first run.

They are of settings and files of a suite, and of which cases this machine cannot measure.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from edgemeter.agent import generators, runtimes, tasks
from edgemeter.agent.base import durable_file, python_target
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.number_text import count
from edgemeter.agent.base.suggestions import did_you_mean, near
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.model_formats import PYTHON, is_model_file
from edgemeter.agent.contract.suite import Case, Suite
from edgemeter.agent.engine import inspection
from edgemeter.agent.engine.process_usage import check_affinity
from edgemeter.agent.machine.attached import edge_tpus
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.operating import changed_board
from edgemeter.agent.runtimes.adapter import why_absent

# Extras whose names differ from those of their runtimes.
EXTRAS = {"edgetpu": "coral", "hailo": "vision", "pytorch": "torch"}
# Runtimes whose threads are not those of this machine.
OF_ANOTHER_MACHINE = ("replay", "server", "served")
# The suffix of files that Coral's compiler makes.
COMPILED = "_edgetpu.tflite"


def check(suite: Suite, *, opens: bool = False) -> dict[int, EdgemeterError]:
    """Check a suite before the first run, and return the `refusals`.

    They are of cases that this machine cannot measure.

    Raises:
        ConfigError: a model, a data set or a core is missing, a runtime or task is unknown, or a
            model has another hash than in the suite; or the board has no such power mode or
            governor.
        UnavailableError: this machine can measure none of the cases, or its settings cannot be
            changed.
    """
    for case in suite.cases:
        check_affinity(case.cpus)
        _check_runtime(case)
        if case.task and case.task not in tasks.names() and not python_target.of_file(case.task):
            raise ConfigError(f"no task is called {case.task!r}: {near(case.task, tasks.names())}")
        if case.sha256 and case.runtime != PYTHON:
            model_file.check_sha256(case.model, sha256(case.model), case.sha256)
        else:
            # The hash of code includes the files that it reads, which are known after it has run.
            _require_model(case.model)
        if case.predictions:
            durable_file.check_writable(Path(case.predictions))
        for path, absent in ((case.data, "is no data"), (case.annotations, "are no annotations")):
            if path and not Path(path).exists():
                raise ConfigError(f"there {absent} at {path!r}: correct the path")
    if points := list(dict.fromkeys(filter(None, (case.operating_point for case in suite.cases)))):
        changed_board.check(points)
    refused = refusals(suite, opens=opens)
    if len(refused) == len(suite.cases):
        errors = by_reason(suite, refused)
        raise type(errors[0])("; ".join(map(str, errors)))
    return refused


def runnable(suite: Suite) -> tuple[Suite, list[EdgemeterError]]:
    """Return the suite without the cases that this machine cannot measure, and why.

    Model and data of each are opened once.

    Raises:
        EdgemeterError: as `check`.
    """
    refused = check(suite, opens=True)
    cases = tuple(case for number, case in enumerate(suite.cases) if number not in refused)
    return replace(suite, cases=cases), by_reason(suite, refused)


def _require_model(path: str) -> None:
    path = str(model_file.source_of(Path(path)))
    if Path(path).is_file():
        if not os.access(path, os.R_OK):
            raise ConfigError(
                f"the model {path!r} cannot be read (permission denied): `chmod a+r` it, or run "
                "as its owner"
            )
        if not Path(path).stat().st_size:
            raise ConfigError(f"the model {path!r} is empty: copy or download it again")
        return
    folder = Path(path).parent
    if not folder.is_dir():
        raise ConfigError(
            f"there is no model at {path!r}, because there is no folder "
            f"{str(folder)!r}: correct the path"
        )
    files = (
        [file.name for file in folder.iterdir() if is_model_file(file)]
        if os.access(folder, os.R_OK)
        else []
    )
    hint = (
        did_you_mean(Path(path).name, files) or "correct the path, or see `edgemeter models list`"
    )
    raise ConfigError(f"there is no model at {path!r}: {hint}")


def sha256(path: str) -> str:
    """Return the SHA-256 of a model, as in its record.

    Raises ConfigError if the file is missing or cannot be read.
    """
    _require_model(path)
    return model_file.sha256(Path(path))


def _check_runtime(case: Case) -> None:
    """Raise ConfigError if the runtime of the case is unknown, or its file is missing."""
    if target := python_target.of_file(case.runtime):
        _ = target.source
        return
    names = list(dict.fromkeys([*runtimes.names(), *generators.names()]))
    if case.runtime not in names:
        raise ConfigError(f"no runtime is called {case.runtime!r}: {near(case.runtime, names)}")


def refusals(
    suite: Suite, machine: Machine = THIS_MACHINE, *, opens: bool = False
) -> dict[int, EdgemeterError]:
    """Return, by indices of cases, why this machine cannot measure them.

    With `opens`, each model and its data are opened once, in a process of its own; otherwise no
    library is imported.
    """
    opened: dict[bytes, EdgemeterError | None] = {}
    refused = {}
    for number, case in enumerate(suite.cases):
        error = _refusal(case, machine)
        if error is None and opens:
            # The length of a run and the number of threads do not matter for opening.
            model = (case.model, case.sha256, case.runtime, case.backend, case.options)
            data = (case.data, case.annotations, case.subset, case.seed)
            identity = msgspec.json.encode((*model, *data, case.output_tokens is None))
            error = opened[identity] = (
                opened[identity] if identity in opened else inspection.why_not(case)
            )
        if error is not None:
            refused[number] = error
    return refused


def by_reason(suite: Suite, refused: Mapping[int, EdgemeterError]) -> list[EdgemeterError]:
    """Return one error for each reason; it names its cases if the suite has others."""
    labels: dict[tuple[type[EdgemeterError], str], dict[str, None]] = {}
    for number, error in refused.items():
        labels.setdefault((type(error), str(error)), {})[suite.cases[number].label] = None
    is_alone = len(labels) == 1 and len(refused) == len(suite.cases)
    return [
        kind(text if is_alone else f"{', '.join(of)}: {text}")
        for (kind, text), of in labels.items()
    ]


def too_many_threads(case: Case) -> ConfigError | None:
    """Return the error of a case with more threads than it may use cores.

    A replay's and a server's threads are another machine's. A power mode may switch cores on: then
    only `cpus` counts.
    """
    cores = len(case.cpus or os.sched_getaffinity(0))
    if (
        case.threads <= cores
        or case.runtime in OF_ANOTHER_MACHINE
        or (case.power_mode and not case.cpus)
    ):
        return None
    machine = f"cpus {','.join(map(str, case.cpus))}" if case.cpus else "this machine"
    return ConfigError(
        f"{case.threads} threads would wait for each other on the {count(cores, 'core')} of "
        f"{machine}: use at most {count(cores, 'thread')}"
    )


def _refusal(case: Case, machine: Machine) -> EdgemeterError | None:
    if error := too_many_threads(case):
        return error
    is_compiled = case.model.endswith(COMPILED)
    if case.runtime == "litert" and is_compiled:
        return ConfigError(
            f"{case.model!r} is compiled for an Edge TPU: measure it with --runtime edgetpu, or "
            "the file before compilation"
        )
    try:
        extra = EXTRAS.get(case.runtime, case.runtime)
        reasons = (
            why_absent(candidates, extra) for candidates in inspection.libraries_of(case.runtime)
        )
        why = next(filter(None, reasons), None)
    except EdgemeterError as error:
        return error
    if why is None and case.runtime == "edgetpu" and not edge_tpus(machine):
        why = (
            "no Edge TPU is attached: plug in a Coral (see `edgemeter doctor`), or measure the "
            "file before compilation with litert"
        )
    return None if why is None else UnavailableError(why)
