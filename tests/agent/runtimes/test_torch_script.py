"""Which operators the code of a TorchScript archive may call: judged by its tokens, without PyTorch."""

import re
import zipfile

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import torch_archive, torch_script
from tests.fixtures.archives import changed
from tests.fixtures.rows import table_row

# Each was tried with PyTorch 2.13: those marked wrote a file.
FILE = '"/tmp/edgemeter-written"'
HOSTILE = {
    "by spaces": f"torch . save(x, {FILE})",
    "by the namespace": f"ops.aten.save(x, {FILE})",
    "by a continued line": f"torch.\\\n    save(x, {FILE})",
    "by another name of the namespace": f"o = ops.aten\n    o.save(x, {FILE})",
    "by getattr under another name": f'g = getattr\n    g(torch, "save")(x, {FILE})',
    "by an escaped name": f'getattr(torch, "\\163ave")(x, {FILE})',
    "as a method": f"x.save({FILE})",
    "of a local name": f"__torch__ = torch\n    __torch__.save(x, {FILE})",
    "reading by the namespace": f"y = ops.aten.from_file({FILE}, True, 4)",
    "a shared library": f"y = __torch__.torch.classes.aoti.AOTIModelRunnerCpu({FILE}, 1)",
    "a picture": f"y = ops.image.read_file({FILE})",
    "a library that nobody knows": "y = ops.mylib.add(x)",
    "an operator that nobody knows": "y = torch.upload(x)",
    "after a text that seems to end": f"y = 'a\\'' \n    torch.save(x, {FILE})  # '",
}  # fmt: skip


def with_code(models, tmp_path, statement):
    """Return an archive whose method has this statement."""
    code = f"class H(Module):\n  def forward(self: __torch__.H,\n    x: Tensor) -> Tensor:\n    {statement}\n    return x\n"
    return changed(
        models / "pytorch_nested.pt", tmp_path / "h.pt", lambda name, old: code.encode() if name.endswith("__torch__.py") else old
    )


def test_code_that_reaches_a_file_is_refused_however_it_is_written(models, tmp_path):
    """None passes; what torchvision 0.28's scripted detectors call, numbers of a tensor and operators that compute, is no danger."""
    for title, statement in HOSTILE.items():
        with table_row(title), pytest.raises(ConfigError, match="a model only computes"):
            torch_archive.read(with_code(models, tmp_path, statement))
    for use in ("x.tolist()", "ops.torchvision.nms(x, x, 0.5)", "ops.torchvision.box_iou_rotated(x, x)"):
        assert torch_archive.read(with_code(models, tmp_path, f"y = {use}")).kind == "torchscript"


def test_code_in_any_file_of_the_archive_counts(models, tmp_path):
    """A method of another class, in a folder of its own, is as much part of the model."""
    path = changed(models / "pytorch_nested.pt", tmp_path / "h.pt", lambda _, content: content)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("archive/code/__torch__/inner/deep.py", "def f(x: Tensor) -> Tensor:\n  ops.aten.save(x, 'f')\n  return x\n")
    with pytest.raises(ConfigError, match=re.escape("uses ops.aten.save")):
        torch_archive.read(path)


def test_an_object_of_a_class_that_runs_a_library_is_refused(models, tmp_path):
    """A pickle of the archive names the classes that are made when it is loaded; PyTorch joins module and name by a dot."""
    for name in (b"__torch__.torch.classes.aoti\nAOTIModelRunnerCpu\n", b"__torch__.torch\nclasses.aoti.AOTIModelRunnerCpu\n"):
        pickled = b"\x80\x02c" + name + b")\x81."

        def change(member, content, pickled=pickled):
            return pickled if member.endswith("data.pkl") else content

        with table_row(name), pytest.raises(ConfigError, match="a model only computes"):
            torch_archive.read(changed(models / "pytorch_nested.pt", tmp_path / "h.pt", change))


def test_an_archive_behind_other_bytes_is_refused(models, tmp_path):
    """Python finds a zip by its end; PyTorch may read another format at its beginning."""
    (tmp_path / "h.pt").write_bytes(b"\0\0\0\0PTMF" + bytes(64) + (models / "pytorch_nested.pt").read_bytes())
    with pytest.raises(ConfigError, match="is not a PyTorch model"):
        torch_archive.read(tmp_path / "h.pt")


def test_code_as_pytorch_writes_it_passes():
    """Attributes with numbers for names, texts with quotes, constants, operators of values and the archive's own functions."""
    code = r"""class Net(Module):
  __parameters__ = ["w", ]
  __annotations__["0"] = __torch__.torch.nn.modules.conv.___torch_mangle_3.Conv2d
  w : Tensor
  def forward(self: __torch__.Net, x: Tensor) -> Tuple[Tensor, str]:
    _0 = getattr(self, "0")
    if torch.ne(torch.dim(x), 4):
      ops.prim.RaiseException("not \"4\" dimensions: it's {}")
    y = torch.add((_0).forward(x, ), CONSTANTS.c0, alpha=-1.0000000000000001e-05)
    z = annotate(List[Tensor], [y, x.t(), (x).relu()])
    return (__torch__.util.helper(y, ), torch.format("{}", z[-1], ))
"""
    assert torch_script.refused([code.encode()]) is None


@pytest.mark.torch
def test_the_operators_of_the_list_take_no_file_and_no_machine():
    """By PyTorch's own schemas: an argument that names one, or is a handle of one, is of none of them."""
    import torch  # noqa: PLC0415 - as the marker says

    reaching = {
        str(schema)
        for schema in torch._C._jit_get_all_schemas()
        if schema.name.partition("::")[0] == "aten" and schema.name.partition("::")[2] in torch_script.aten_operators()
        for argument in schema.arguments
        if (argument.name in {"filename", "path", "url"} and "str" in str(argument.type))
        or re.search("RRef|Future|Storage", str(argument.type))
    }
    assert reaching == set()
    assert len(torch_script.aten_operators()) > 1000
