"""Facts about an installation by one line.

A command whose extra is missing names it, and the first steps need no broker.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter.agent import runtimes
from edgemeter.agent.base.plugins import CPU_FIRST, install_command
from edgemeter.agent.engine.inspection import libraries_of
from edgemeter.agent.session import checks
from tests.fixtures.environments import Environments
from tests.fixtures.rows import table_row

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
# Extras that a message, a page or a call of `import_extra` names.
NAMED = re.compile(
    r'edgemeter\[([a-z0-9,-]+)\]|import_extra\("[\w.]+", "(\w+)"|require_extra\("(\w+)"'
)
# In an environment with `litert` alone: a command, and the extra that its one line of error names.
REFUSED = {
    "report": "report",
    "collector demo --output page.html": "report",
    "collector web": "collector",
    "collector up": "collector",
    "runs bundle key lab.key": "sign",
    "run model.tflite --bundle results --config signing.toml": "sign",
    "run model.onnx": "onnx",
    "models convert model.torchscript --to litert-fp32": "convert",
    "fleet --folder fleet init --broker broker.example": "sign",
    "trend --ledger postgresql://lab@db.example/edgemeter": "postgres",
}


def test_every_extra_that_is_named_exists():
    """Every extra that code or pages name exists, so that renaming one changes its messages."""
    files = [
        path
        for folder in ("agent", "collector", "models", "provisioning", "docs")
        for path in (ROOT / folder).rglob("*.*")
    ]
    sources = [
        path
        for path in (*files, ROOT / "README.md", ROOT / "action.yml")
        if path.suffix in {".py", ".md", ".toml", ".yml", ".Dockerfile"}
    ]
    named = {
        (path.name, extra)
        for path in sources
        for pair in NAMED.findall(path.read_text())
        for extra in "".join(pair).split(",")
    }
    assert {extra for _, extra in named} >= {"sign", "report", "collector", "vision", "convert"}
    assert [pair for pair in named if pair[1] not in EXTRAS] == []


def test_the_extra_of_each_runtime_exists():
    """The extra of each runtime exists, as messages and releases for boards name it."""
    brought = {checks.EXTRAS.get(name, name) for name in runtimes.RUNTIMES if libraries_of(name)}
    assert brought >= {"vision", "coral", "torch"}
    assert brought <= EXTRAS


def test_pytorch_comes_without_cuda_where_no_nvidia_driver_is(tmp_path):
    """Without the NVIDIA driver the message advises to install PyTorch's CPU build first.

    On a machine with the driver, the package index's own build is named.
    """
    assert (
        install_command("torch", tmp_path / "absent")
        == f"pip install 'edgemeter[torch]'{CPU_FIRST}"
    )
    assert install_command("torch", tmp_path) == "pip install 'edgemeter[torch]'"
    assert install_command("sign", tmp_path / "absent") == "pip install 'edgemeter[sign]'"


def test_an_extra_that_no_package_of_it_fits_names_what_does():
    """An extra without a package for this machine names the machine that has one.

    The markers of the installed distribution decide: it may need another Python, or a 64-bit
    system. An extra that brings something is named as usual.
    """
    for extra, python, machine, words in (
        ("llama", (3, 12), "armv7l", "a 64-bit system, and there "),
        ("tflite", (3, 10), "armv7l", ""),
        ("report", (3, 10), "armv7l", ""),
    ):
        assert (
            install_command(extra, python=python, machine=machine)
            == f"{words}pip install 'edgemeter[{extra}]'"
        ), extra


@pytest.fixture(scope="module")
def edgemeter(tmp_path_factory):
    """Return a function that runs a command where only the extra `litert` is installed.

    It runs in a folder with the models that ship, and with a home of its own.
    """
    folder = tmp_path_factory.mktemp("extras")
    programs = Environments(folder).programs("litert")
    (folder / "work").mkdir()
    (folder / "work" / "signing.toml").write_text('signing_key_file = "lab.key"')
    for suffix in ("tflite", "onnx", "torchscript"):
        (folder / "work" / f"model.{suffix}").write_bytes(
            (ROOT / "models" / "shipped" / f"edgemeter-shapes_fp32.{suffix}").read_bytes()
        )

    def run(arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "HOME": str(folder),
            "EDGEMETER_RUN_LOCK": "run.lock",
            "COLUMNS": "150",
        }
        command = [programs / "edgemeter", *arguments.split()]
        return subprocess.run(
            command,
            cwd=folder / "work",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=590,
        )

    return run


@pytest.mark.packaging
@pytest.mark.nightly
def test_a_command_whose_extra_is_missing_names_the_line_that_installs_it(edgemeter):
    """A missing extra gives one line before anything is measured, written or asked of a network."""
    assert edgemeter("run model.tflite --mode rapid --repeats 1").returncode == 0
    for command, extra in REFUSED.items():
        with table_row(command):
            completed = edgemeter(command)
            assert completed.returncode == 1
            assert f"pip install 'edgemeter[{extra}]'" in completed.stderr.splitlines()[-1]
            assert "timed" not in completed.stderr


@pytest.mark.packaging
@pytest.mark.nightly
def test_the_demo_shows_its_table_without_broker_and_page(edgemeter):
    """The demo shows its table with a runtime alone, without broker and page.

    The parts left out are named with their install lines, and the runs are in a ledger.
    """
    completed = edgemeter("collector demo")
    assert completed.returncode == 0, completed.stderr
    assert all(
        f"pip install 'edgemeter[{extra}]'" in completed.stderr for extra in ("collector", "report")
    )
    assert "reference" in completed.stdout
    assert "records are stored in" in completed.stderr
