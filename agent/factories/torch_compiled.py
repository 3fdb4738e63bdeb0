"""PyTorch through `torch.compile`.

Library and options: those of `torch_eager`; and `compiler` (inductor, the default, or another of `torch.compiler.list_backends()`), `mode`
(default, reduce-overhead, max-autotune ...), `dynamic` and `fullgraph` (yes or no), as of `torch.compile`.
inductor on the processor calls a C++ compiler (`sudo apt install g++`). Its cache is in TORCHINDUCTOR_CACHE_DIR, which a sandboxed run has
in its own empty folder: the first query compiles everything. Without a sandbox the cache of earlier runs shortens it.
Facts: `graphs`, `graph_breaks` with `graph_break_reason` (the first one), `recompilations`, `compiled_ns`, and `fell_back` if the limit of
recompilations left calls to eager PyTorch. The rule `recompiled` shows this, and a compilation in the timed part.
Example: `edgemeter run edgemeter.agent.factories.torch_compiled:make --option module=net.py:Net --option input=1x3x224x224 --option
fullgraph=yes`.
Tested with torch 2.13.0 on the CPU (g++ 12.2), and by hand with 2.11.0 on an NVIDIA H200.
"""

import os
import shutil
from importlib import import_module
from typing import Any

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.factories.arguments import mapped, one_of, parse_inputs, parse_switch
from edgemeter.agent.factories.compilations import Compilations
from edgemeter.agent.factories.torch_module import make_module, open_device
from edgemeter.agent.runtimes.python_model import PythonModel

# How Dynamo's counters name that it compiles a function no more, which runs eagerly from then on.
_LIMIT = "recompile limit exceeded"


def make(  # noqa: PLR0913 - an option each
    *,
    module: str,
    input: str,  # noqa: A002
    weights: str | None = None,
    dtype: str = "float32",
    compiler: str = "inductor",
    mode: str | None = None,
    dynamic: str | None = None,
    fullgraph: str = "no",
    backend: str | None = None,
    threads: int = 1,
) -> PythonModel:
    """Return the module, to be compiled by its first call; raises ConfigError, UnavailableError."""
    inputs, device = parse_inputs(input), open_device(backend, dtype, threads)
    one_of("compiler", compiler, device.torch.compiler.list_backends(None))
    if compiler == "inductor" and device.name == "cpu" and shutil.which(os.environ.get("CXX", "g++")) is None:
        raise UnavailableError("torch.compile's inductor calls a C++ compiler, and there is no g++ (nor $CXX): sudo apt install g++")
    network, fields = make_module(device.torch, module, weights)
    is_dynamic = None if dynamic is None else parse_switch("dynamic", dynamic)
    settings = {"backend": compiler, "mode": mode, "dynamic": is_dynamic, "fullgraph": parse_switch("fullgraph", fullgraph)}
    compiled = mapped("torch.compile", lambda: device.torch.compile(device.ready(network), **settings), "change its options")
    counted = _Counted()
    return device.model("compile", network, call=compiled, inputs=inputs, facts=counted.facts, **fields)


class _Counted:
    """The counts of the compiler, from here on."""

    def __init__(self) -> None:
        self._compilations = Compilations()
        self._again = 0
        self._counters: Any = import_module("torch._dynamo.utils").counters
        self._counters.clear()
        import_module("torch._dynamo.callback").callback_handler.register_start_callback(self._begin)

    def _begin(self, started: Any) -> None:
        # The id is FRAME/ATTEMPT; None for what is compiled while a graph runs.
        attempt = (started.compile_id or "0/0").partition("/")[2]
        self._again += attempt.partition("_")[0] not in {"", "0"}
        self._compilations.note()

    def facts(self) -> dict[str, str]:
        """Return the graphs, the breaks between them, and the compilations."""
        breaks = self._counters["graph_break"]
        counts = {
            "graphs": self._counters["stats"]["unique_graphs"],
            "graph_breaks": sum(breaks.values()),
            "recompilations": self._again,
        }
        reason = {"graph_break_reason": next(iter(breaks)).partition("\n")[0]} if breaks else {}
        limits = [text.partition("\n")[0] for kind in ("unimplemented", "graph_break") for text in self._counters[kind] if _LIMIT in text]
        fell_back = {"fell_back": f"{limits[0]}: what it has not compiled runs eagerly"} if limits else {}
        return {name: str(count) for name, count in counts.items()} | reason | fell_back | self._compilations.facts()
