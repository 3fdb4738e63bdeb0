import math

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import USB_DEVICES, Rail, jetson_rails
from tests.fixtures.jetson_trees import device_tree
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import in_folders, table_row

ALL = {
    "POM_5V_IN": "POM_5V_IN POM_5V_GPU POM_5V_CPU",
    "VDD_IN": (
        "VDD_SYS_GPU VDD_SYS_SOC VDD_4V0_WIFI VDD_IN VDD_SYS_CPU VDD_SYS_DDR VDD_MUX VDD_5V0_IO_SYS"
    ),
    "VDD_IN ": "VDD_IN VDD_CPU_GPU_CV VDD_SOC",
    "GPU+CPU+SOC+CV+VDDRQ+SYS5V": "SYS5V VDDRQ CV SOC CPU GPU",
    "VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0": "VDDQ_VDD2_1V8AO VIN_SYS_5V0 VDD_CPU_CV VDD_GPU_SOC",
    "VIN": "VDD_GPU VDD_CPU_SOC_MSS VIN_SYS_5V0 VIN",
}


def _rails(**powers_w):
    return [Rail(name, power_w) for name, power_w in powers_w.items()]


def test_each_board_adds_up_its_own_rails_and_no_other():
    """Powers of two identify each sum, so that no rail is counted twice or left out."""
    for total, names in ALL.items():
        with table_row(total):
            rails = [Rail(name, float(2**index)) for index, name in enumerate(names.split())]
            board = jetson_rails.board_of([rail.name for rail in rails])
            expected = sum(rail.power_w for rail in rails if rail.name in total.strip().split("+"))
            assert jetson_rails.total_w(board, rails) == expected
            description = jetson_rails.describe("jtop", board, rails, 100.0)
            assert description.id == f"jtop:{total.strip()}"
            assert description.scope == ("board-input" if total == "VIN" else "module")
            assert (
                USB_DEVICES in description.excludes,
                "carrier board" in description.excludes,
            ) == (total != "VIN",) * 2
            assert "power-supply loss" in description.excludes


def test_without_one_of_its_rails_there_is_no_total():
    """Each rail is removed in turn; the message names the present rails and the missing one."""
    for total, names in ALL.items():
        with table_row(total):
            for missing in total.strip().split("+"):
                rails = [name for name in names.split() if name != missing]
                with pytest.raises(UnavailableError, match=rf"needs .*{missing}") as refusal:
                    jetson_rails.board_of(rails)
                assert all(name in str(refusal.value) for name in rails)


def test_the_device_tree_overrules_a_likeness_of_names(tmp_path):
    """A rail called VDD_IN is the total on an Orin Nano but not on a Thor."""
    write(
        tmp_path,
        device_tree(
            "NVIDIA Jetson AGX Thor Developer Kit",
            "nvidia,p4071-0000+p3834-0008",
            "nvidia,p3834-0008",
            "nvidia,tegra264",
        ),
    )
    tree_names = jetson_rails.device_tree_names(tmp_path)
    with pytest.raises(UnavailableError, match="Jetson Thor needs VIN"):
        jetson_rails.board_of(["VDD_IN", "VDD_SOC"], tree_names)
    assert jetson_rails.board_of(["VDD_IN", "VDD_SOC"], "").total.keys() == {"VDD_IN"}
    assert jetson_rails.board_of(["VIN", "VDD_GPU"], tree_names) is jetson_rails.THOR


def test_a_device_tree_leaves_its_own_board_possible(tmp_path):
    """The model alone is enough, as some recordings have only that.

    An unknown board is recognised by the names of its rails.
    """
    for folder, model, compatible, total in in_folders(
        tmp_path,
        [
            (
                "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
                "nvidia,p3767-0005 nvidia,tegra234",
                "VDD_IN",
            ),
            ("NVIDIA Jetson TX2 NX Developer Kit", "nvidia,tegra186", "VDD_IN"),
            ("NVIDIA Jetson Nano Developer Kit", "nvidia,jetson-nano nvidia,tegra210", "POM_5V_IN"),
            (
                "NVIDIA Jetson AGX Orin Developer Kit",
                "nvidia,p3737-0000+p3701-0005 nvidia,tegra234",
                "VDD_GPU_SOC",
            ),
            ("Jetson-AGX", "nvidia,p2822-0000+p2888-0001 nvidia,tegra194", "GPU"),
            ("somebody's own board", "acme,box", "VDD_IN"),
        ],
    ):
        rails = next(names.split() for names in ALL.values() if total in names.split())
        tree = write(folder, device_tree(model, *compatible.split()))
        assert total in jetson_rails.board_of(rails, jetson_rails.device_tree_names(tree)).total, (
            f"{model!r}"
        )
        (tree / "proc/device-tree/compatible").unlink()
        assert total in jetson_rails.board_of(rails, jetson_rails.device_tree_names(tree)).total, (
            f"{model!r}"
        )


def test_the_usual_steps_are_those_of_shunt_and_voltage():
    """The step is 40 uV over the shunt, times the voltage: 40 mW for 5 mOhm and 5 V.

    AGX Orin's steps of 400, 400 and 100 mW add up in squares; Thor's step is not known.
    """

    def step_w(*names):
        rails = [Rail(name, 1.0) for name in names]
        return jetson_rails.describe("x", jetson_rails.board_of(names), rails, 100.0).resolution_w

    assert step_w("POM_5V_IN") == pytest.approx(0.040)
    assert step_w("VDD_IN", "VDD_SOC") == pytest.approx(0.040)
    assert step_w("VDD_IN", "VDD_SYS_GPU") == pytest.approx(0.152)
    assert step_w("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0") == pytest.approx(
        math.sqrt(0.4**2 + 0.4**2 + 0.1**2)
    )
    assert step_w("VIN") is None


def test_a_negative_rail_is_added_as_it_is():
    """Cutting an idle rail's offset off at zero would raise the mean.

    The offset is one step in either direction.
    """
    rails = _rails(VDD_GPU_SOC=-0.398, VDD_CPU_CV=0.4, VIN_SYS_5V0=3.0)
    assert jetson_rails.total_w(
        jetson_rails.board_of([rail.name for rail in rails]), rails
    ) == pytest.approx(3.002)


@pytest.mark.parametrize(
    ("power_w", "reason"),
    [
        (None, "VDD_CPU_CV"),
        (7.16e7, r"'VDD_CPU_CV' shows .*e.07 W, more than its maximum"),
        (-7.16e7, r"'VDD_CPU_CV' shows .*e.07 W, more than its maximum"),
    ],
    ids=["not read", "beyond the maximum", "beyond the maximum, negative"],
)
def test_a_rail_of_the_total_that_is_not_read_or_garbled_fails_the_reading(power_w, reason):
    """A rail that was not read is no zero, and none shows what no board draws.

    The error names the rail. A power beyond the maximum of a rail is garbled in either direction.
    """
    rails = _rails(VDD_GPU_SOC=1.0, VDD_CPU_CV=power_w, VIN_SYS_5V0=3.0)
    with pytest.raises(TransientError, match=reason):
        jetson_rails.total_w(jetson_rails.board_of([rail.name for rail in rails]), rails)


def test_parts_beyond_their_whole_raise_a_doubt():
    """More than a tenth is doubted, as on a Nano whose rails are named in the wrong order."""

    def warnings(**powers_w):
        rails = _rails(**powers_w)
        return jetson_rails.describe("x", jetson_rails.board_of(powers_w), rails, 100.0).warnings

    (doubt,) = warnings(POM_5V_IN=3.1, POM_5V_GPU=8.8, POM_5V_CPU=0.4)
    assert "POM_5V_GPU 8.80 W" in doubt
    assert "3.10 W" in doubt
    assert warnings(POM_5V_IN=3.1, POM_5V_GPU=3.0, POM_5V_CPU=0.4) == ()
    # A rail next to VDD_IN, on the carrier of a TX2, is not part of it.
    assert warnings(VDD_IN=3.0, VDD_SYS_GPU=0.2, VDD_MUX=9.0) == ()
