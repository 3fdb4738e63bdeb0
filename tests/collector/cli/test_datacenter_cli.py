"""Test `edgemeter references datacenter`: a device against a server.

It uses energies that were measured; the expected numbers were computed by hand.
"""

import json

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.collector.cli.datacenter import datacenter
from tests.fixtures.comparison_factory import (
    OTHER_DATA,
    document_at,
    make_reference,
    make_run,
    no_energy,
)
from tests.fixtures.record_factory import make_energy
from tests.fixtures.rows import table_row
from tests.fixtures.series_factory import make_days, noisy

# Their geometric mean is 1.
NOISE = (1 / 1.01, 1.0, 1.01)
STATED = """[stated_server]
idle_w = 1400
max_w = 5019
rate_per_s = 10802
scope = "wall-ac"
source = "our data sheet"
year = 2026
"""


def edge_runs(**changes):
    """Return three runs of a board that takes 150 mJ gross, 75 mJ net.

    It idles at 3 W and runs at 40 a second.
    """
    return [
        make_run(
            throughput_per_s=40 / factor,
            energy=make_energy(
                gross_mj=150 * factor,
                net_mj=75 * factor,
                mean_power_w=6.0,
                idle_before_w=3.0,
                idle_after_w=3.0,
            ),
            **changes,
        )
        for factor in NOISE
    ]


def server_runs(scenario="offline", rate=6000.0, **changes):
    """Return three runs of a server that idles at 300 W and draws 900 W at `rate`."""
    return [
        make_reference(
            scenario=scenario,
            throughput_per_s=rate / factor,
            energy=make_energy(
                sensor="shelly", scope="wall-ac", excludes=(), gross_mj=900_000 / rate * factor,
                net_mj=600_000 / rate, mean_power_w=900.0,
                idle_before_w=300.0, idle_after_w=300.0,
            ),
            **changes,
        )
        for factor in NOISE
    ]  # fmt: skip


@pytest.fixture
def store(tmp_path):
    """Return a function that writes runs and returns the path of their store."""

    def write(*runs):
        return str(document_at(tmp_path / "runs.json", *runs))

    return write


def run(where, *arguments):
    """Return what the command prints about a store; an error of ours comes through."""
    return (
        CliRunner()
        .invoke(datacenter, ["--ledger", where, *map(str, arguments)], catch_exceptions=False)
        .stdout
    )


def answer(where, *arguments):
    return json.loads(run(where, "--format", "json", *arguments))


def test_single_stream_and_batch_saturated_servers_stand_apart(store):
    """Each kind of server has its own table, break-evens and cost."""
    where = store(*edge_runs(), *server_runs(), *server_runs("single_stream", 500.0))
    printed = answer(where)
    assert [part["server"]["load"] for part in printed["against"]] == [
        "batch-saturated",
        "single stream",
    ]
    batched, single = (part["gross"][0]["datacenter"]["value"] for part in printed["against"])
    assert single / batched == pytest.approx(12, rel=1e-6)
    output = run(where)
    assert output.count("equal where:") == 2
    assert "PUE 1.1 to 1.6; 100,000 bytes a request" in output


def test_energies_come_from_the_records(store):
    """By hand, the board takes 150 mJ gross at full speed and 3,075 mJ at one a second.

    The server runs at 80% and a PUE of 1.1.
    """
    where = store(*edge_runs(), *server_runs())
    printed = answer(where, "--rate", 1)
    assert printed["edge_gross_mj"]["value"] == pytest.approx(3075.0)
    at_80 = printed["against"][0]["gross"][-1]["datacenter"]
    assert (
        at_80["low"]
        < 1.1 * (300 + 600 * 0.8) / (0.8 * 6000) * 1000
        < at_80["value"]
        < at_80["high"]
    )
    assert answer(where)["edge_gross_mj"]["value"] == pytest.approx(150.0)


def test_a_band_of_few_runs_is_the_meters_alone_and_a_note_says_so(store):
    """Two runs show no scatter worth the name; three widen the band."""
    widths = []
    for runs in (2, 3):
        printed = answer(store(*edge_runs()[:runs], *server_runs()))
        assert any(
            "tiny-detector" in note and "fewer than three runs" in note for note in printed["notes"]
        ) == (runs == 2)
        band = printed["edge"]["full_mj"]
        widths.append(band["high"] - band["low"])
    assert widths[0] == pytest.approx(2 * 1.25)
    assert widths[1] > 5


def test_only_what_is_alike_is_compared(store):
    """Servers or devices that are not comparable are left out with a reason.

    They are a server on other data, a published energy, a ruined model, and a device without
    energy.
    """
    odd = server_runs(data=OTHER_DATA)
    printed = answer(store(*edge_runs(), *server_runs("single_stream", 500.0), *odd))
    assert [part["server"]["load"] for part in printed["against"]] == ["single stream"]
    assert "differs in data" in printed["notes"][0]
    for runs, message in (
        ((*edge_runs(), *odd), "name it with --reference"),
        (
            (*edge_runs(), *server_runs(provenance={"latency": "measured", "energy": "published"})),
            "published",
        ),
        ((*edge_runs(ap=0.1, precision="int8"), *server_runs()), "not ranked"),
        ((make_run(**no_energy()), *server_runs()), "no power sensor here"),
    ):
        with table_row(message), pytest.raises(UnavailableError, match=message):
            run(store(*runs))


def test_a_processor_and_a_gpu_that_were_read_apart_add_up(store):
    """The GPU takes 300 W idle and 900 W, the processor 50 and 100 W beside it.

    Power that neither meter sees is still left out.
    """
    energy = make_energy(
        sensor="rapl",
        scope="cpu-package",
        excludes=("board", "accelerators"),
        mean_power_w=100.0,
        idle_before_w=50.0,
        idle_after_w=50.0,
    )
    gpu = make_energy(
        sensor="nvml", scope="gpu-board", excludes=("processor", "fans"), gross_mj=150.0,
        mean_power_w=900.0, idle_before_w=300.0,
        idle_after_w=300.0,
    )  # fmt: skip
    runs = [
        make_reference(
            scenario="offline", throughput_per_s=6000.0, energy=gpu, other_energies=(energy,)
        )
        for _ in NOISE
    ]
    server = answer(store(*edge_runs(), *runs))["against"][0]["server"]
    assert (server["idle_w"]["value"], server["max_w"]["value"]) == (
        pytest.approx(350.0),
        pytest.approx(1000.0),
    )
    assert (server["scope"], server["excludes"]) == ("gpu-board + cpu-package", ["fans", "board"])
    alone = [make_reference(scenario="offline", throughput_per_s=6000.0, energy=gpu) for _ in NOISE]
    server = answer(store(*edge_runs(), *alone, runs[0]))["against"][0]["server"]
    assert (server["max_w"]["value"], server["scope"]) == (pytest.approx(900.0), "gpu-board")


def test_a_server_may_be_stated_and_is_called_so(store, tmp_path):
    """The published case has 716 mJ at full load and a PUE of 1.54; here it has bands."""
    constants = tmp_path / "own.toml"
    constants.write_text(STATED)
    output = run(store(*edge_runs()), "--constants", constants)
    assert "stated: our data sheet: stated, not measured" in output
    printed = answer(store(*edge_runs()), "--constants", constants, "--bytes", 50_000)
    at_20 = next(
        cell for cell in printed["against"][0]["gross"] if cell["utilisation_ratio"] == 0.2
    )
    ends = at_20["datacenter"]["low"], at_20["datacenter"]["high"]
    assert ends == (
        pytest.approx(1513.91 / 1.54 * 1.1, rel=1e-4),
        pytest.approx(1513.91 / 1.54 * 1.6, rel=1e-4),
    )
    networks = {cell["network"]: cell["network_mj"] for cell in printed["against"][0]["gross"]}
    assert networks["fixed-cloud"] == pytest.approx(180.0)
    assert printed["edge_carbon_g"]["value"] == pytest.approx(150 * 473 / 3600)


def test_what_is_absent_is_reported_with_what_is_available(store):
    """The error lists the available areas, devices, rates or models.

    The data lack the requested area, device or rate, or have several models.
    """
    path = store(*edge_runs(), *server_runs())
    for arguments, message in (
        (("--grid", "XX"), "'XX'"),
        (("--device", "nobody"), "tiny-detector on pi-1"),
        (("--rate", "1000"), r"40 .*1000"),
    ):
        with table_row(arguments), pytest.raises(ConfigError, match=message):
            run(path, *arguments)
    where = store(*edge_runs(), *edge_runs(model="other"), *server_runs())
    with pytest.raises(ConfigError, match="--model: other, tiny-detector"):
        run(where)


def test_a_server_of_the_same_class_of_precision_stands_against_the_edge(store):
    """A server's int8 is no match for the edge's fp32, although it takes less.

    It is used only where there is no fp32, and that is noted.
    """
    int8 = server_runs(rate=12000.0, precision="int8")
    printed = answer(store(*edge_runs(), *server_runs(), *int8))
    assert "fp32" in printed["against"][0]["server"]["name"]
    assert not any("like with like" in note for note in printed["notes"])
    printed = answer(store(*edge_runs(), *int8))
    assert "int8" in printed["against"][0]["server"]["name"]
    assert any("not like with like" in note for note in printed["notes"])


def test_the_energy_is_of_the_level_that_the_board_has_now(store):
    """The energy is 110 mJ and not 100, since the last twenty of sixty days take a tenth more.

    The caution says since when.
    """
    where = store(*make_days(noisy(100, 60, step_at=40, step_ratio=1.1)), *server_runs())
    now, all_days = (answer(where, *options) for options in ((), ("--all-days",)))
    assert now["edge_gross_mj"]["value"] == pytest.approx(110, rel=0.01)
    assert all_days["edge_gross_mj"]["value"] == pytest.approx(103.2, rel=0.005)
    assert "since 2024-11-13" in json.dumps(now)
    assert "since 2024-11-13" not in json.dumps(all_days)
