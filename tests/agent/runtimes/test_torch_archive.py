"""A PyTorch file's kind is found from its members, without PyTorch."""

import json
import zipfile

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import pytorch
from tests.fixtures.archives import changed
from tests.fixtures.rows import table_row


def test_what_pytorch_writes_is_recognised_by_its_members(models):
    """The suffix does not count."""
    for name, kind in [
        ("pytorch.pt2", "exported"),
        ("pytorch_open.pt2", "exported"),
        ("pytorch_nested.pt2", "exported"),
        ("pytorch_old.pt2", "exported"),
        ("pytorch_config.torchscript", "torchscript"),
        ("pytorch_nested.pt", "torchscript"),
    ]:
        assert pytorch.read_archive(models / name).kind == kind, f"{name!r}"


def test_what_is_no_model_of_pytorch_is_one_line(tmp_path):
    """Files of torch.save (data.pkl without code), other zips and other files are refused."""
    for member, words in (
        ("model/data.pkl", "is a pickle of weights or objects: export"),
        ("photos/one.jpg", "neither TorchScript nor an"),
    ):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr(member, b"\x80\x02.")
        with table_row(member), pytest.raises(ConfigError, match=words):
            pytorch.read_archive(tmp_path / "a.zip")
    for content, words in (
        (b"\x80\x02.", "is a pickle: export"),
        (b"PK\x03\x04cut", "not a PyTorch model, or a truncated one"),
    ):
        (tmp_path / "a.pt").write_bytes(content)
        with table_row(content), pytest.raises(ConfigError, match=words):
            pytorch.read_archive(tmp_path / "a.pt")


def test_calls_of_torchvision_are_seen_in_both_forms(models, tmp_path):
    """They are found in a script's text and among a program's operators."""

    def call(name, content):
        return (
            content.replace(b"torch.neg(y)", b"ops.torchvision.nms(y, y, 0.5)")
            if name.endswith(".py")
            else content
        )

    def edit(name, content):
        if not name.endswith("models/model.json"):
            return content
        document = json.loads(content)
        document["graph_module"]["graph"]["nodes"][0]["target"] = (
            "torch.ops.torchvision.roi_align.default"
        )
        return json.dumps(document).encode()

    assert pytorch.read_archive(
        changed(models / "pytorch_nested.pt", tmp_path / "a.pt", call)
    ).calls_torchvision
    assert pytorch.read_archive(
        changed(models / "pytorch_open.pt2", tmp_path / "a.pt", edit)
    ).calls_torchvision
    assert not pytorch.read_archive(models / "pytorch_nested.pt").calls_torchvision
    assert not pytorch.read_archive(models / "pytorch.pt2").calls_torchvision
