"""Which PyTorch files are opened: judged by their members, without PyTorch."""

import json
import zipfile
from functools import partial

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.runtimes import torch_archive
from tests.fixtures.archives import changed
from tests.fixtures.rows import table_row


def edited(models, path, edit):
    """Return the exported program of the fixtures with its JSON passed through `edit`."""

    def change(name, content):
        if not name.endswith("models/model.json"):
            return content
        document = json.loads(content)
        edit(document)
        return json.dumps(document).encode()

    return changed(models / "pytorch_open.pt2", path, change)


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
        assert torch_archive.read(models / name).kind == kind, f"{name!r}"


def set_target(document, target):
    """Let the first operator be another."""
    document["graph_module"]["graph"]["nodes"][0]["target"] = target


def set_size(document, expression):
    """Let the first size of the input be an expression."""
    sizes = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
    sizes[0] = {"as_expr": {"expr_str": expression, "hint": {"as_int": 2}}}


def set_name(document, name):
    """Let the first result have another name."""
    document["graph_module"]["graph"]["nodes"][0]["outputs"][0]["as_tensor"]["name"] = name


def set_leaf(document, leaf):
    """Let the inputs be nested in another container."""
    document["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = json.dumps([1, leaf])


ABORT = '{"default_factory_module": "os", "default_factory_name": "abort"}'
# Operator names are resolved with getattr from `torch` on, where os.system lies; size expressions go through sympify, which is eval; names
# become Python source when the graph is compiled; and the description of nested inputs can name modules to import.
HOSTILE = {
    set_target: (
        "torch.os.system", "torch.ops.load_library", "torch.ops.aten.save.default", "torch.ops.aten.add.__class__",
        "torch.ops._c10d_functional.all_reduce.default", "_operator.attrgetter", "eval",
    ),
    set_size: ("__import__('os').system('true')", "s0.__class__", "(lambda: s0)()", "s0 if s0 else s0"),
    set_name: ("x): import os #", "x=print()", "x\ny", "x,y", "ˣ x"),
    set_leaf: (
        {"type": "collections.defaultdict", "context": ABORT, "children_spec": []},
        {"type": "builtins.dict", "context": '[{"__enum__": true, "fqn": "os:name", "name": "x"}]', "children_spec": []},
    ),
}  # fmt: skip
FIELDS = {set_target: "target, which is not run here", set_size: "expr_str", set_name: "name", set_leaf: "in_spec"}


def test_what_would_run_code_is_refused(models, tmp_path):
    """Whichever field of the program it stands in."""
    for change, values in HOSTILE.items():
        for value in values:
            path = edited(models, tmp_path / "a.pt2", lambda document, change=change, value=value: change(document, value))
            with table_row(change.__name__, value), pytest.raises(ConfigError, match=f"as {FIELDS[change]}"):
                torch_archive.read(path)


def test_sizes_as_pytorch_writes_them_pass(models, tmp_path):
    """Sums, products and PyTorch's own functions of symbols are plain."""
    for expression in ["s77", "2*s77 + 1", "Symbol('s7', positive=True, integer=True)", "Max(1, FloorDiv(s0, 2))", "(s0 + 1)//2"]:
        path = edited(models, tmp_path / "a.pt2", partial(set_size, expression=expression))
        assert torch_archive.read(path).kind == "exported", f"{expression!r}"


def test_members_that_are_no_tensors_are_refused(models, tmp_path):
    """Compiled code and pickled objects are part of the format, and not run here."""
    for member in ["data/aotinductor/model/code.so", "data/constants/custom_obj_0", "data/constants/opaque_obj_0", "evil.pkl"]:
        path = changed(models / "pytorch.pt2", tmp_path / "a.pt2", lambda _, content: content)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(f"{archive.namelist()[0].partition('/')[0]}/{member}", b"x")
        with table_row(member), pytest.raises(ConfigError, match="not part of a plain exported program"):
            torch_archive.read(path)


def test_weights_that_would_be_unpickled_are_refused(models, tmp_path):
    """The configuration of the weights can ask for pickle."""

    def change(name, content):
        return content.replace(b'"use_pickle": false', b'"use_pickle": true') if name.endswith("weights_config.json") else content

    with pytest.raises(ConfigError, match="as a pickle and is not opened"):
        torch_archive.read(changed(models / "pytorch.pt2", tmp_path / "a.pt2", change))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(models, tmp_path):
    """Two readers could each take the other one."""
    path = changed(models / "pytorch.pt2", tmp_path / "a.pt2", lambda _, content: content)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(archive.namelist()[0], b"other")
    with pytest.raises(ConfigError, match="two members of one name"):
        torch_archive.read(path)


def test_what_is_no_model_of_pytorch_is_one_line(models, tmp_path):
    """JSON that is none or of another form; data.pkl without code, which torch.save writes; any other zip is not handed to PyTorch."""
    for content in (b"{", b"[]", b'{"graph_module": 1, "a": null}', b"\xff"):
        path = changed(
            models / "pytorch.pt2",
            tmp_path / "a.pt2",
            lambda name, old, content=content: content if name.endswith("weights_config.json") else old,
        )
        with table_row(content), pytest.raises(ConfigError, match="is not a PyTorch model, or a truncated one"):
            torch_archive.read(path)
    for member, words in (("model/data.pkl", "is a pickle, which can run any code"), ("photos/one.jpg", "neither TorchScript nor an")):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            archive.writestr(member, b"\x80\x02.")
        with table_row(member), pytest.raises(ConfigError, match=words):
            torch_archive.read(tmp_path / "a.zip")


def test_calls_of_torchvision_are_seen_in_both_forms(models, tmp_path):
    """In the text of a script, and among the operators of a program."""

    def call(name, content):
        return content.replace(b"torch.neg(y)", b"ops.torchvision.nms(y, y, 0.5)") if name.endswith(".py") else content

    def edit(document):
        document["graph_module"]["graph"]["nodes"][0]["target"] = "torch.ops.torchvision.roi_align.default"

    assert torch_archive.read(changed(models / "pytorch_nested.pt", tmp_path / "a.pt", call)).calls_torchvision
    assert torch_archive.read(edited(models, tmp_path / "a.pt2", edit)).calls_torchvision
    assert not torch_archive.read(models / "pytorch_nested.pt").calls_torchvision
    assert not torch_archive.read(models / "pytorch.pt2").calls_torchvision
