"""Cases that cannot be measured on this machine, which is known before the first run: no library, no accelerator, a broken file."""

from collections.abc import Mapping, Sequence

import msgspec

from edgemeter.agent import generators, runtimes, tasks
from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.agent.base.suggestions import near
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.suite import Case, Suite
from edgemeter.agent.engine import inspection
from edgemeter.agent.machine.attached import edge_tpus
from edgemeter.agent.machine.machine import THIS_MACHINE, Machine
from edgemeter.agent.runtimes.adapter import why_absent
from edgemeter.agent.verdict import output_rules

# Extras that are not called as their runtime.
EXTRAS = {"edgetpu": "coral", "pytorch": "torch"}
# How the compiler of Coral names its files.
COMPILED = "_edgetpu.tflite"


# A case without a record after so many runs is measured no more.
FAILURES = 2
_WRONG_OUTPUTS = {rule.name for rule in output_rules.RULES if rule.effect == "invalid"}


def has_failed(outcomes: Sequence[object]) -> bool:
    """Return whether a case with these outcomes is measured no more: one is an error that stays, or all of two runs or more failed."""
    if any(isinstance(outcome, ConfigError | UnavailableError) for outcome in outcomes):
        return True
    return len(outcomes) >= FAILURES and all(isinstance(outcome, EdgemeterError) for outcome in outcomes)


def is_worthless(outcome: object) -> bool:
    """Return whether a run is invalid for what the model predicts: its repeats, which are not scored, would not show it."""
    return isinstance(outcome, RunRecord) and not _WRONG_OUTPUTS.isdisjoint(outcome.verdict.rules)


def check_runtime(case: Case) -> None:
    """Raise ConfigError if no runtime is called as the case says, or there is no file of one that it names."""
    if target := python_target.of_file(case.runtime):
        _ = target.source
        return
    names = list(dict.fromkeys([*runtimes.names(), *generators.names()]))
    if case.runtime not in names:
        raise ConfigError(f"no runtime is called {case.runtime!r}: {near(case.runtime, names)}")


def check_task(case: Case) -> None:
    """Raise ConfigError if no task is called as the case says."""
    if case.task and case.task not in tasks.names() and not python_target.of_file(case.task):
        raise ConfigError(f"no task is called {case.task!r}: {near(case.task, tasks.names())}")


def refusals(suite: Suite, machine: Machine = THIS_MACHINE, *, opens: bool = False) -> dict[int, EdgemeterError]:
    """Return by its place in the suite why this machine cannot measure a case.

    Imports no library and opens no model, unless it `opens` each once, with its data, in a process of its own.
    """
    opened: dict[bytes, EdgemeterError | None] = {}
    refused = {}
    for number, case in enumerate(suite.cases):
        error = _refusal(case, machine)
        if error is None and opens:
            # Another length of a run, or number of threads, opens the same.
            model = (case.model, case.sha256, case.runtime, case.backend, case.options)
            data = (case.data, case.annotations, case.subset, case.seed)
            identity = msgspec.json.encode((*model, *data, case.output_tokens is None))
            error = opened[identity] = opened[identity] if identity in opened else inspection.why_not(case)
        if error is not None:
            refused[number] = error
    return refused


def by_reason(suite: Suite, refused: Mapping[int, EdgemeterError]) -> list[EdgemeterError]:
    """Return one error for each reason, which names its cases where the suite has others."""
    labels: dict[tuple[type[EdgemeterError], str], dict[str, None]] = {}
    for number, error in refused.items():
        labels.setdefault((type(error), str(error)), {})[suite.cases[number].label] = None
    is_alone = len(labels) == 1 and len(refused) == len(suite.cases)
    return [kind(text if is_alone else f"{', '.join(of)}: {text}") for (kind, text), of in labels.items()]


def _refusal(case: Case, machine: Machine) -> EdgemeterError | None:
    is_compiled = case.model.endswith(COMPILED)
    if case.runtime == "litert" and is_compiled:
        return ConfigError(f"{case.model!r} is compiled for an Edge TPU: measure it with --runtime edgetpu, or the file before compilation")
    try:
        extra = EXTRAS.get(case.runtime, case.runtime)
        reasons = (why_absent(candidates, extra) for candidates in inspection.libraries_of(case.runtime))
        why = next(filter(None, reasons), None)
    except EdgemeterError as error:
        return error
    if why is None and case.runtime == "edgetpu" and not edge_tpus(machine):
        why = "no Edge TPU is attached: plug in a Coral (see `edgemeter doctor`), or measure the file before compilation with litert"
    return None if why is None else UnavailableError(why)
