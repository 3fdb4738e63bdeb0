"""A model's facts as its runtime finds them, without running it: it is loaded in a sandboxed process of its own."""

import sys
from pathlib import Path

import msgspec

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import EdgemeterError, one_line
from edgemeter.agent.engine import job
from edgemeter.agent.engine.confinement import model_grant
from edgemeter.agent.engine.isolation import ask
from edgemeter.agent.runtimes import Loaded


class Inspected(msgspec.Struct, frozen=True, tag=True):
    """The answer of the process where the model was loaded."""

    loaded: Loaded


def inspect(model: Path, runtime: str) -> Loaded:
    """Return the facts of the model; raises EdgemeterError if the runtime or a library is missing, or the file is broken."""
    advice = f"the process that loaded {str(model)!r} with {runtime}", "fetch or export it again"
    return ask("edgemeter.agent.engine.inspection", [runtime, str(model)], b"", Inspected, model_grant(model, runtime), advice).loaded


def main() -> None:
    """Load the model that the arguments name, and write what was found to standard output."""
    output = job.take_stdout()
    name, model = sys.argv[1:]
    answer: Inspected | job.Failed
    try:
        runtime = runtimes.create(name)
        try:
            answer = Inspected(runtime.load(Path(model), runtimes.Options()))
        finally:
            runtime.close()
    except EdgemeterError as error:
        answer = job.Failed(kind=type(error).__name__, message=str(error))
    except Exception as error:  # noqa: BLE001 - the outer loop, as in the process that measures
        answer = job.Failed(kind="MeasurementError", message=f"{name} failed on {model!r}: {one_line(error)}")
    with output:
        output.write(msgspec.json.encode(answer))


if __name__ == "__main__":
    main()
