"""Facts about real releases for arm64: they install there with no network and measure; a wheel that dies on the board's core is found."""

import json
import shutil

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import boards, build, manifest, smoke, wheels
from tests.arm64.namespace import run_inside
from tests.fixtures import small_release

pytestmark = [pytest.mark.arm64, pytest.mark.slow]


@pytest.mark.long
def test_the_manifest_names_the_core_it_was_tried_on(pi4, system):
    """Checked while it was built, and again with a check of the finished release, as another board too."""
    assert pi4.manifest.checked.endswith("native packages imported under qemu-user as cortex-a72, Python 3.13")
    _, checked = build.check_release(pi4.path, pi4.public, "pi3", system)
    assert checked.dead == ()
    assert any(name.startswith("ai_edge_litert-") for name in checked.imported)
    assert checked.words.endswith("as cortex-a53, Python 3.13")


def test_a_release_installs_on_arm64_with_no_network_and_measures(pi4_with_litert, system, tmp_path):
    """By the system's own Python, which has no ensurepip; a network namespace of its own has nothing to reach.

    The one test on arm64 that runs for every change: the installer imports each native package, so the builder need not.
    """
    manifest.read_release(pi4_with_litert.path, pi4_with_litert.public).unpack(tmp_path)
    shutil.copy(pi4_with_litert.public, tmp_path)
    script = (
        '! "$0" -c "import ensurepip; ensurepip.version()" 2> /dev/null\n'
        '"$0" /mnt/release/install.py --release /mnt/release --root /mnt/opt/edgemeter --public-key /mnt/release/release.pub\n'
        "cd /mnt/opt/edgemeter/current\n"
        "bin/edgemeter --version\n"
        "export EDGEMETER_HOME=/mnt/home\n"
        "model=$(echo lib/python3*/site-packages/edgemeter/models/shipped/edgemeter-shapes_int8.tflite)\n"
        "bin/edgemeter run --model $model --mode rapid --repeats 1 --no-save --output /mnt/release/runs.json\n"
    )
    completed = run_inside(system, tmp_path, script, "--net")
    assert f"install: installed and switched to release {pi4_with_litert.manifest.version}" in completed.stdout
    assert "edgemeter, version" in completed.stdout
    (run,) = json.loads((tmp_path / "runs.json").read_text())["runs"]
    assert (run["environment"]["arch"], run["runtime"]["name"], run["model"]["name"]) == ("aarch64", "litert", "edgemeter-shapes")
    assert run["latency"]["count"] >= 64
    assert run["latency"]["p50_ms"] > 0


@pytest.mark.long
def test_a_release_sees_what_the_systems_packages_bring(pi4, system, tmp_path):
    """As JetPack's TensorRT, Debian's yaml stands in dist-packages; the release's own wheels precede the system's."""
    files = tmp_path / "release"
    files.mkdir()
    manifest.read_release(pi4.path, pi4.public).unpack(files)
    request = build.ReleaseRequest(boards.release_target("pi4"), ("litert",), pi4.key, site_packages="system")
    build.seal_release(request, files, pi4.manifest.checked, pi4.manifest.version)
    shutil.copy(pi4.public, files)
    script = (
        '"$0" /mnt/release/install.py --release /mnt/release --root /mnt/opt/edgemeter --public-key /mnt/release/release.pub\n'
        '/mnt/opt/edgemeter/current/bin/python -c "import yaml, numpy; print(yaml.__file__, numpy.__file__)"\n'
    )
    completed = run_inside(system, files, script, "--net")
    of_system, of_release = completed.stdout.splitlines()[-1].split()
    assert of_system.startswith("/usr/lib/python3/dist-packages/yaml/")
    assert of_release.startswith("/mnt/opt/edgemeter/current/lib/python3.13/site-packages/numpy/")


@pytest.mark.long
def test_a_wheel_that_dies_on_the_boards_core_is_found(system, index, tmp_path):  # noqa: ARG001 - has to be there
    """Onnxruntime 1.21.0 holds instructions that a Cortex-A72 has not (microsoft/onnxruntime #23957); on a Cortex-A76 it imports."""
    target = boards.release_target("pi4")
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, need in ((old, "onnxruntime==1.21.0"), (new, "onnxruntime>=1.31")):
        folder.mkdir()
        wheels.collect_wheels(small_release.write_wheel(tmp_path, "edgemeter", "9", (need,)), (), target, folder)
    checked = smoke.check_imports(old, target.arch, target.python_text, target.core, system)
    assert [name.split("-")[:2] for name, _ in checked.dead] == [["onnxruntime", "1.21.0"]]
    with pytest.raises(
        ConfigError, match=r"the release does not run on this board: onnxruntime-1.21.0-.* died of SIGILL: it has instructions that"
    ):
        smoke.refuse_dead(checked)
    assert smoke.check_imports(old, target.arch, target.python_text, "cortex-a76", system).dead == ()
    fine = smoke.check_imports(new, target.arch, target.python_text, target.core, system)
    assert (fine.dead, any(name.startswith("onnxruntime-") for name in fine.imported)) == ((), True)
