"""Model files, inspected before a library opens them, and the texts in them."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import case_settings, model_file, model_formats, suite
from edgemeter.agent.engine import loading
from edgemeter.agent.runtimes import RUNTIMES, create
from edgemeter.agent.runtimes.adapter import zipped_texts
from edgemeter.agent.session import checks
from tests.fixtures import stand_ins


def test_a_path_that_cannot_be_one_is_no_traceback():
    """A NUL in a path raises ValueError, not OSError."""
    with pytest.raises(ConfigError, match="cannot read the model"):
        model_file.head(Path("a\0b"))


def test_texts_are_read_and_the_rest_is_left_out(tmp_path):
    """Only UTF-8 of a label file's size is read."""
    path = tmp_path / "model"
    path.write_bytes(b"the model itself")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("labels.txt", "cat\nHündin\n")
        archive.writestr("weights.bin", b"\xff\xfe\x00")
        archive.writestr("bomb.txt", "a" * (2 << 20))
        archive.writestr("folder/", "")
    assert zipped_texts(path) == {"labels.txt": "cat\nHündin\n"}
    # PyTorch keeps a model's texts below `extra` in a folder of the archive's name.
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/extra/config.txt", "{}")
        archive.writestr("model/code/a.py", "x = 1")
        archive.writestr("extra/direct.txt", "d")
    assert zipped_texts(path, below="extra") == {"config.txt": "{}", "direct.txt": "d"}


def test_a_member_larger_than_declared_is_left_out(tmp_path):
    """A zip can lie about sizes, so no more than the limit is ever unpacked."""
    path = tmp_path / "model"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("liar.txt", "a" * (3 << 20))
    size = (3 << 20).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (10).to_bytes(4, "little")))
    assert zipped_texts(path) in ({}, {"liar.txt": "a" * 10})


def test_no_zip_and_a_garbled_one_hold_no_texts(tmp_path):
    """A file's texts are never a reason to fail."""
    for content in [b"", b"no zip", b"PK\x05\x06" + bytes(18), b"PK\x05\x06" + b"\xff" * 18]:
        path = tmp_path / "model"
        path.write_bytes(content)
        assert zipped_texts(path) == {}, f"{content!r}"


def test_weights_in_a_second_file_belong_to_the_model(models, tmp_path):
    """The hash covers both files in turn, since other weights are another model."""
    for file in ("ncnn.param", "openvino.xml"):
        content, weights = (models / file).read_bytes(), (models / file).with_suffix(".bin")
        assert model_file.parts(models / file) == (models / file, weights)
        assert (
            checks.sha256(str(models / file))
            == hashlib.sha256(content + weights.read_bytes()).hexdigest()
        )
        (tmp_path / file).write_bytes(content)
        assert checks.sha256(str(tmp_path / file)) == hashlib.sha256(content).hexdigest()


def test_every_fixture_is_read_by_its_runtime(models):
    """A suite finds the runtime by the suffix, or takes the named one."""
    for name in RUNTIMES:
        (fixture,) = (path for path in models.glob(f"{name}.*") if path.suffix != ".bin")
        if fixture.suffix == ".py":
            fixture = fixture.with_name(f"{fixture.name}:make")
        assert model_formats.reads(name, fixture)
        assert name in {model_formats.runtime_for(fixture), "edgetpu"}


def case_of(model, sha256=None):
    settings = case_settings.Settings(model=str(model), sha256=sha256)
    return suite.expand(suite.SuiteFile(name="s", case=[settings]), model.parent).cases[0]


@pytest.mark.needs("gcc")
def test_an_engine_is_opened_by_the_hash_of_the_suite_or_of_its_card(models, tmp_path, monkeypatch):
    """An engine without a matching hash is not opened."""
    stand_ins.tensorrt(tmp_path / "cuda", monkeypatch)
    engine = tmp_path / "model.engine"
    engine.write_bytes((models / "tensorrt.engine").read_bytes())
    sha256 = hashlib.sha256(engine.read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match="pass its hash"):
        loading.load_model(case_of(engine), create("tensorrt"))
    assert loading.load_model(case_of(engine, sha256), create("tensorrt")).loaded.backend == "cuda"
    card = (
        'name = "m"\ntask = "detection"\nfamily = "yolov8"\nprecision = "fp16"\n[input]\nheight '
        '= 1\nwidth = 4\nlayout = "NHWC"\n'
    )
    (tmp_path / "model.engine.toml").write_text(f'sha256 = "{sha256}"\n{card}')
    assert loading.load_model(case_of(engine), create("tensorrt")).loaded.backend == "cuda"
    (tmp_path / "model.engine.toml").write_text(f'sha256 = "{"0" * 64}"\n{card}')
    with pytest.raises(ConfigError, match=f"has sha256 {sha256}, not 0000"):
        loading.load_model(case_of(engine), create("tensorrt"))
