"""A model's facts by its runtime, or why it cannot be run, without running it.

They are found in a sandboxed process of its own.
"""

import math
import os
import sys
from pathlib import Path

import msgspec

from edgemeter.agent import generators, runtimes
from edgemeter.agent.base import python_target
from edgemeter.agent.base.errors import (
    ConfigError,
    EdgemeterError,
    MeasurementError,
    UnavailableError,
)
from edgemeter.agent.base.plugins import find_plugin
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.suite import Case
from edgemeter.agent.engine import job
from edgemeter.agent.engine.isolation import ask
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.runtimes.adapter import LibraryCandidate
from edgemeter.agent.sandbox.run_grant import grant_for, is_on_cpu, model_files

# Larger models are not loaded for a check: that takes as long as in a run, and memory that another
# run may need.
TRIED_BYTES = 256_000_000
# The time limit of a check; on a small board the import of a library takes some of it.
TRIED_S = 20.0
# The number of items of the data that are opened.
TRIED_ITEMS = 8
# A replay has no library, a server is another machine's, and the others open an accelerator that
# another run may be using.
NOT_OPENED = ("replay", "server", "served", "edgetpu", "tensorrt")
_NICENESS = 5


class Inspected(msgspec.Struct, frozen=True, tag=True):
    """The answer of the process; None if the model was checked but not loaded."""

    loaded: Loaded | None


def libraries_of(runtime: str) -> list[tuple[LibraryCandidate, ...]]:
    """Return the libraries that the adapter of a runtime or generator names.

    One of each tuple is enough. A runtime in a file has none, because it only runs in a sandbox.
    Raises as `find_plugin`.
    """
    if python_target.of_file(runtime):
        return []
    table, group = (
        (generators.GENERATORS, generators.ENTRY_POINTS)
        if runtime in generators.GENERATORS
        else (runtimes.RUNTIMES, runtimes.ENTRY_POINTS)
    )
    adapter = sys.modules[find_plugin("runtime", table, runtime, group).__module__]
    constants = [value for value in vars(adapter).values() if isinstance(value, tuple) and value]
    return [
        value for value in constants if all(isinstance(part, LibraryCandidate) for part in value)
    ]


def inspect(model: Path, runtime: str) -> Loaded:
    """Return the facts of the model.

    Raises:
        EdgemeterError: the runtime or a library is missing, or the file is broken.
    """
    case = Case(
        model=str(model),
        runtime=runtime,
        repeats=1,
        queries=1,
        seconds=0,
        warm_up_seconds=0,
        idle_seconds=0,
    )
    loaded = _ask(case, "load")
    if loaded is None:
        raise MeasurementError(f"the process that was to load {str(model)!r} only checked it")
    return loaded


def why_not(case: Case) -> EdgemeterError | None:
    """Return why the case cannot be run, as far as opening its model and data shows.

    None if no reason was found.

    The process has a low priority, because another run may be in progress. Models above
    `TRIED_BYTES`, language models and models on an accelerator are not loaded, nor is code: their
    header, their settings and the library's list of backends are checked.
    """
    if case.runtime in NOT_OPENED:
        return None
    try:
        files = {
            path
            for path in (*model_file.parts(Path(case.model)), *model_files(Path(case.model)))
            if path.is_file()
        }
        is_loaded = (
            case.output_tokens is None
            and is_on_cpu(case)
            and sum(path.stat().st_size for path in files) <= TRIED_BYTES
        )
        _ask(case, "load" if is_loaded else "check", TRIED_S)
    except (ConfigError, UnavailableError) as error:
        return error
    except EdgemeterError:
        # It crashed, or takes long: the first run shows why.
        return None
    return None


def _ask(case: Case, how: str, limit_s: float = math.inf) -> Loaded | None:
    return ask(
        "edgemeter.agent.engine.inspection",
        [how],
        job.encode(case),
        Inspected,
        grant_for(case),
        (
            f"the process that loaded {case.model!r} with {case.runtime}",
            "fetch or export it again",
        ),
        limit_s=limit_s,
    ).loaded


def _load(case: Case) -> Inspected:
    # The caller of this process needs none of it.
    from edgemeter.agent.engine import loading  # noqa: PLC0415

    runtime = runtimes.create(case.runtime)
    try:
        model = loading.load_model(case, runtime, TRIED_ITEMS)
        model.calls_of(0, case.seed)
        return Inspected(model.loaded)
    finally:
        runtime.close()


def _check(case: Case) -> Inspected:
    from edgemeter.agent.engine import loading  # noqa: PLC0415 - as above

    is_of_text = case.output_tokens is not None
    subject = generators.create(case.runtime) if is_of_text else runtimes.create(case.runtime)
    subject.check(Path(case.model), loading.options_of(case))
    if not is_of_text:
        loading.open_data(case, TRIED_ITEMS)
    return Inspected(None)


def main() -> None:
    """Load or check (the argument) the model of the case on standard input.

    The answer goes to standard output.
    """
    os.nice(_NICENESS)
    job.answer_one(Case, _check if sys.argv[1] == "check" else _load, job.failure)


if __name__ == "__main__":
    main()
