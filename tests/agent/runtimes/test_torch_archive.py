"""Which PyTorch files are opened: judged by their members, without PyTorch."""

import json
import zipfile

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


def test_an_operator_from_outside_the_libraries_is_refused(models, tmp_path):
    """Operator names are resolved with getattr from `torch` on, where os.system lies."""
    for target in [
        "torch.os.system",
        "torch.ops.load_library",
        "torch.ops.aten.save.default",
        "torch.ops.aten.add.__class__",
        "torch.ops._c10d_functional.all_reduce.default",
        "_operator.attrgetter",
        "eval",
    ]:

        def edit(document, target=target):
            document["graph_module"]["graph"]["nodes"][0]["target"] = target

        with table_row(target), pytest.raises(ConfigError, match="as target, which is not run here"):
            torch_archive.read(edited(models, tmp_path / "a.pt2", edit))


def test_a_size_that_would_be_evaluated_as_code_is_refused(models, tmp_path):
    """Size expressions go through sympify, which is eval."""
    for expression in [
        "__import__('os').system('true')",
        "s0.__class__",
        "(lambda: s0)()",
        "s0 if s0 else s0",
    ]:

        def edit(document, expression=expression):
            sizes = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
            sizes[0] = {"as_expr": {"expr_str": expression, "hint": {"as_int": 2}}}

        with table_row(expression), pytest.raises(ConfigError, match="as expr_str"):
            torch_archive.read(edited(models, tmp_path / "a.pt2", edit))


def test_sizes_as_pytorch_writes_them_pass(models, tmp_path):
    """Sums, products and PyTorch's own functions of symbols are plain."""
    for expression in ["s77", "2*s77 + 1", "Symbol('s7', positive=True, integer=True)", "Max(1, FloorDiv(s0, 2))", "(s0 + 1)//2"]:

        def edit(document, expression=expression):
            sizes = document["graph_module"]["graph"]["tensor_values"]["x"]["sizes"]
            sizes[0] = {"as_expr": {"expr_str": expression, "hint": {"as_int": 2}}}

        assert torch_archive.read(edited(models, tmp_path / "a.pt2", edit)).kind == "exported", f"{expression!r}"


def test_a_name_that_is_no_name_is_refused(models, tmp_path):
    """Names become Python source when the graph is compiled."""
    for name in ["x): import os #", "x=print()", "x\ny", "x,y", "ˣ x"]:

        def edit(document, name=name):
            document["graph_module"]["graph"]["nodes"][0]["outputs"][0]["as_tensor"]["name"] = name

        with table_row(name), pytest.raises(ConfigError, match="as name"):
            torch_archive.read(edited(models, tmp_path / "a.pt2", edit))


@pytest.mark.parametrize(
    "leaf",
    [
        {
            "type": "collections.defaultdict",
            "context": '{"default_factory_module": "os", "default_factory_name": "abort"}',
            "children_spec": [],
        },
        {"type": "builtins.dict", "context": '[{"__enum__": true, "fqn": "os:name", "name": "x"}]', "children_spec": []},
    ],
    ids=["defaultdict", "enumeration"],
)
def test_a_container_that_imports_something_is_refused(models, tmp_path, leaf):
    """The description of nested inputs can name modules to import."""

    def edit(document):
        signature = document["graph_module"]["module_call_graph"][0]["signature"]
        signature["in_spec"] = json.dumps([1, leaf])

    with pytest.raises(ConfigError, match="as in_spec"):
        torch_archive.read(edited(models, tmp_path / "a.pt2", edit))


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


def test_a_plain_save_is_called_a_pickle(tmp_path):
    """data.pkl without code is what torch.save writes."""
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", b"\x80\x02.")
        archive.writestr("model/version", b"3")
    with pytest.raises(ConfigError, match="is a pickle, which can run any code"):
        torch_archive.read(path)


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"graph_module": 1, "a": null}', b"\xff"])
def test_a_garbled_program_ends_in_one_line_or_passes_on(models, tmp_path, content):
    """What is no JSON, or JSON of another form, is no traceback."""

    def change(name, old):
        return content if name.endswith("weights_config.json") else old

    with pytest.raises(ConfigError, match="is not a PyTorch model, or a truncated one"):
        torch_archive.read(changed(models / "pytorch.pt2", tmp_path / "a.pt2", change))


def test_a_zip_of_something_else_is_neither(tmp_path):
    """Any other zip is not handed to PyTorch."""
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("photos/one.jpg", b"x")
    with pytest.raises(ConfigError, match="neither TorchScript nor an exported program"):
        torch_archive.read(path)


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
