"""The process that runs the reference: the same model on other kernels, with inputs from a folder; outputs go to the same folder.

It is a separate process because reference kernels may be far too slow, lack an operator or exhaust the memory, none of which may cost
the run that has just been measured. The session starts it, in a sandbox like that of the run.
"""

import itertools
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from edgemeter.agent import runtimes
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.runtimes import Array

REQUEST, PACKAGE = "request.json", "package.txt"


class ReferenceRequest(msgspec.Struct, frozen=True):
    """The model to run, and how."""

    model: str
    runtime: str
    backend: str
    threads: int
    options: dict[str, str]


def write_request(folder: Path, request: ReferenceRequest, inputs: Sequence[list[Array]]) -> None:
    """Write what to run, and the inputs of each query, to the folder."""
    (folder / REQUEST).write_bytes(msgspec.json.encode(request))
    for index, arrays in enumerate(inputs):
        write_arrays(arrays_file(folder, "inputs", index), arrays)


def read_answer(folder: Path, queries: int) -> tuple[str, list[list[Array] | None]]:
    """Return the package that ran, empty where nothing did, and the outputs of each query, None where they are absent."""
    outputs = [read_arrays(arrays_file(folder, "outputs", index)) for index in range(queries)]
    return (folder / PACKAGE).read_text(encoding="utf-8") if any(arrays is not None for arrays in outputs) else "", outputs


def write_arrays(path: Path, arrays: list[Array]) -> None:
    """Write arrays to a file that appears only when it is complete."""
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez(file, *arrays)
    part.rename(path)


def read_arrays(path: Path) -> list[Array] | None:
    """Return the arrays of a file in their order, None where it is absent."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return [archive[f"arr_{index}"] for index in range(len(archive.files))]
    except (OSError, zipfile.BadZipFile):
        return None


def arrays_file(folder: Path, kind: Literal["inputs", "outputs"], index: int) -> Path:
    """Return the file of the inputs or outputs of query `index`."""
    return folder / f"{kind}_{index}.npz"


def main(folder: Path) -> int:
    """Run the request in the folder, query by query, and return the exit status."""
    request = msgspec.json.decode((folder / REQUEST).read_bytes(), type=ReferenceRequest)
    runtime = runtimes.create(request.runtime)
    try:
        loaded = runtime.load(Path(request.model), runtimes.Options(request.threads, request.backend, request.options))
        (folder / PACKAGE).write_text(f"{loaded.package} {loaded.version}", encoding="utf-8")
        for index in itertools.count():
            inputs = read_arrays(arrays_file(folder, "inputs", index))
            if inputs is None:
                break
            runtime.bind(inputs)()
            write_arrays(arrays_file(folder, "outputs", index), runtime.outputs())
    except EdgemeterError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        runtime.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
