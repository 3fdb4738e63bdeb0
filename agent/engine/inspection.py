"""A model's facts as its runtime finds them, without running it: it is loaded in a sandboxed process of its own."""

import subprocess
import sys
from pathlib import Path

import msgspec

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import EdgemeterError, MeasurementError, one_line
from edgemeter.agent.engine import job
from edgemeter.agent.engine.confinement import model_grant
from edgemeter.agent.engine.isolation import ending, error_of, last_line
from edgemeter.agent.runtimes import Loaded
from edgemeter.agent.sandbox.policy import started


class Inspected(msgspec.Struct, frozen=True, tag=True):
    """The answer of the process where the model was loaded."""

    loaded: Loaded


def inspect(model: Path, runtime: str) -> Loaded:
    """Return the facts of the model; raises EdgemeterError if the runtime or a library is missing, or the file is broken."""
    with started(
        "edgemeter.agent.engine.inspection",
        [runtime, str(model)],
        model_grant(model, runtime),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        output, errors = process.communicate()
    try:
        answer = msgspec.json.decode(output, type=Inspected | job.Failed)
    except msgspec.MsgspecError as error:
        failure = f"the process that loaded {str(model)!r} with {runtime} {ending(process.returncode)}"
        raise MeasurementError(f"{failure}: fetch or export it again{last_line(errors, '; its last output: ')}") from error
    if isinstance(answer, job.Failed):
        raise error_of(answer.kind, answer.message)
    return answer.loaded


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
