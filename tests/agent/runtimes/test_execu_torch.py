"""ExecuTorch runs repeatedly and reports its delegates; broken files are refused.

Threads, and what a program was exported for, are tested too.
"""

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.execu_torch import ExecuTorch

pytestmark = [pytest.mark.torch, pytest.mark.needs(module="executorch")]
RUNTIME = ExecuTorch


def test_a_second_execution_computes_on_the_same_inputs(runtime, models, x):
    """The program overwrites its input, so each execution gets its inputs again.

    Without new inputs the second execution gives 7, 15, 23, 31.
    """
    runtime.load(models / "executorch_reuses_input.pte", Options())
    call = runtime.bind([x])
    for _ in range(3):
        call()
        np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
    runtime._method.execute()
    assert not np.array_equal(runtime.outputs()[0], [[1, 3, 5, 7]]), (
        "the fixture no longer shows what it is for"
    )


def test_the_backend_is_what_the_program_was_exported_for(runtime, models):
    """A backend that differs from the file's is refused.

    A program without a partitioner is slow, and nothing else would show it.
    """
    assert runtime.load(models / "executorch.pte", Options(backend="xnnpack")).backend == "xnnpack"
    runtime.close()
    assert runtime.load(models / "executorch_portable.pte", Options()).backend == "portable"
    runtime.close()
    with pytest.raises(ConfigError, match="exported for portable, not for 'xnnpack'"):
        runtime.load(models / "executorch_portable.pte", Options(backend="xnnpack"))


def test_what_this_build_cannot_load_is_refused(runtime, models, tmp_path):
    """A program for another backend, such as a phone's GPU, and a truncated one are tested."""
    content = (models / "executorch.pte").read_bytes()
    for name, changed in (
        ("other", content.replace(b"XnnpackBackend", b"AnotherBackend")),
        ("cut", content[:400]),
    ):
        (tmp_path / f"{name}.pte").write_bytes(changed)
        with pytest.raises(ConfigError, match="cannot load"):
            runtime.load(tmp_path / f"{name}.pte", Options())


def test_a_method_that_is_not_there_is_refused_with_those_that_are(runtime, models):
    """Methods are named as in the program."""
    with pytest.raises(
        ConfigError, match=r"has no method 'encode': choose one of forward \(setting method\)"
    ):
        runtime.load(models / "executorch.pte", Options(extra={"method": "encode"}))


def test_threads_are_set_and_not_under_a_running_program(runtime, models):
    """Replacing the pool under a loaded program would free memory that XNNPACK still uses."""
    loaded = runtime.load(models / "executorch.pte", Options(threads=2))
    other = ExecuTorch()
    with pytest.raises(UnavailableError, match="on 2 threads, not 1: close that one first"):
        other.load(models / "executorch.pte", Options(threads=1))
    runtime.close()
    assert other.load(models / "executorch.pte", Options(threads=1)).backend == loaded.backend
    other.close()
