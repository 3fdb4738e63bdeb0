import hashlib
import json
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_card, order_suite
from edgemeter.agent.contract.suite import read_file
from edgemeter.agent.jobs import measure_order
from edgemeter.provisioning.jobs import packing
from tests.fixtures.rows import table_row

REPLAY = {
    "format": "edgemeter-replay",
    "schema": 1,
    "latencies_ms": [1.0],
    "inputs": [{"name": "x", "shape": [1, 2], "dtype": "float32"}],
    "outputs": [{"name": "y", "shape": [1, 2], "dtype": "float32", "values": [0.25, 0.75]}],
}


def write(path, text, **files):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    for name, latency_ms in files.items():
        (path.parent / f"{name}.replay.json").write_text(
            json.dumps(REPLAY | {"latencies_ms": [latency_ms]})
        )
    return path


def pack_file(path, store, find=None):
    """Return the suite in a file as work for devices."""
    return packing.pack(read_file(path), path.parent, store, find)


def unpacked(work, store, folder, data=None):
    """Return the cases as a device reads them.

    The contents are known by name, and the device's own reader reads the suite.
    """
    folder.mkdir()
    document = store.path(work.suite.sha256).read_bytes()
    models = {model.name: store.path(model.sha256) for model in work.models}
    return measure_order.expand_order(order_suite.read(document), models, folder, data)


def test_a_device_measures_the_same_cases(store, tmp_path):
    """Each case of lists, defaults and a folder beside has its model with the same bytes."""
    path = write(
        tmp_path / "s" / "suite.toml",
        'name = "two"\nmatters_ratio = 0.02\n[defaults]\nmode = "rapid"\nthreads = '
        "[1, 2]\n[[case]]\n"
        'model = ["m_fp32.replay.json", "m_int8.replay.json"]\nseconds = 2\n'
        '[[case]]\nmodel = "../other/n.replay.json"\nname = "n: of b"\nthreads = 1\n',
        m_fp32=2.0,
        m_int8=1.0,
    )
    write(tmp_path / "other" / "x.toml", "", n=3.0)
    work = pack_file(path, store)
    suite = unpacked(work, store, tmp_path / "device")
    cases = suite.cases
    assert suite.matters_ratio == 0.02
    identities = [
        (case.model.rsplit("/", 1)[1], case.threads, case.seconds, case.mode, case.name)
        for case in cases
    ]
    assert identities == [
        ("m_fp32.replay.json", 1, 2.0, "rapid", None),
        ("m_fp32.replay.json", 2, 2.0, "rapid", None),
        ("m_int8.replay.json", 1, 2.0, "rapid", None),
        ("m_int8.replay.json", 2, 2.0, "rapid", None),
        ("n.replay.json", 1, 0.0, "rapid", "n: of b"),
    ]
    assert {json.loads(Path(case.model).read_text())["latencies_ms"][0] for case in cases} == {
        1.0,
        2.0,
        3.0,
    }
    assert packing.size_note(work).startswith("each device downloads at most ")


def test_a_model_travels_with_its_weights_and_its_card(store, tmp_path):
    """A model's files keep names that belong together, also where another model has the name."""
    for folder, weights in (("a", b"A"), ("b", b"B")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "net 1.param").write_text("7767517\n")
        (tmp_path / folder / "net 1.bin").write_bytes(weights)
        model_card.card_path(tmp_path / folder / "net 1.param").write_text(f"# {folder}")
    path = write(
        tmp_path / "suite.toml",
        'name = "n"\n[[case]]\nmodel = ["a/net 1.param", "b/net 1.param"]\n',
    )
    work = pack_file(path, store)
    names = [model.name for model in work.models]
    prefix = hashlib.sha256(b"7767517\n").hexdigest()[:8]
    assert names == [
        "net_1.param",
        "net_1.bin",
        "net_1.param.toml",
        *(f"{prefix}-net_1.{end}" for end in ("param", "bin", "param.toml")),
    ]
    contents = {model.name: store.path(model.sha256).read_bytes() for model in work.models}
    assert (
        contents["net_1.bin"],
        contents[f"{prefix}-net_1.bin"],
        contents["net_1.param.toml"],
    ) == (b"A", b"B", b"# a")


def test_a_card_that_is_a_link_to_a_key_is_not_sent(store, tmp_path):
    """A card that is a link to another file is not sent, because every device would receive it.

    Here it links to a key, and came with the model.
    """
    (tmp_path / "id_rsa").write_text("a private key")
    (tmp_path / "m.replay.json").write_bytes(b"{}")
    (tmp_path / "m.replay.json.toml").symlink_to(tmp_path / "id_rsa")
    with pytest.raises(ConfigError, match="id_rsa', which is not known to be a \\.toml file"):
        pack_file(
            write(tmp_path / "s.toml", 'name = "s"\n[[case]]\nmodel = "m.replay.json"\n'), store
        )


def test_a_model_under_another_file_name_keeps_its_name(store, tmp_path):
    """A renamed file keeps the model's name of runs on this machine, as they are the same case."""
    write(tmp_path / "a" / "x", "", net=1.0)
    write(tmp_path / "b" / "x", "", net=2.0)
    write(tmp_path / "x", "", **{"my mödel": 3.0})
    models = ["a/net.replay.json", "b/net.replay.json", "my mödel.replay.json"]
    path = write(
        tmp_path / "suite.toml",
        f'name = "n"\n[[case]]\nmodel = {json.dumps(models, ensure_ascii=False)}\n',
    )
    cases = unpacked(pack_file(path, store), store, tmp_path / "device").cases
    assert [case.name for case in cases] == [None, "net.replay", "my m-del.replay"]


def test_a_model_of_the_catalogue_is_fetched_by_its_name(store, tmp_path):
    """A name that is no file beside the suite is fetched from the catalogue."""
    write(tmp_path / "cache" / "x", "", big=1.0)
    searched = []

    def find(name):
        searched.append(name)
        return tmp_path / "cache" / "big.replay.json"

    work = pack_file(
        write(tmp_path / "suite.toml", 'name = "n"\n[[case]]\nmodel = "big-net"\n'), store, find
    )
    assert (searched, work.models[0].name) == (["big-net"], "big.replay.json")


def test_a_suite_that_devices_would_refuse_is_refused_here(store, tmp_path):
    """The server refuses a suite that devices would refuse, before anything is sent."""
    for text, message in (
        ("", "name"),
        ('name = "n"\n[[case]]\nthreads = 1', "names no model"),
        ('name = "n"\n[[case]]\nmodel = "gone.onnx"', "no model at"),
        ('name = "n"\n[[case]]\nmodel = "m.replay.json"\noptions = {a = "/etc"}', "options"),
        (
            'name = "n"\n[[case]]\nmodel = "m.replay.json"\nscenario = "single_stream"\nbatch = 3',
            "batch is for offline",
        ),
        ('name = "n"\n[[case]]\nmodel = "m.replay.json"\nruntime = "onnx"', "nothing to measure"),
        ('name = "n"\n[[case]]\nmodel = "m.replay.json"\nbackend = "a;rm -rf"', "backend"),
        ('name = "n"\n[[case]]\nmodel = "m.replay.json"\nspeed = 1', "speed"),
        (
            'name = "n"\n[[case]]\nmodel = ["m.replay.json", "zoo.nets:make"]',
            "is code, which no order carries",
        ),
        (
            'name = "n"\n[[case]]\nmodel = "m.replay.json"\nruntime = "python"',
            r"case 1: .* in a file of Python is code",
        ),
    ):
        with table_row(text), pytest.raises(ConfigError, match=message):
            pack_file(write(tmp_path / "suite.toml", text, m=1.0), store)
