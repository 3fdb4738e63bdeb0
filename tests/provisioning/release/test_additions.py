"""Facts about what is added to a release: a vendor's wheels with hashes, places to find them, the system's Python packages."""

import json
import platform
import shutil
import subprocess
import sys

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.cli.release import build as build_command
from edgemeter.provisioning.release import additions, boards, install
from tests.fixtures import small_release
from tests.fixtures.certificates import Authority
from tests.fixtures.file_server import FileServer
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs("openssl")

CP = f"cp{sys.version_info.major}{sys.version_info.minor}"
HERE = f"linux_{platform.machine()}"
# As NVIDIA's onnxruntime_gpu brings it, here a text.
CUDA = {"onnxruntime/__init__.py": "MAKER = 'a vendor'\n", "onnxruntime/capi/libonnxruntime_providers_cuda.so": "CUDA"}


@pytest.fixture
def build(releases, tmp_path, monkeypatch, pip_finds):
    """Return a function that builds a release for this machine with options, from the wheels of the fixture alone."""
    pip_finds(releases.folder / "packed")
    monkeypatch.chdir(tmp_path)
    target = small_release.this_target()
    own_wheel = small_release.edgemeter_wheel(tmp_path, "3.1")
    fixed = ["--board", "pc" if target.arch == "x86_64" else "arm64", "--python", target.python_text, "--glibc", target.glibc_text,
             "--extras", "", "--signing-key-file", releases.key, "--output", tmp_path / "made.tar"]  # fmt: skip

    def run(*options, wheel=own_wheel):
        return CliRunner().invoke(
            build_command, [str(argument) for argument in (*fixed, "--wheel", wheel, *options)], catch_exceptions=False
        )

    return run


def vendor_wheel(folder, tag=f"{CP}-{CP}-{HERE}", name="onnxruntime_gpu", files=None, needs=()):
    """Return a wheel as a vendor makes it: for one Python and platform, and not on the package index."""
    plain = small_release.write_wheel(folder, name, "1.23", needs, files or CUDA)
    return plain.rename(folder / f"{name}-1.23-{tag}.whl")


def installed(releases, release, root):
    """Install a release by the installer of the device, and return its Python."""
    command = small_release.install_command(release, root, releases.public)
    completed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return root / "current/bin/python"


def printed(python, code):
    """Return what a Python prints, or its last line on stderr."""
    completed = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    return (completed.stdout or completed.stderr).strip().splitlines()[-1]


@pytest.mark.slow
def test_a_vendors_wheel_comes_in_by_its_hash_and_names_its_accelerator(releases, build, tmp_path):
    """It is for this Python and platform; the release says CUDA because the wheel holds its provider; on the device it is imported."""
    wheel = vendor_wheel(tmp_path)
    result = build("--wheel", f"{wheel}#sha256={install.sha256(wheel).upper()}", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["accelerators"] == ["CUDA (ONNX Runtime)"]
    assert {"path": f"wheels/{wheel.name}", "sha256": install.sha256(wheel), "size_bytes": wheel.stat().st_size} in document["files"]
    python = installed(releases, tmp_path / "made.tar", tmp_path / "opt")
    assert printed(python, "import onnxruntime; print(onnxruntime.MAKER)") == "a vendor"


@pytest.mark.slow
def test_a_release_of_the_index_states_that_it_runs_on_the_cpu_only(build):
    """And what the board's accelerator would need."""
    printed = build("--dry-run").output
    assert "runs on the CPU only\n" in printed
    assert f"more on this board: {boards.find_board('pc' if platform.machine() == 'x86_64' else 'arm64').accelerators}" in printed


def test_a_wheel_for_another_python_or_platform_is_refused(build, tmp_path):
    """The name of the wheel decides, before anything is fetched."""
    for tag, why in (
        ("cp36-cp36m-linux_x86_64", "is for cp36, not for Python 3"),
        (f"{CP}-{CP}-win_amd64", "is for win_amd64, which does not run on"),
        (f"{CP}-{CP}-musllinux_1_2_x86_64", "which does not run on"),
        (f"{CP}-{CP}-manylinux_2_99_x86_64.manylinux_2_98_x86_64", "which does not run on"),
        ("py2-none-any", "is for py2, not for Python 3"),
        ("any", "is not the name of a wheel"),
    ):
        with table_row(tag):
            with pytest.raises(ConfigError, match=why):
                build("--wheel", vendor_wheel(tmp_path, tag))
            assert not (tmp_path / "made.tar").exists()


def test_a_wheel_that_runs_here_is_taken():
    """By the tags of PEP 425."""
    for tag in (
        "py3-none-any",
        "py2.py3-none-any",
        f"cp38-abi3-{HERE}",
        f"py3-none-{HERE}",
        f"{CP}-none-manylinux2014_{platform.machine()}",
    ):
        with table_row(tag):
            additions.check_wheel_name(f"tensorrt-10.3-{tag}.whl", small_release.this_target())


def test_a_wheel_that_is_not_what_was_meant_is_refused(build, tmp_path):
    """A wrong hash, none, no file, an unprotected connection."""
    for wheel_text, why in (
        ("{wheel}#sha256=" + "0" * 64, "has the SHA-256 "),
        ("{wheel}#sha256=12ab", "ends in no SHA-256"),
        ("absent-1-py3-none-any.whl", "there is no file"),
        ("https://wheels.example/x-1-py3-none-any.whl", "has no hash: add #sha256="),
        ("http://wheels.example/x-1-py3-none-any.whl#sha256=" + "0" * 64, "cannot be fetched safely"),
    ):
        with table_row(wheel_text):
            with pytest.raises(ConfigError, match=why):
                build("--wheel", wheel_text.format(wheel=vendor_wheel(tmp_path)))
            assert not (tmp_path / "made.tar").exists()


@pytest.mark.slow
def test_a_wheel_is_fetched_over_https_and_held_to_its_hash(build, tmp_path, monkeypatch):
    """By pip, from a server whose certificate it trusts; with another hash it is refused."""
    wheel = vendor_wheel(tmp_path)
    authority = Authority(tmp_path / "authority")
    server = FileServer(authority.signed("127.0.0.1", "IP:127.0.0.1"))
    # What requests reads precedes pip's own setting.
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CERT", str(authority.certificate))
    url = server.put(f"/{wheel.name}", wheel.read_bytes())
    try:
        with pytest.raises(ConfigError, match="DO NOT MATCH THE HASHES"):
            build("--wheel", f"{url}#sha256={'0' * 64}")
        assert build("--wheel", f"{url}#sha256={install.sha256(wheel)}").exit_code == 0
    finally:
        server.close()


@pytest.mark.slow
def test_a_vendors_index_gives_the_wheel_of_a_name_and_version(build, tmp_path, monkeypatch):
    """As the one for a JetPack: the wheel and its accelerator are in the release; a version that it lacks is refused."""
    project = tmp_path / "simple/onnxruntime-gpu"
    project.mkdir(parents=True)
    wheel = vendor_wheel(project)
    (project / "index.html").write_text(f'<a href="{wheel.name}#sha256={install.sha256(wheel)}">{wheel.name}</a>')
    # The main index is an empty one: nothing is asked of the network.
    (tmp_path / "empty").mkdir()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "empty").as_uri())
    index = (tmp_path / "simple").as_uri()
    document = json.loads(build("--wheel", "onnxruntime-gpu==1.23", "--index", index, "--json", "--dry-run").stdout)
    assert document["accelerators"] == ["CUDA (ONNX Runtime)"]
    assert f"wheels/{wheel.name}" in [file["path"] for file in document["files"]]
    with pytest.raises(ConfigError, match=r"no wheels for .*onnxruntime-gpu==1\.24"):
        build("--wheel", "onnxruntime-gpu==1.24", "--index", index)


@pytest.mark.slow
def test_what_a_vendors_wheel_needs_is_found_in_another_place(build, tmp_path):
    """In a folder or page given with --find-links; without it the release is not made."""
    (tmp_path / "shop").mkdir()
    small_release.write_wheel(tmp_path / "shop", "vendorlib", "2.0")
    wheel = vendor_wheel(tmp_path, needs=("vendorlib>=2",))
    with pytest.raises(ConfigError, match="vendorlib"):
        build("--wheel", wheel)
    result = build("--wheel", wheel, "--find-links", tmp_path / "shop", "--json")
    assert result.exit_code == 0
    assert "wheels/vendorlib-2.0-py3-none-any.whl" in {file["path"] for file in json.loads(result.stdout)["files"]}


@pytest.mark.slow
def test_two_wheels_with_other_files_of_one_name_are_refused(build, tmp_path):
    """Onnxruntime beside onnxruntime_gpu: the last one would win."""
    other = vendor_wheel(tmp_path, "py3-none-any", "onnxruntime", {"onnxruntime/__init__.py": "MAKER = 'the index'\n"})
    with pytest.raises(ConfigError, match=r"both bring onnxruntime/__init__\.py: omit the extra or the --wheel"):
        build("--wheel", vendor_wheel(tmp_path), "--wheel", other)


@pytest.mark.long
@pytest.mark.slow
def test_a_release_sees_the_systems_python_packages_only_where_that_was_asked(releases, build, tmp_path):
    """Of the Python that the release is made with, pip stands for JetPack's TensorRT; what the release brings precedes it."""
    if printed(shutil.which(f"python{CP[2]}.{CP[3:]}", path=f"{sys.base_prefix}/bin"), "import pip; print('pip')") != "pip":
        pytest.skip("this system's Python has no package of its own")
    assert build().exit_code == 0
    python = installed(releases, tmp_path / "made.tar", tmp_path / "own")
    assert printed(python, "import pip") == "ModuleNotFoundError: No module named 'pip'"
    result = build(
        "--system-site-packages", "--wheel", vendor_wheel(tmp_path, "py3-none-any", "setuptools", {"setuptools/__init__.py": "MINE = 1\n"})
    )
    assert result.exit_code == 0
    python = installed(releases, tmp_path / "made.tar", tmp_path / "system")
    assert printed(python, "import pip; print(pip.__file__)").startswith(sys.base_prefix)
    assert printed(python, "import setuptools, click; print(setuptools.MINE, click.__file__)").startswith(f"1 {tmp_path / 'system'}")


@pytest.mark.slow
def test_the_manifest_states_whose_packages_a_release_sees(build, tmp_path):
    """Its own, or also those of the system."""
    for options, site_packages in (((), "own"), (("--system-site-packages",), "system")):
        assert build(*options).exit_code == 0
        release = install.UnverifiedRelease(tmp_path / "made.tar")
        assert json.loads(release.small("manifest.json", 1 << 20))["site_packages"] == site_packages
        release.close()
