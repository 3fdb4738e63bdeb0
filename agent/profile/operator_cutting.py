"""Operators are cut out of a model in the sandbox, since the model may come from anybody; the one-operator models are copied out of it."""

import shutil
import stat
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, one_line
from edgemeter.agent.base.nanoseconds import NS_PER_US
from edgemeter.agent.engine.confinement import model_grant
from edgemeter.agent.engine.isolation import ask
from edgemeter.agent.engine.job import Failed, take_stdout
from edgemeter.agent.profile.operator_models import OperatorModel, cut_slowest, prepare
from edgemeter.agent.profile.profiler import ProfileEvent, RecordedProfile


class CutRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The model to cut, and the folder for what is made of it: `whole.onnx`, and in `cut` its `count` slowest operators.

    `events` and `wall_us` are as in `cut_slowest`; without events only the whole model is written.
    """

    model: str
    folder: str
    events: Sequence[ProfileEvent] = ()
    wall_us: float = 0.0
    count: int = 0


class CutOperators(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The operators that were cut out, slowest first, and why others were not."""

    operators: list[OperatorModel] = []
    left_out: list[str] = []


def cut_in_sandbox(
    model: Path, profile: Callable[[Path], RecordedProfile], count: int, folder: Path
) -> tuple[list[OperatorModel], list[str]]:
    """Write the `count` slowest operators of a model into `folder`, and return them, and why others are not among them.

    `profile` profiles the file with every node named.

    Raises:
        EdgemeterError: the model cannot be read or cut, or not be profiled.
    """
    with tempfile.TemporaryDirectory(prefix="edgemeter-operators-") as name:
        scratch = Path(name)
        request = CutRequest(model=str(model), folder=name)
        _answer(request, scratch)
        recorded = profile(scratch / "whole.onnx")
        wall_us = statistics.median(recorded.profiled_ns) / NS_PER_US
        cut = _answer(msgspec.structs.replace(request, events=recorded.events, wall_us=wall_us, count=count), scratch)
        return [_copied(operator, scratch / "cut", folder) for operator in cut.operators], cut.left_out


def _answer(request: CutRequest, scratch: Path) -> CutOperators:
    model = Path(request.model)
    advice = f"the process that cut operators out of {model.name!r}", "give another ONNX file"
    content = msgspec.json.encode(request)
    return ask("edgemeter.agent.profile.operator_cutting", [], content, CutOperators, model_grant(model, "onnx"), advice, scratch)


def _copied(operator: OperatorModel, written: Path, folder: Path) -> OperatorModel:
    """Copy a file that the sandbox wrote; nothing but a plain file of that folder is believed to be one."""
    source = written / operator.file.name
    if not stat.S_ISREG(source.lstat().st_mode):
        raise ConfigError(f"{operator.file.name!r} is no plain file: the model is not to be trusted")
    return replace(operator, file=Path(shutil.copyfile(source, folder / source.name, follow_symlinks=False)))


def _cut(request: CutRequest) -> CutOperators:
    folder = Path(request.folder)
    prepared = prepare(Path(request.model), folder / "whole.onnx")
    if not request.events:
        return CutOperators()
    (folder / "cut").mkdir()
    operators, left_out = cut_slowest(prepared, request.events, request.wall_us, request.count, folder / "cut")
    return CutOperators(operators=operators, left_out=left_out)


def main() -> None:
    """Carry out the request on standard input, and write the answer to standard output."""
    output = take_stdout()
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=CutRequest)
    answer: CutOperators | Failed
    try:
        answer = _cut(request)
    except EdgemeterError as error:
        answer = Failed(kind=type(error).__name__, message=str(error))
    except Exception as error:  # noqa: BLE001 - the outer loop: a garbled model may make the library raise anything
        answer = Failed(kind="ConfigError", message=f"cannot cut operators out of {request.model!r}: {one_line(error)}")
    with output:
        output.write(msgspec.json.encode(answer, enc_hook=str))


if __name__ == "__main__":
    main()
