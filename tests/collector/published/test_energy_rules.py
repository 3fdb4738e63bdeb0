import pytest

from edgemeter.collector.published.rules import evidence_of
from tests.fixtures.published_rows import published_row

PI = "Raspberry Pi 5"


def judge(rule, *figures, device=PI, model="YOLO11n", **fields):
    """Return the evidence of a rule on the first of several figures of a case, None without."""
    rows = [published_row(figure, value, model, device, **(fields | dict(*row_fields))) for figure, value, *row_fields in figures]
    return next((entry for entry in evidence_of(rows[0], rows[1:]) if entry.rule == rule), None)


# 7 W / 12.5 a second = 560 mJ.
@pytest.mark.parametrize(("energy_mj", "state"), [(560.0, "plausible"), (900.0, "plausible"), (530.0, "plausible"), (490.0, "impossible")])
def test_energy_is_at_least_power_by_time(energy_mj, state):
    """Beyond the rounding of all three: 7 W is 6.65 W at least, 12.5 is 12.55 at most."""
    assert judge("energy-below-power", ("energy", energy_mj), ("power", 7.0), ("throughput", 12.5)).state == state


def test_the_sentence_has_both_sides():
    """Power, time and energy with their units."""
    evidence = judge("energy-below-power", ("energy", 100.0), ("power", 7.0), ("throughput", 12.5))
    assert evidence.sentence.startswith("7 W / 12.5 inferences/s = 560 mJ, and 100 mJ are stated: energy below what the stated power")
    assert (evidence.value, evidence.limit, evidence.unit) == (100.0, pytest.approx(560), "mJ")


@pytest.mark.parametrize(
    ("energy", "power", "state"),
    [
        ({}, {}, "impossible"),
        ({"scope": "wall-ac"}, {"scope": "wall-ac"}, "impossible"),
        ({"scope": "soc-rails"}, {"scope": "wall-ac"}, None),
        ({}, {"scope": "wall-ac"}, "unclear"),
        ({}, {"statistic": "max"}, None),
        ({"conditions": "energy above idle"}, {"conditions": "energy above idle"}, "unclear"),
        ({"conditions": "7 W, 3 W idle, idle power 3 W"}, {"conditions": "7 W, 3 W idle, idle power 3 W"}, "impossible"),
        ({"conditions": "idle-subtracted"}, {"conditions": "idle-subtracted"}, "unclear"),
        ({"conditions": "peak power at the wall"}, {"conditions": "peak power at the wall"}, None),
    ],
)
def test_only_powers_of_the_same_parts_are_held_against_it(energy, power, state):
    """A peak is no mean, and rails are no wall."""
    evidence = judge("energy-below-power", ("energy", 50.0, energy), ("power", 7.0, power), ("throughput", 12.5))
    assert (evidence.state if evidence else None) == state


def test_a_latency_alone_accuses_only_on_the_cores():
    """A pipeline has several inferences on their way in one latency."""
    figures = (("energy", 50.0), ("power", 7.0), ("latency", 80.0))
    assert judge("energy-below-power", *figures).state == "unclear"
    assert judge("energy-below-power", *figures, backend="cpu").state == "impossible"
    assert judge("energy-below-power", *figures, backend="cpu", batch=16).state == "plausible"


def test_tokens_are_shared_by_a_batch():
    """2 W / 20 tokens/s = 100 mJ; of eight at once 12.5 may be right."""
    figures = (("energy-output-token", 0.0131), ("power", 2.0), ("tokens", 20.0))
    assert judge("energy-below-power", *figures, model="Llama 3.2 3B").state == "impossible"
    assert judge("energy-below-power", *figures, model="Llama 3.2 3B", batch=8).state == "plausible"
    assert judge("energy-below-power", ("energy-prefill-token", 0.01), ("power", 5.0), ("prefill-tokens", 100.0)).state == "impossible"
    assert judge("energy-below-power", ("energy-output-token", 0.01), ("power", 5.0), ("tpot", 50.0), backend="cpu").state == "impossible"


def test_a_net_energy_is_not_held_against_power():
    """It lacks what the machine draws at rest."""
    assert judge("energy-below-power", ("energy-net", 50.0), ("power", 7.0), ("throughput", 12.5)) is None


@pytest.mark.parametrize(
    ("watts", "fields", "state"),
    [
        (6.0, {"scope": "board-input"}, "plausible"),
        (0.6, {"scope": "board-input"}, "impossible"),
        (0.6, {"scope": "soc-rails"}, "plausible"),
        (0.6, {}, "unclear"),
        (1.2, {}, "plausible"),
        (0.6, {"scope": "board-input", "conditions": "net of idle"}, "plausible"),
        (45.0, {"scope": "board-input"}, "impossible"),
        (45.0, {"scope": "wall-ac"}, "plausible"),
        (45.0, {}, "plausible"),
        (100.5, {"scope": "board-input", "statistic": "max"}, "plausible"),
        (6200.0, {"unit": "mW", "scope": "board-input"}, "plausible"),
    ],
)
def test_a_power_lies_in_the_range_of_its_board(watts, fields, state):
    """1 to 40 W at the input of a Raspberry Pi 5; more at the wall, less of parts, three times as much in a peak."""
    assert judge("power-outside-board", ("power", watts, fields)).state == state


def test_a_power_has_no_batch():
    """How many are in one does not change what a board draws at least."""
    evidence = judge("power-outside-board", ("power", 0.3, {"scope": "wall-ac"}), device="Raspberry Pi 4", model="YOLOv8n")
    assert evidence.state == "impossible"
    assert "batch" not in evidence.sentence


def test_a_microcontroller_is_no_raspberry_pi():
    """A Pico runs on 0.1 W, and 25 W are none that it draws."""
    assert judge("power-outside-board", ("power", 0.1, {"scope": "board-input"}), device="Raspberry Pi Pico 2").state == "plausible"
    assert judge("power-outside-board", ("power", 25.0, {"scope": "board-input"}), device="Raspberry Pi Pico").state == "impossible"


def test_a_sum_that_rounding_alone_allows_names_the_rounding():
    """6 J x 10 tokens/s = 60 W; 5.7 J x 9.5 = 54.2, and 56 W are possible."""
    evidence = judge("power-outside-board", ("energy-output-token", 6.0, {"unit": "J/token"}), ("tokens", 10.0), model="Llama 3.2 1B")
    assert evidence.state == "plausible"
    assert evidence.sentence.startswith("6,000 mJ x 10 tokens/s = 60 W, and Raspberry Pi 5 draws at most 40 W x 1.4")
    assert evidence.sentence.endswith(": possible within the rounding of what is stated")


NANO, AGX = "Jetson Orin Nano", "Jetson AGX Orin"


@pytest.mark.parametrize(
    ("energy_mj", "device", "fields", "state"),
    [
        # 8.7 Gop / 200 TOPS/W = 0.0435 mJ; at 64 pixels a hundredth.
        (0.004, NANO, {"input_size": "640"}, "impossible"),
        (0.04, NANO, {"input_size": "640"}, "impossible"),
        (0.046, NANO, {"input_size": "640"}, None),
        (0.004, NANO, {}, "unclear"),
        (0.0004, NANO, {}, "impossible"),
        (0.004, NANO, {"input_size": "640", "scope": "soc-rails"}, "unclear"),
        (0.004, "a chip of a paper", {"input_size": "640"}, "unclear"),
        (30.0, NANO, {"input_size": "640"}, None),
    ],
)
def test_operations_take_energy(energy_mj, device, fields, state):
    """4 uJ for YOLOv8n are 2,200 TOPS/W; the best accelerator has 18, and ten times that is allowed for."""
    evidence = judge("energy-below-operations", ("energy", energy_mj), device=device, model="YOLOv8n", precision="INT8", **fields)
    assert (evidence.state if evidence else None) == state


def test_a_token_takes_operations():
    """2 x 6.98 x 10^9 / 200 TOPS/W = 0.07 mJ, for a prompt's and an answer's."""
    fields = {"device": AGX, "model": "Llama 3.1 8B", "unit": "mJ/token"}
    for figure in ("energy-output-token", "energy-prefill-token"):
        assert judge("energy-below-operations", (figure, 0.05), batch=512, **fields).state == "impossible"
        assert judge("energy-below-operations", (figure, 0.09), batch=512, **fields) is None
    assert judge("energy-below-operations", ("energy-prefill-token", 0.05), conditions="cached prompt", **fields).state == "unclear"


@pytest.mark.parametrize(
    ("energy_mj", "fields", "state"),
    [
        # 7,504,924,672 x 4.5 bits x 0.39 pJ = 13.2 mJ; 13.0 without what caches hold.
        (0.5, {"batch": 1, "speculative": "off"}, "impossible"),
        (12.0, {"batch": 1, "speculative": "off"}, "impossible"),
        (14.0, {"batch": 1, "speculative": "off"}, None),
        (0.5, {"batch": 1}, "unclear"),
        (0.5, {}, "unclear"),
        (0.5, {"batch": 32, "speculative": "off"}, None),
        (0.5, {"batch": 8, "speculative": "off"}, "impossible"),
        (0.5, {"batch": 1, "speculative": "off", "scope": "soc-rails"}, "unclear"),
        (1500.0, {}, None),
    ],
)
def test_reading_the_weights_takes_energy(energy_mj, fields, state):
    """A bit of HBM takes 3.92 pJ; a tenth of that is the bound, and several tokens share one reading."""
    figure = ("energy-output-token", energy_mj, {"unit": "mJ/token"})
    evidence = judge("energy-below-reading", figure, device=AGX, model="Llama 3.1 8B", precision="Q4_K_M", **fields)
    assert (evidence.state if evidence else None) == state


def test_a_board_without_a_range_is_unclear():
    """An accelerator without its board, a card with its own supply, several of an unknown number."""
    for device in ("Hailo-10H", "Raspberry Pi 5 with eGPU", "Raspberry Pi 5 cluster", "Mac mini"):
        evidence = judge("power-outside-board", ("power", 3.0), device=device)
        assert evidence.state == "unclear"
        assert "no bound of this board is on record" in evidence.sentence


def test_several_boards_draw_several_times_as_much():
    """Four of them up to 160 W."""
    assert judge("power-outside-board", ("power", 150.5, {"scope": "board-input"}), device="4 x Raspberry Pi 5").state == "plausible"


@pytest.mark.parametrize(
    ("energy", "unit", "time", "state"),
    [
        # 1,116 mJ in 427 ms are 2.6 W.
        (0.31, "mWh", ("latency", 427.0), "plausible"),
        (0.31, "Wh", ("latency", 427.0), "impossible"),
        # 88 ms: 0.31 J are 3.5 W, 0.31 mJ 3.5 mW; but of how many at once?
        (0.31, "J", ("throughput", 11.4), "plausible"),
        (0.31, "mJ", ("throughput", 11.4), "impossible"),
        (0.31, "mJ", ("latency", 88.0), "unclear"),
        (31.5, "J", ("throughput", 11.4), "impossible"),
        # 12 ms: 0.6 J are 50 W, which the rest of a request may have drawn; 60 J are 5 kW.
        (0.6, "J", ("latency", 12.0), "unclear"),
        (60.0, "J", ("latency", 12.0), "impossible"),
    ],
)
def test_energy_by_time_is_a_power_of_the_board(energy, unit, time, state):
    """A wrong unit leaves the range; of a latency alone it may be that more ran at once."""
    assert judge("power-outside-board", ("energy", energy, {"unit": unit, "scope": "board-input"}), time).state == state
