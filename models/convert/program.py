"""A PyTorch file as an exported program with fixed shapes, from which the other formats are written.

The file has been loaded by the runtime `pytorch` before, which refuses pickles and what else is not data.
TorchScript becomes a program by `TS2EPConverter`, which PyTorch keeps in a private module; there is no public way (2.13).
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgemeter.agent.runtimes import torch_archive
from edgemeter.models.convert.simplify import simplify


@dataclass(frozen=True, slots=True)
class Program:
    """An exported program (torch.export.ExportedProgram), the same as a module, an input for it, and its outputs' names."""

    exported: Any
    module: Any
    example: Any
    outputs: tuple[str, ...]


def load(model: Path, shape: Sequence[int]) -> Program:
    """Return the program in the file, for an input of this shape."""
    import torch  # noqa: PLC0415 - extra `convert`

    from edgemeter.models import export  # noqa: PLC0415 - imports PyTorch

    example = torch.zeros(*shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if torch_archive.read(model).kind == "torchscript":
            from torch._export.converter import TS2EPConverter  # noqa: PLC0415 - extra `convert`

            script = torch.jit.load(str(model), map_location="cpu").eval()
            read = TS2EPConverter(script, (example,)).convert()
        else:
            read = torch.export.load(str(model))
        module = simplify(read.run_decompositions({}).module(check_guards=False), example)
        exported = torch.export.export(export.plain(export.contiguous(module)), (example,))
        whole = export.for_inference(exported.module(check_guards=False))
    return Program(exported, whole, example, output_names(len(exported.graph_signature.user_outputs)))


def output_names(count: int) -> tuple[str, ...]:
    """Return what outputs are called that have no names."""
    return ("output",) if count == 1 else tuple(f"output_{place}" for place in range(count))
