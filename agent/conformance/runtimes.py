"""Conformance checks for runtimes (the contract: `edgemeter.agent.runtimes.Runtime`)."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.conformance.promise import is_one_line, public_imports, refused, require, require_declared
from edgemeter.agent.conformance.timed_call import require_work_in_the_call
from edgemeter.agent.runtimes import ENTRY_POINTS, RUNTIMES, Array, Loaded, Options, Runtime, create

_NO_MODELS = {
    "absent": None,
    "empty": b"",
    "text": b"this is a note\nabout a model\n",
    "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n",
    "noise": bytes(range(256)) * 64,
}


@dataclass(frozen=True, slots=True)
class RuntimeCase:
    """A runtime, a small model of its format, and what that model computes.

    `inputs` and `outputs` are those of one query. `libraries` are the modules that it imports, one of which is enough. `options` gives
    what is needed to open a file at all. `beside` are files that the model needs beside it, of its name with another suffix.
    `cuts_unnoticed` is how many truncations of the model may go unnoticed, because what was cut off is not computed with.
    `large` is a model that works for 5 ms or more, and its inputs, by which it is seen where the work is done; None where `model` is one.
    """

    name: str
    model: Path
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    libraries: tuple[str, ...] = ()
    options: Callable[[Path], Options] = field(default=lambda _path: Options())
    beside: tuple[Path, ...] = ()
    cuts_unnoticed: int = 0
    large: tuple[Path, tuple[Array, ...]] | None = None


Check = Callable[[RuntimeCase, Path], None]


@contextmanager
def _loaded(case: RuntimeCase) -> Iterator[tuple[Runtime, Loaded]]:
    runtime = create(case.name)
    try:
        yield runtime, runtime.load(case.model, case.options(case.model))
    finally:
        runtime.close()


def _require_outputs(case: RuntimeCase, runtime: Runtime, promise: str) -> None:
    outputs = runtime.outputs()
    require(
        all(isinstance(output, np.ndarray) for output in outputs),
        f"outputs are numpy's arrays, not {sorted({type(output).__name__ for output in outputs})}",
    )
    require(_are_right(case, outputs), f"{promise}: outputs are {_words(outputs)}, {_words(case.outputs)} is right")


def _are_right(case: RuntimeCase, outputs: Sequence[Array]) -> bool:
    return len(outputs) == len(case.outputs) and all(map(np.array_equal, outputs, case.outputs))


def _words(arrays: Sequence[Array]) -> str:
    """Return dtypes and shapes, and the values where they are few."""
    return ", ".join(f"{array.dtype} {list(array.shape)}{f': {array.ravel().tolist()}' if array.size <= 16 else ''}" for array in arrays)


def constructing_imports_no_library(case: RuntimeCase, _folder: Path) -> None:
    """Help, doctor and the engine's parent process create runtimes without paying for their libraries."""
    code = (
        f"import sys; from edgemeter.agent.runtimes import create; create({case.name!r}); "
        f"print(*(name for name in {case.libraries!r} if name in sys.modules))"
    )
    places = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=places)
    require(not completed.stdout.strip(), f"constructing imports {completed.stdout.strip()}: import it in load")


def an_absent_library_is_unavailable(case: RuntimeCase, _folder: Path) -> None:
    """Without its library a runtime says so in one line."""
    if not case.libraries:
        return
    with patch.dict(sys.modules):
        for name in [name for name in sys.modules if name.startswith(tuple(f"{library}." for library in case.libraries))]:
            del sys.modules[name]
        sys.modules.update(dict.fromkeys(case.libraries))  # type: ignore[arg-type]  # None stands for a module that cannot be imported
        runtime = create(case.name)
        with refused("loading without the library", UnavailableError):
            runtime.load(case.model, case.options(case.model))
        runtime.close()


def what_is_no_model_is_refused(case: RuntimeCase, folder: Path) -> None:
    """A missing, empty or foreign file and a folder are a ConfigError that names the path, and close still works."""
    (folder / "directory").mkdir()
    for kind, content in _NO_MODELS.items():
        if content is not None:
            (folder / kind).write_bytes(content)
    for kind in (*_NO_MODELS, "directory"):
        path, runtime = folder / kind, create(case.name)
        with refused(f"loading what is no model ({kind})", ConfigError, mentions=str(path)):
            runtime.load(path, case.options(path))
        runtime.close()
        runtime.close()


def a_cut_model_is_refused_or_whole(case: RuntimeCase, folder: Path) -> None:
    """No truncation ends the process or changes what is computed."""
    content = case.model.read_bytes().rstrip()
    path = folder / f"cut{case.model.suffix}"
    for file in case.beside:
        path.with_suffix(file.suffix).write_bytes(file.read_bytes())
    unnoticed = []
    for length in sorted({*range(1, min(64, len(content))), *range(64, len(content), max(1, len(content) // 200)), len(content) - 1}):
        path.write_bytes(content[:length])
        runtime = create(case.name)
        try:
            runtime.load(path, case.options(path))
            runtime.bind(case.inputs)()
            _require_outputs(case, runtime, f"a model cut after {length} bytes was loaded")
            unnoticed.append(length)
        except ConfigError as error:
            require(is_one_line(error), f"a model cut after {length} bytes: the error has several lines: {error}")
        runtime.close()
    require(len(unnoticed) <= case.cuts_unnoticed, f"cuts after these bytes go unnoticed: {unnoticed}")


def options_that_cannot_be_meant_are_refused(case: RuntimeCase, _folder: Path) -> None:
    """Zero threads and unknown settings are errors of the user, found before any library is imported."""
    for options in (Options(threads=0), Options(extra={"nobody": "knows"})):
        runtime = create(case.name)
        with refused(f"loading with {options}", ConfigError):
            runtime.load(case.model, options)
        runtime.close()


def an_absent_backend_is_an_error(case: RuntimeCase, _folder: Path) -> None:
    """A backend that is asked for is never replaced in silence."""
    runtime = create(case.name)
    with refused("loading on the backend 'nowhere'", ConfigError, UnavailableError, mentions="nowhere"):
        runtime.load(case.model, Options(backend="nowhere"))
    runtime.close()


def load_tells_what_it_found(case: RuntimeCase, _folder: Path) -> None:
    """Package, version, backend, durations, and tensors that fit those of the case."""
    with _loaded(case) as (_, loaded):
        require(loaded.package and loaded.backend, "load tells package and backend")
        require(loaded.version[:1].isdigit(), f"the version {loaded.version!r} begins with a digit")
        require(loaded.import_ns >= 0 and loaded.load_ns > 0, "load tells how long import and load took")
        require(all(info.name for info in loaded.inputs), "every input has a name")
        require_declared(case.inputs, loaded.inputs, "load tells what the inputs are")
        require_declared(case.outputs, loaded.outputs, "load tells what the outputs are")


def the_call_computes_and_outputs_are_copies(case: RuntimeCase, _folder: Path) -> None:
    """Of what was bound last; outputs stay as they are when the call runs again, and changing them changes nothing in the runtime."""
    with _loaded(case) as (runtime, _):
        runtime.bind([np.zeros_like(array) for array in case.inputs])()
        call = runtime.bind(case.inputs)
        call()
        _require_outputs(case, runtime, "the call computes")
        first = runtime.outputs()
        for output in first:
            output[:] = 0
        _require_outputs(case, runtime, "outputs are copies")
        call()
        require(not any(output.any() for output in first), "outputs given out stay when the call runs again")
        _require_outputs(case, runtime, "the call can be repeated")


def the_call_does_the_work(case: RuntimeCase, _folder: Path) -> None:
    """No other does it: neither bind, nor `outputs`, nor a thread that they wait for. Each call does it, and uses no result of another.

    Judged on the case's `large` model, whose work shows: 5 ms or more.
    """
    with _loaded(case) as (runtime, _):
        runtime.bind(case.inputs)
        early: list[Array] = []
        with suppress(Exception):  # nothing is promised of outputs before a call but that they are not there
            early = list(runtime.outputs())
        is_early = any(output.any() for output in case.outputs) and _are_right(case, early)
        require(not is_early, "bind computes nothing: the outputs are there before the call")
    model, inputs = case.large or (case.model, case.inputs)
    runtime = create(case.name)
    try:
        runtime.load(model, case.options(model))
        require_work_in_the_call(runtime, inputs)
    finally:
        runtime.close()


def bind_copies_its_inputs(case: RuntimeCase, _folder: Path) -> None:
    """Changing an array after bind changes nothing."""
    with _loaded(case) as (runtime, _):
        inputs = [array.copy() for array in case.inputs]
        call = runtime.bind(inputs)
        for array in inputs:
            array[:] = 0
        call()
        _require_outputs(case, runtime, "bind copies its inputs")


def bind_takes_arrays_that_are_not_contiguous(case: RuntimeCase, _folder: Path) -> None:
    """A view with strides is taken like any other array."""
    with _loaded(case) as (runtime, _):
        runtime.bind([np.repeat(array, 2, axis=-1)[..., ::2] for array in case.inputs])()
        _require_outputs(case, runtime, "bind takes arrays that are not contiguous")


def bind_refuses_other_inputs(case: RuntimeCase, _folder: Path) -> None:
    """Number, rank, size and dtype are checked."""
    first, further = case.inputs[0], list(case.inputs[1:])
    other = np.int16 if first.dtype != np.int16 else np.float64
    with _loaded(case) as (runtime, loaded):
        is_open = None in loaded.inputs[0].shape
        wrong = {
            "no input": [],
            "one input more": [*case.inputs, first],
            "an axis less": [first[0], *further],
            "another dtype": [first.astype(other), *further],
            **({} if is_open else {"another size": [first[..., :-1], *further]}),
        }
        for fault, inputs in wrong.items():
            with refused(f"binding {fault}", ConfigError):
                runtime.bind(inputs)


def close_may_come_at_any_time(case: RuntimeCase, _folder: Path) -> None:
    """Before load, and twice after it."""
    runtime = create(case.name)
    runtime.close()
    runtime.load(case.model, case.options(case.model))
    runtime.close()
    runtime.close()


def two_do_not_disturb_each_other(case: RuntimeCase, _folder: Path) -> None:
    """Each keeps its own inputs and outputs, also when the other is closed."""
    with _loaded(case) as (runtime, _):
        call = runtime.bind(case.inputs)
        with _loaded(case) as (other, _):
            other.bind([np.zeros_like(array) for array in case.inputs])()
            call()
            _require_outputs(case, runtime, "two of one kind keep their own inputs")
        _require_outputs(case, runtime, "closing another of its kind changes nothing")
        call()


CHECKS: tuple[Check, ...] = (
    public_imports("runtime", RUNTIMES, ENTRY_POINTS, lambda case: case.name),
    constructing_imports_no_library,
    an_absent_library_is_unavailable,
    what_is_no_model_is_refused,
    a_cut_model_is_refused_or_whole,
    options_that_cannot_be_meant_are_refused,
    an_absent_backend_is_an_error,
    load_tells_what_it_found,
    the_call_computes_and_outputs_are_copies,
    the_call_does_the_work,
    bind_copies_its_inputs,
    bind_takes_arrays_that_are_not_contiguous,
    bind_refuses_other_inputs,
    close_may_come_at_any_time,
    two_do_not_disturb_each_other,
)
