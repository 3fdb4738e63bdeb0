"""Which files make a model, and that a hash covers them all and reaches the runtime that asks for it."""

import hashlib

import pytest

from edgemeter.agent.engine import loading, session, suites
from edgemeter.agent.errors import ConfigError
from edgemeter.agent.runtimes import RUNTIMES, create, model_file
from tests.fixtures import stand_ins


@pytest.mark.parametrize(("file", "weights"), [("ncnn.param", "ncnn.bin"), ("openvino.xml", "openvino.bin")])
def test_weights_in_a_second_file_belong_to_the_model(models, tmp_path, file, weights):
    """Other weights are another model: the hash is that of both, one after the other."""
    assert model_file.parts(models / file) == (models / file, models / weights)
    both = (models / file).read_bytes() + (models / weights).read_bytes()
    assert session.sha256(str(models / file)) == hashlib.sha256(both).hexdigest()
    (tmp_path / file).write_bytes((models / file).read_bytes())
    alone = session.sha256(str(tmp_path / file))
    assert alone == hashlib.sha256((models / file).read_bytes()).hexdigest()
    (tmp_path / weights).write_bytes(b"others")
    assert session.sha256(str(tmp_path / file)) not in {alone, session.sha256(str(models / file))}


def test_a_bin_beside_another_format_is_none_of_it(models):
    """An .onnx is hashed as it always was."""
    assert model_file.parts(models / "onnx.onnx") == (models / "onnx.onnx",)
    assert session.sha256(str(models / "onnx.onnx")) == hashlib.sha256((models / "onnx.onnx").read_bytes()).hexdigest()


@pytest.mark.parametrize("name", RUNTIMES)
def test_every_fixture_is_read_by_its_runtime(models, name):
    """A suite finds the runtime by the suffix, or takes it where it is named."""
    (fixture,) = (path for path in models.glob(f"{name}.*") if path.suffix != ".bin")
    assert suites.reads(name, fixture)
    assert name in {suites.runtime_for(fixture), "edgetpu"}


def case_of(model, sha256=None):
    """Return a case of the model."""
    one = suites.Settings(model=str(model), sha256=sha256)
    return suites.expand(suites.SuiteFile(name="s", case=[one]), model.parent).cases[0]


def test_an_engine_is_opened_by_the_hash_of_the_suite_or_of_its_card(models, tmp_path, monkeypatch):
    """And by nothing else."""
    stand_ins.tensorrt(tmp_path / "cuda", monkeypatch)
    engine = tmp_path / "model.engine"
    engine.write_bytes((models / "tensorrt.engine").read_bytes())
    sha256 = hashlib.sha256(engine.read_bytes()).hexdigest()
    with pytest.raises(ConfigError, match="name its hash"):
        loading.load(case_of(engine), create("tensorrt"))
    assert loading.load(case_of(engine, sha256), create("tensorrt")).loaded.backend == "cuda"
    card = 'name = "m"\ntask = "detection"\nfamily = "yolov8"\nprecision = "fp16"\n[input]\nheight = 1\nwidth = 4\nlayout = "NHWC"\n'
    (tmp_path / "model.engine.toml").write_text(f'sha256 = "{sha256}"\n{card}')
    assert loading.load(case_of(engine), create("tensorrt")).loaded.backend == "cuda"
    (tmp_path / "model.engine.toml").write_text(f'sha256 = "{"0" * 64}"\n{card}')
    with pytest.raises(ConfigError, match=f"has sha256 {sha256}, not 0000"):
        loading.load(case_of(engine), create("tensorrt"))
