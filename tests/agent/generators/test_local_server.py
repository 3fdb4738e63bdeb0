"""GGUF files behind a server of their own are described, scored and ended cleanly.

The tests check what is stated of a file, what a ruined one scores, and what is left when a run is
killed.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.generators import Limits, create
from edgemeter.agent.runtimes import Options
from tests.fixtures.questions import measure_questions
from tests.fixtures.rows import table_row

LANGUAGE = Path(__file__).resolve().parents[3] / "models" / "language"
MODEL = LANGUAGE / "edgemeter-notes_q8_0.gguf"
CONTEXT = 300
WAITS = """
import sys, time
from pathlib import Path
from edgemeter.agent.generators import create
from edgemeter.agent.runtimes import Options
loaded = create("llama").load(Path(sys.argv[1]), Options(), 300)
print(loaded.process, flush=True)
time.sleep(600)
"""


def until(is_so):
    until_s = time.monotonic() + 10
    while not is_so() and time.monotonic() < until_s:
        time.sleep(0.01)
    assert is_so()


@pytest.fixture
def loaded():
    """Yield a generator that serves the shipped model, and what it states."""
    with closing(create("llama")) as generator:
        yield (
            generator,
            generator.load(
                MODEL, Options(extra={"kv_type": "f32", "flash_attention": "off"}), CONTEXT
            ),
        )


@pytest.mark.services
@pytest.mark.needs(module="xllamacpp")
def test_a_file_is_described_by_its_server(loaded):
    """The server states the file's facts, and its token counts are exact."""
    generator, facts = loaded
    assert (facts.package, facts.backend, facts.precision, facts.parameters) == (
        "xllamacpp",
        "cpu",
        "q8_0",
        262_720,
    )
    assert (
        facts.trained_context_tokens,
        facts.kv_type,
        facts.abilities.counts,
        facts.abilities.is_local,
    ) == (4096, "f32", "exact", True)
    assert "CPU" in facts.facts["system_info"]
    assert not any("127.0.0.1" in fact for fact in facts.facts.values())
    stamps: list[int] = []
    answer = generator.bind([1, *facts.text_tokens[:30].tolist()], Limits(20))(stamps.append)
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens, sum(stamps)) == (
        31,
        20,
        0,
        20,
    )
    with pytest.raises(ConfigError, match="context of 5002"):
        generator.bind([1] * 5000, Limits(2))


@pytest.mark.services
@pytest.mark.needs(module="xllamacpp")
def test_nobody_else_is_answered(loaded, tmp_path):
    """The server requires a key that only the run has."""
    generator, facts = loaded
    sockets = {str(path.readlink()) for path in Path(f"/proc/{facts.process}/fd").iterdir()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (port,) = {
        int(line[1].partition(":")[2], 16)
        for line in lines
        if line[3] == "0A" and f"socket:[{line[9]}]" in sockets
    }
    path = tmp_path / "other.server"
    path.write_text(f'url = "http://127.0.0.1:{port}"\n')
    with pytest.raises(UnavailableError, match="lists no model"):
        create("server").load(path, Options(), CONTEXT)
    assert generator.bind([1, 300], Limits(2))(lambda _: None).output_tokens == 2


@pytest.mark.services
@pytest.mark.needs(module="xllamacpp")
def test_the_server_ends_with_a_process_that_is_killed():
    """The server ends when its process gets SIGKILL, and no child is left."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS, str(MODEL)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        served = Path("/proc") / process.stdout.readline().strip() / "cmdline"
        assert b"llama_child" in served.read_bytes()
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not served.exists() or not served.read_bytes())


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that puts a llama-server on PATH that neither serves nor ends.

    The program prints what it is given and sleeps. The function returns a callable that gives the
    /proc folder of its process.
    """

    def put(says):
        program, number = tmp_path / "llama-server", tmp_path / "number"
        program.write_text(
            f"#!/bin/sh\necho $$ > {number}.new\nmv {number}.new {number}\necho "
            f"{says}\nexec sleep 600\n"
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return lambda: Path("/proc") / (number.read_text().strip() if number.exists() else "none")

    return put


@pytest.mark.services
def test_an_installed_server_that_does_not_generate_is_ended(install):
    """The error names the file, and the server's process is ended."""
    process = install("listening on http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"does not generate from .*notes_q8_0\.gguf"):
        create("llama").load(MODEL, Options(), CONTEXT)
    assert process().name.isdecimal()
    assert not process().exists()


@pytest.mark.services
def test_an_installed_server_ends_with_a_process_that_is_killed(install):
    """The server ends although it does not notice that its input has ended."""
    served = install("loading")
    with subprocess.Popen([sys.executable, "-c", WAITS, str(MODEL)]) as process:
        until(lambda: served().exists())
        process.kill()
        process.wait()
        until(
            lambda: not (served() / "cmdline").exists() or not (served() / "cmdline").read_bytes()
        )


def test_a_file_that_memory_does_not_hold_is_refused(tmp_path):
    """The file is refused before a server is started."""
    path = tmp_path / "large.gguf"
    path.write_bytes(b"GGUF")
    os.truncate(path, 1 << 42)
    with pytest.raises(ConfigError, match=r"needs 4,398,047 MB, .* are free"):
        create("llama").load(path, Options(), CONTEXT)


@pytest.mark.services
@pytest.mark.needs(module="xllamacpp")
def test_a_file_that_is_broken_or_a_setting_that_cannot_be_is_one_line(tmp_path):
    """The line names the file or setting and gives llama.cpp's own reason."""
    model_bytes = MODEL.read_bytes()
    for content, options, match in [
        (model_bytes[:100_000], Options(), "cannot load .*not within the file bounds"),
        (b"GGUF" + bytes(range(256)) * 9, Options(), "cannot load .*version"),
        (
            model_bytes.replace(b"llama", b"xlama", 1),
            Options(),
            "unknown model architecture: 'xlama'",
        ),
        (model_bytes, Options(extra={"kv_type": "q9"}), "has no kv_type 'q9'"),
        (model_bytes, Options(extra={"gpu_layers": "all"}), "gpu_layers is 'all'"),
        (model_bytes, Options(backend="gpu"), "no GPU: install one"),
    ]:
        path = tmp_path / "model.gguf"
        path.write_bytes(content)
        with table_row(match), closing(create("llama")) as generator:
            with pytest.raises((ConfigError, UnavailableError), match=match) as refusal:
                generator.load(path, options, CONTEXT)
            assert "\n" not in str(refusal.value)


@pytest.mark.services
@pytest.mark.needs(module="xllamacpp")
@pytest.mark.needs(module="gguf")
def test_a_quantisation_that_ruins_a_model_scores_lower(tmp_path):
    """A model that keeps only its weights' signs fails; with 4-bit weights most answers stay."""
    import gguf  # noqa: PLC0415 - at collection nothing optional is imported
    import numpy as np  # noqa: PLC0415

    ruined = tmp_path / "edgemeter-notes_ruined.gguf"
    ruined.write_bytes((LANGUAGE / "edgemeter-notes_f16.gguf").read_bytes())
    for tensor in gguf.GGUFReader(ruined, "r+").tensors:
        if tensor.data.dtype == np.float16:
            tensor.data[:] = np.sign(tensor.data) * np.abs(tensor.data).mean()
    models = (LANGUAGE / "edgemeter-notes_f16.gguf", LANGUAGE / "edgemeter-notes_q4_0.gguf", ruined)
    source, quantised, broken = (
        measure_questions(model, questions="edgemeter-questions", queries=3, output_tokens=12)
        for model in models
    )
    assert source.accuracy.value > 0.5
    assert quantised.accuracy.value > 0.5 * source.accuracy.value
    assert broken.accuracy.value < 0.2 * source.accuracy.value
    assert source.accuracy.images == 40
