"""Facts about `edgemeter.agent.machine.power_range`, the range of power a machine can draw."""

from edgemeter.agent.machine.power_range import board_ranges
from tests.fixtures.rows import table_row

PI_5, PI_4, PI_ZERO = (
    "Raspberry Pi 5 Model B Rev 1.0",
    "Raspberry Pi 4 Model B Rev 1.4",
    "Raspberry Pi Zero 2 W Rev 1.0",
)
NANO, ORIN_NANO = (
    "NVIDIA Jetson Nano Developer Kit",
    "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
)
AGX_ORIN, THOR = "NVIDIA Jetson AGX Orin Developer Kit", "NVIDIA Jetson AGX Thor Developer Kit"
CORAL = "Google i.MX8MQ Phanbell"


def _range(board):
    return next(
        limits for limits in board_ranges() if any(word in board.lower() for word in limits.words)
    )


def _allows(draws, scope, power_w):
    return draws.lowest_in(scope) <= power_w <= draws.highest_in(scope)


def test_what_a_machine_really_draws_is_in_its_range():
    """Idle and peak power of real boards fit.

    The boards are seen with hats, drives, accelerators and a small monitor.
    """
    for board, scope, powers_w in [
        (PI_5, "board-input", (2.4, 12.0, 27.0, 35.0)),
        (PI_4, "board-input", (1.6, 7.0, 25.5)),
        (PI_ZERO, "board-input", (0.4, 3.0, 8.0)),
        (ORIN_NANO, "module", (4.5, 25.0, 45.0)),
        (AGX_ORIN, "module", (6.7, 60.0, 110.0)),
        (THOR, "board-input", (25.0, 140.0, 240.0)),
        (PI_5, "gpu-board", (220.0,)),
        (PI_5, "soc-rails", (0.02, 8.0)),
    ]:
        draws = _range(board)
        for power_w in powers_w:
            with table_row(board, scope, power_w):
                assert _allows(draws, scope, power_w)


def test_a_factor_of_ten_is_none_that_a_listed_board_draws():
    """Ten times or a tenth of a board's usual power leaves its range, idle or under load.

    Such an error comes from a shunt of 0.01 Ohm that is taken for 0.1 Ohm.
    """
    for board, idle_w, load_w in [
        (PI_5, 3.0, 8.0), (PI_4, 2.8, 6.0), (PI_ZERO, 0.5, 2.0), (NANO, 1.5, 8.0),
        (ORIN_NANO, 4.5, 15.0), (AGX_ORIN, 8.0, 40.0), (THOR, 30.0, 90.0), (CORAL, 2.8, 5.0),
    ]:  # fmt: skip
        for scope in ("board-input", "wall-ac"):
            for factor in (10, 0.1):
                with table_row(board, scope, factor):
                    assert not all(
                        _allows(_range(board), scope, factor * power_w)
                        for power_w in (idle_w, load_w)
                    )
