"""Hugging Face: the numbers of plain transformers from a local folder, without code of the folder and without a network."""

import importlib
import json
import sys

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import noise

pytestmark = [
    pytest.mark.torch, pytest.mark.needs(module="transformers"), pytest.mark.slow,
    # What transformers says of its own parts is for its authors.
    pytest.mark.filterwarnings("ignore"),
]  # fmt: skip
FACTORY = "hugging_face"
LABELS = {0: "cat", 1: "dog", 2: "cow"}
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 37}


@pytest.fixture
def transformers():
    """Return the library, imported only by tests that run."""
    return importlib.import_module("transformers")


@pytest.fixture
def vit(transformers, tmp_path):
    """Return a folder of a tiny classifier of pictures."""
    config = transformers.ViTConfig(
        **SMALL, image_size=32, patch_size=8, id2label=LABELS, label2id={name: key for key, name in LABELS.items()}
    )
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    prepared = {
        "image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3,
        "do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "resample": 2,
    }  # fmt: skip
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(prepared))
    return tmp_path / "vit"


@pytest.fixture
def bert(transformers, tmp_path):
    """Return a folder of a tiny classifier of texts."""
    config = transformers.BertConfig(**SMALL, vocab_size=50, num_labels=2)
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def test_pictures_give_what_plain_transformers_gives(drive, transformers, vit):
    """The configuration declares the input, names the classes and says how pictures are prepared."""
    model = drive(FACTORY, model=vit, auto="AutoModelForImageClassification")
    x = np.random.default_rng(1).random((2, 3, 32, 32), np.float32)
    plain = transformers.ViTForImageClassification.from_pretrained(vit).eval()
    torch = importlib.import_module("torch")
    with torch.no_grad():
        expected = plain(torch.from_numpy(x)).logits.numpy()
    np.testing.assert_array_equal(model(x)[0], expected)
    assert model.loaded.name == "vit"
    assert model.loaded.metadata == {
        "names": repr(LABELS), "task": "classify", "input_mean": "127.5, 127.5, 127.5", "input_sd": "63.75, 63.75, 63.75",
    }  # fmt: skip


def test_texts_give_what_plain_transformers_gives(drive, transformers, bert):
    """Ids and mask by name; noise draws ids of the vocabulary, and a mask of ones."""
    model = drive(FACTORY, model=bert, auto="AutoModelForSequenceClassification", tokens=6)
    assert [(info.name, info.shape) for info in model.loaded.inputs] == [("input_ids", (None, 6)), ("attention_mask", (None, 6))]
    ids, mask = np.array([[1, 2, 3, 49, 0, 0]]), np.array([[1, 1, 1, 1, 0, 0]])
    torch = importlib.import_module("torch")
    with torch.no_grad():
        expected = transformers.BertForSequenceClassification.from_pretrained(bert).eval()(torch.from_numpy(ids), torch.from_numpy(mask))
    np.testing.assert_array_equal(model(ids, mask)[0], expected.logits.numpy())
    for ids, mask in noise.inputs(model.loaded, 0):
        assert np.isfinite(model(ids, mask)[0]).all()
        assert mask.min() == 1
        assert ids.max() < 50


@pytest.mark.needs(module="PIL")
def test_a_pipeline_gives_the_score_of_each_class(drive, transformers, vit):
    """In the order of their numbers, equal to the pipeline itself, preparation included."""
    model = drive(FACTORY, model=vit, task="image-classification", input="1x40x30x3")
    picture = np.random.default_rng(1).integers(0, 256, (40, 30, 3), np.uint8)
    processor = transformers.AutoImageProcessor.from_pretrained(vit)
    plain = transformers.pipeline(
        "image-classification", model=transformers.AutoModelForImageClassification.from_pretrained(vit), image_processor=processor
    )
    expected = {entry["label"]: entry["score"] for entry in plain(importlib.import_module("PIL.Image").fromarray(picture), top_k=3)}
    np.testing.assert_allclose(model(picture[None])[0][0], [expected[LABELS[number]] for number in range(3)], rtol=1e-5)
    assert model.loaded.backend == "eager,pipeline,cpu"


def test_weights_and_configuration_are_the_identity(drive, vit):
    """Another weight, another model."""
    first = drive(FACTORY, model=vit).loaded
    content = bytearray((vit / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (vit / "model.safetensors").write_bytes(content)
    second = drive(FACTORY, model=vit).loaded
    assert first.sha256 != second.sha256
    assert first.size_bytes == second.size_bytes > len(content)
    prepared = vit / "preprocessor_config.json"
    prepared.write_text(prepared.read_text().replace("0.25", "0.5"))
    assert drive(FACTORY, model=vit).loaded.sha256 != second.sha256


def test_code_of_the_folder_does_not_run(drive, vit):
    """It does when the user says so, and only then."""
    config = json.loads((vit / "config.json").read_text())
    config |= {"model_type": "foreign", "auto_map": {"AutoConfig": "code.Config", "AutoModel": "code.Model"}}
    (vit / "config.json").write_text(json.dumps(config))
    (vit / "code.py").write_text("import sys\nsys.ran_code_of_the_folder = True\n")
    with pytest.raises(ConfigError, match="trust_remote_code"):
        drive(FACTORY, model=vit)
    assert not hasattr(sys, "ran_code_of_the_folder")


def test_bad_options_are_one_line(drive, vit, tmp_path):
    """Each names what was given and what would do."""
    for options, message in [
        ({"model": tmp_path / "absent"}, "does not exist"),
        ({"model": tmp_path}, "holds no config.json"),
        ({"model": vit, "auto": "AutoModelForCausalLM"}, "name the class that the folder is of"),
        ({"model": vit, "auto": "Foreign"}, "is no class of transformers"),
        ({"model": vit, "task": "image-classification", "input": "40x30x3"}, "takes one picture"),
        ({"model": vit, "task": "text-generation"}, "image-classification"),
        ({"model": vit, "trust_remote_code": "perhaps"}, "yes, no"),
    ]:
        with pytest.raises(ConfigError, match=message) as raised:
            drive(FACTORY, **options)
        assert "\n" not in str(raised.value)
