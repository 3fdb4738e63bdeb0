"""Facts about packaging.

The wheel holds the whole code, and each extra installs and works alone.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from tests.fixtures.environments import build_wheel, copy_source, install

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = ("agent", "collector", "models", "provisioning")
EXTRAS = PROJECT["project"]["optional-dependencies"]
# `dev` is what these tests run in; `tensorrt` is gigabytes of libraries for an NVIDIA GPU, and its
# part is played in its own tests.
NOT_ALONE = {"dev", "tensorrt"}


def in_wheel(name: str) -> str:
    """Return where the wheel has a file of the tree; `src/edgemeter` is the package itself."""
    return f"edgemeter/{name.removeprefix('src/edgemeter/')}"


def test_every_folder_with_code_is_a_package():
    """Every folder with code has `__init__.py`, or it would silently be left out of the wheel."""
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert all((folder / "__init__.py").exists() for folder in folders)


@pytest.fixture(scope="session")
def source(tmp_path_factory) -> Path:
    return copy_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="session")
def wheel(source, tmp_path_factory) -> Path:
    return build_wheel(source, tmp_path_factory.mktemp("wheel"))


@pytest.mark.packaging
def test_the_wheel_holds_every_module_and_data_file(wheel):
    """The wheel has every file that git tracks below the packages, and the two schemas."""
    command = ["git", "ls-files", *PACKAGES, "src"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    tracked = [name for name in output.split() if not (ROOT / name).is_symlink()]
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        reference = {
            name.rpartition("/")[2]: archive.read(name).decode()
            for name in names - set(map(in_wheel, tracked))
        }
    assert set(map(in_wheel, tracked)) < names
    assert set(reference) == {"record.schema.json", "messages.schema.json"}
    assert "RunRecord" in json.loads(reference["record.schema.json"])["$defs"]
    assert "Receipt" in json.loads(reference["messages.schema.json"])["$defs"]
    assert wheel.stat().st_size < 12_000_000


@pytest.mark.packaging
@pytest.mark.services
def test_the_source_distribution_builds_the_same_wheel(source, wheel, tmp_path):
    """The source distribution builds the wheel that we built."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path]
    subprocess.run([*command, "--sdist", source], check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    subprocess.run([*command, "--wheel", unpacked], check=True, capture_output=True)
    (built,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(built) as rebuilt, zipfile.ZipFile(wheel) as other:
        assert rebuilt.namelist() == other.namelist()


# Distributions that run models on a board and must have a wheel for it.
ON_BOARDS = {
    "litert": "ai-edge-litert",
    "onnx": "onnxruntime",
    "llama": "xllamacpp",
}


@pytest.mark.packaging
@pytest.mark.nightly
@pytest.mark.parametrize("extra", sorted(ON_BOARDS))
def test_an_extra_resolves_to_wheels_for_64_bit_boards(extra, wheel, tmp_path):
    """An extra resolves to wheels on Debian 12 for aarch64, with Python 3.11 and glibc 2.36.

    A board has no compiler, so that a source distribution counts as nothing.
    """
    platforms = [
        word
        for glibc in (17, 27, 28, 34)
        for word in ("--platform", f"manylinux_2_{glibc}_aarch64")
    ]
    resolve = [
        "install",
        "--dry-run",
        "--quiet",
        "--ignore-installed",
        "--only-binary",
        ":all:",
        "--python-version",
        "3.11",
        *platforms,
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        *resolve,
        "--target",
        tmp_path / "target",
        "--report",
        tmp_path / "report.json",
    ]
    subprocess.run([*command, f"{wheel}[{extra}]"], check=True, timeout=1200)
    resolved = json.loads((tmp_path / "report.json").read_text())["install"]
    urls = {
        package["metadata"]["name"].replace("_", "-"): package["download_info"]["url"]
        for package in resolved
    }
    assert urls[ON_BOARDS[extra]].endswith("_aarch64.whl")


def ran(program: Path, *arguments: object, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "EDGEMETER_HOME": str(home), "COLUMNS": "200"}
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        cwd=home,
        env=environment,
    )


def shipped(program: Path, ending: str) -> Path:
    """Return the shipped fp32 model with this ending, in the program's own environment."""
    (model,) = program.parent.parent.glob(
        f"lib/python*/site-packages/edgemeter/models/shipped/*fp32{ending}"
    )
    return model


def measures(ending: str, program: Path, home: Path) -> None:
    """Measure a shipped model, and find its accuracy."""
    model = shipped(program, ending)
    scenes = model.parent.parent / "scenes"
    data = ("--data", scenes / "images", "--annotations", scenes / "annotations.json")
    completed = ran(
        program,
        "run",
        model,
        *data,
        "--mode",
        "rapid",
        "--repeats",
        1,
        "--format",
        "json",
        home=home,
    )
    assert completed.returncode == 0, completed.stderr
    (record,) = json.loads(completed.stdout)["runs"]
    assert record["accuracy"]["value"] >= 0.6


def says(command: str, text: str, program: Path, home: Path, status: int = 0) -> None:
    """Run a command that must end with a status and print a text."""
    completed = ran(program, *command.split(), home=home)
    assert completed.returncode == status, completed.stderr
    assert text in completed.stdout


def imports(module: str, program: Path, home: Path) -> None:
    """Import the extra's library, and run `doctor`.

    For `doctor` it is a fault if no model can run.
    """
    subprocess.run(
        [program.parent / "python", "-c", f"import {module}"],
        check=True,
        capture_output=True,
        cwd=home,
    )
    doctor = ran(program, "doctor", home=home)
    assert doctor.returncode == ("no model can run" in doctor.stdout)


def generates(model: str, program: Path, home: Path) -> None:
    """Measure the shipped language model, by a name of it."""
    lengths = ("--prompt-tokens", 40, "--output-tokens", 8)
    completed = ran(
        program,
        "run",
        model,
        *lengths,
        "--mode",
        "rapid",
        "--repeats",
        1,
        "--format",
        "json",
        home=home,
    )
    assert completed.returncode == 0, completed.stderr
    (record,) = json.loads(completed.stdout)["runs"]
    assert record["generation"]["decode_tokens_per_s"] > 0


SMOKE = {
    "": partial(says, "doctor", "no model can run", status=1),
    "vision": partial(imports, "PIL"),
    "video": partial(imports, "cv2"),
    "litert": partial(measures, ".tflite"),
    "tflite": partial(measures, ".tflite"),
    "coral": partial(measures, ".tflite"),
    "onnx": partial(measures, ".onnx"),
    "torch": partial(measures, ".torchscript"),
    "openvino": partial(imports, "openvino"),
    "ncnn": partial(imports, "ncnn"),
    "executorch": partial(imports, "executorch.extension.pybindings._C"),
    "llama": partial(generates, "edgemeter-notes_q4_0.gguf"),
    # Their libraries are the vendor's own, or for boards only: what comes is what reads
    # photographs.
    "jtop": partial(imports, "jtop"),
    "nvidia": partial(says, "energy sensors --all", "nvml: no NVIDIA driver answers"),
    "serial": partial(imports, "serial"),
    "joulescope": partial(says, "energy sensors --all", "joulescope: no Joulescope is connected"),
    "influx": partial(imports, "influxdb_client"),
    "postgres": partial(imports, "psycopg"),
    "report": partial(says, "report --help", "Example"),
    "collector": partial(says, "collector up --help", "--influx"),
    # The whole way is gone by `make demo`, for which this extra alone is installed.
    "demo": partial(says, "collector demo --help", "Example"),
    "sign": partial(says, "runs bundle key --help", "Example"),
    "convert": partial(says, "models convert --help", "Example"),
}


def test_every_extra_has_a_smoke_run():
    """Every extra has a smoke run, because one that nothing installs is not known to work."""
    assert set(SMOKE) - {""} == set(EXTRAS) - NOT_ALONE


@pytest.mark.packaging
@pytest.mark.parametrize("extra", SMOKE)
@pytest.mark.nightly
def test_an_extra_installs_alone_and_works(wheel, tmp_path, extra):
    """Each extra works when it alone is installed from the wheel into an empty environment."""
    if extra in ("torch", "convert") and "torch" not in os.environ.get("EDGEMETER_MUST_RUN", ""):
        pytest.skip("torch is large: runs where EDGEMETER_MUST_RUN names torch")
    program = install(tmp_path / "env", wheel, extra)
    assert ran(program, "--help", home=tmp_path).returncode == 0
    SMOKE[extra](program, tmp_path)
