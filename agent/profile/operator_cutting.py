"""Operators are cut out of a model in the sandbox, since the model may come from anybody; the one-operator models are copied out of it."""

import shutil
import stat
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import msgspec

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, one_line
from edgemeter.agent.base.nanoseconds import NS_PER_US
from edgemeter.agent.engine.confinement import model_grant
from edgemeter.agent.engine.isolation import ask
from edgemeter.agent.engine.job import Failed, answer_one
from edgemeter.agent.profile.operator_models import Cutter, OperatorModel, Shape
from edgemeter.agent.profile.profiler import ProfileEvent, RecordedProfile
from edgemeter.agent.profile.report import inference_times

# What a runtime adds below this share of the time is not worth a line.
LEAST_NAMED_RATIO = 0.005


@dataclass(frozen=True, slots=True)
class OperatorFormat:
    """The module that cuts models of a format (`open_model`, `write_shape`), and the settings whose profiler names its operators."""

    module: str
    profiled_by: Mapping[str, str]
    has_int8: bool = True


# By the ending of a model's name.
FORMATS: Mapping[str, OperatorFormat] = {
    ".onnx": OperatorFormat("edgemeter.agent.profile.onnx_operators", {"runtime": "onnx"}),
    ".pt2": OperatorFormat("edgemeter.agent.profile.torch_operators", {"runtime": "pytorch"}, has_int8=False),
    ".tflite": OperatorFormat("edgemeter.agent.profile.tflite_operators", {"runtime": "litert", "backend": "builtin"}),
}


class CutRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The model to cut, and the folder for what is made of it: `whole` with its ending, and in `cut` its `count` slowest operators.

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

    `profile` profiles the file with every operator named, by the settings of `FORMATS`.

    Raises:
        EdgemeterError: the model cannot be read or cut, or not be profiled.
    """
    if model.suffix.lower() not in FORMATS:
        endings = ", ".join(FORMATS)
        raise ConfigError(f"operators are cut out of {endings} files, {str(model)!r} is none: convert it first (edgemeter models convert)")
    with tempfile.TemporaryDirectory(prefix="edgemeter-operators-") as name:
        scratch = Path(name)
        request = CutRequest(model=str(model), folder=name)
        _answer(request, scratch)
        recorded = profile(scratch / f"whole{model.suffix.lower()}")
        wall_us = statistics.median(recorded.profiled_ns) / NS_PER_US
        cut = _answer(msgspec.structs.replace(request, events=recorded.events, wall_us=wall_us, count=count), scratch)
        return [_copied(operator, scratch / "cut", folder) for operator in cut.operators], cut.left_out


def write_shapes(shapes: Sequence[Shape], suffix: str, folder: Path) -> list[OperatorModel]:
    """Write the operators of a list that a format has as models; raises UnavailableError if its package is not installed."""
    write = import_module(FORMATS[suffix].module).write_shape
    return [write(shape, folder) for shape in shapes if FORMATS[suffix].has_int8 or shape.precision != "int8"]


def _answer(request: CutRequest, scratch: Path) -> CutOperators:
    model = Path(request.model)
    advice = f"the process that cut operators out of {model.name!r}", "give another file"
    content = msgspec.json.encode(request)
    return ask("edgemeter.agent.profile.operator_cutting", [], content, CutOperators, model_grant(model, "cpu"), advice, scratch)


def _copied(operator: OperatorModel, written: Path, folder: Path) -> OperatorModel:
    """Copy a file that the sandbox wrote; nothing but a plain file of that folder is believed to be one."""
    source = written / operator.file.name
    if not stat.S_ISREG(source.lstat().st_mode):
        raise ConfigError(f"{operator.file.name!r} is no plain file: the model is not to be trusted")
    return replace(operator, file=Path(shutil.copyfile(source, folder / source.name, follow_symlinks=False)))


def _cut(request: CutRequest) -> CutOperators:
    folder, model = Path(request.folder), Path(request.model)
    suffix = model.suffix.lower()
    cutter: Cutter = import_module(FORMATS[suffix].module).open_model(model, folder / f"whole{suffix}")
    if not request.events:
        return CutOperators()
    (folder / "cut").mkdir()
    operators, left_out = cut_slowest(cutter, request.events, request.wall_us, request.count, folder / "cut")
    return CutOperators(operators=operators, left_out=left_out)


def cut_slowest(
    cutter: Cutter, events: Sequence[ProfileEvent], wall_us: float, count: int, folder: Path
) -> tuple[list[OperatorModel], list[str]]:
    """Write the `count` slowest operators as models; return them, slowest first, and why others of the slowest are not among them.

    `events` are those of the runtime's profiler, `wall_us` the median time of its inferences; an operator's time is its median in one. Time
    spent in what the runtime fused to another kind of operator, or added, belongs to no node.
    """
    spent: dict[int, float] = {}
    unnamed_us: dict[str, float] = {}
    node_of = cutter.nodes_of(events)
    for (node, kind), us in inference_times(events, lambda event: (node_of(event), event.type)).items():
        if node is None:
            unnamed_us[kind] = statistics.median(us)
        else:
            spent[node] = spent.get(node, 0.0) + statistics.median(us)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for node in sorted(spent):
        groups[cutter.signature(node)].append(node)
    cut: list[OperatorModel] = []
    left_out: list[str] = []
    for nodes in sorted(groups.values(), key=lambda nodes: -sum(spent[node] for node in nodes)):
        ratio = sum(spent[node] for node in nodes) / wall_us
        if len(cut) == count:
            break
        if reason := cutter.obstacle(nodes[0]):
            left_out.append(f"{cutter.describe(nodes[0])} ({ratio:.1%} of the time): {reason}")
            continue
        cut.append(cutter.write(nodes, ratio, folder))
    if (unnamed := sum(unnamed_us.values()) / wall_us) >= LEAST_NAMED_RATIO:
        kinds = ", ".join(sorted(unnamed_us, key=lambda kind: -unnamed_us[kind])[:4])
        left_out.append(f"what the runtime fused or added itself ({kinds}): {unnamed:.1%} of the time")
    return cut, left_out


def main() -> None:
    """Carry out the request on standard input, and write the answer to standard output."""
    answer_one(CutRequest, _cut, _failed, as_text=str)


def _failed(error: BaseException, request: CutRequest) -> Failed:
    if isinstance(error, EdgemeterError):
        return Failed(kind=type(error).__name__, message=str(error))
    # A garbled model may make the library raise anything.
    return Failed(kind="ConfigError", message=f"cannot cut operators out of {request.model!r}: {one_line(error)}")


if __name__ == "__main__":
    main()
