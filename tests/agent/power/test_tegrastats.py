"""Facts about `edgemeter.agent.power.tegrastats`."""

import functools
import os
import shutil
import time

import pytest

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, TransientError, UnavailableError
from edgemeter.agent.power import AbsentError
from edgemeter.agent.power.recording import PowerRecording
from edgemeter.agent.power.tegrastats import Tegrastats
from edgemeter.agent.power.world import SensorWorld
from tests.fixtures.recordings import read_recording, read_text_of
from tests.fixtures.rows import table_row

NANO = (
    "RAM 812/3964MB (lfb 71x4MB) SWAP 12/1982MB (cached 0MB) IRAM 0/252kB(lfb 252kB) CPU [12%@307,7%@307,3%@307,0%@307] EMC_FREQ 1%@1600 "
    "GR3D_FREQ 0%@76 APE 25 PLL@31C CPU@33.5C PMIC@100C GPU@32C AO@39C POM_5V_IN 1430/1422 POM_5V_GPU 40/41 POM_5V_CPU 327/330"
)
TX2 = (
    "RAM 1203/7852MB (lfb 900x4MB) CPU [4%@345,off,off,2%@345,0%@345,1%@345] EMC_FREQ 2%@1600 GR3D_FREQ 3%@114 APE 150 MTS fg 0% bg 0% "
    "PLL@36C PMIC@100C Tboard@31C VDD_SYS_GPU 229/190 VDD_SYS_SOC 763/763 VDD_4V0_WIFI 19/0 VDD_IN 3285/3170 "
    "VDD_SYS_CPU 305/267 VDD_SYS_DDR 902/893"
)
AGX_XAVIER = (
    "RAM 3011/31919MB (lfb 6001x4MB) SWAP 0/15959MB (cached 0MB) CPU [1%@1190,0%@1190,off,off] EMC_FREQ 0%@1331 GR3D_FREQ 0%@114 "
    "AUX@35C PMIC@50C GPU 155mW/233mW CPU 622mW/544mW SOC 1089mW/1089mW CV 0mW/0mW VDDRQ 311mW/311mW SYS5V 2728mW/2731mW"
)
AGX_ORIN = (
    "03-04-2024 08:00:01 RAM 1900/30623MB (lfb 5000x4MB) SWAP 0/15311MB (cached 0MB) CPU [0%@729,1%@729] EMC_FREQ 0%@204 "
    "GR3D_FREQ 0%@[305,305] CV0@-256C CPU@42.5C tj@43C VDD_GPU_SOC 3191mW/3191mW VDD_CPU_CV 399mW/420mW VIN_SYS_5V0 3742mW/3800mW "
    "NC 0mW/0mW VDDQ_VDD2_1V8AO 604mW/604mW NC 0mW/0mW"
)
ORIN_NANO = (
    "RAM 2310/7620MB (lfb 24x4MB) SWAP 0/3810MB (cached 0MB) CPU [3%@1190,off] GR3D_FREQ 41%@612 cpu@47.6C tj@48.2C "
    "VDD_IN 7160mW/6740mW VDD_CPU_GPU_CV 1760mW/1440mW VDD_SOC 2088mW/2068mW"
)
THOR = (
    "RAM 9001/125772MB (lfb 5x4MB) CPU [1%@972,0%@972] GR3D_FREQ 0% cpu@41.1C/41.3C tj@42.4C/42.4C VDD_GPU -392mW/-392mW/0mW "
    "VDD_CPU_SOC_MSS 6278mW/6300mW/6670mW VIN_SYS_5V0 5901mW/5910mW/6012mW VIN 25112mW/25080mW/26004mW"
)
TOTALS_W = {NANO: 1.43, TX2: 3.285, AGX_XAVIER: 4.905, AGX_ORIN: 7.332, ORIN_NANO: 7.16, THOR: 25.112}


class _Line:
    """A stream of one line."""

    def __init__(self, text):
        self._lines = [text]

    def line(self, _timeout_s):
        if self._lines:
            return self._lines.pop()
        message = "the recording has ended"
        raise UnavailableError(message)

    def close(self):
        self._lines = []


@pytest.fixture
def recorded(tmp_path):
    """Return what reads a text as a recording, by the reader that knows it."""
    return functools.partial(read_text_of, "tegrastats", tmp_path)


@pytest.mark.parametrize("line", TOTALS_W, ids=["nano", "tx2", "agx_xavier", "agx_orin", "orin_nano", "thor"])
def test_the_present_power_of_each_board_s_total_is_taken(recorded, line):
    """The first figure of a rail, in mW with or without a unit; never the mean behind it."""
    facts = recorded(line + "\n")
    assert facts.reading.power_w == pytest.approx(TOTALS_W[line])
    assert facts.description.scope == ("board-input" if line is THOR else "module")
    assert not {"RAM", "SWAP", "IRAM", "NC"}.intersection(rail.name for rail in facts.reading.rails)
    assert facts.description.warnings == ()
    # JetPack 4 prints no unit, and its driver takes 422 ms for a fresh value.
    assert facts.description.period_ms == (422.0 if line in (NANO, TX2) else 100.0)


@pytest.mark.parametrize("line", TOTALS_W, ids=["nano", "tx2", "agx_xavier", "agx_orin", "orin_nano", "thor"])
def test_a_line_that_is_cut_anywhere_gives_its_total_or_none(line):
    """Before or behind every character: never a part of a figure, never a sum without a rail."""
    outcomes = set()
    for cut in range(1, len(line)):
        for part in (line[:cut], line[cut:]):
            try:
                power_w = Tegrastats(world=SensorWorld(stream=lambda _, part=part: _Line(part), content=part.encode())).read().power_w
            except EdgemeterError:
                power_w = None
            outcomes.add(None if power_w is None else round(power_w, 6))
    assert outcomes == {None, TOTALS_W[line]}


def test_a_negative_rail_stays_negative(recorded):
    """A GPU at rest, off by a step."""
    assert next(rail.power_w for rail in recorded(THOR).reading.rails if rail.name == "VDD_GPU") == -0.392


def test_spaces_do_not_matter(recorded):
    """Between fields, around the slash, before the unit, at the ends."""
    line = ORIN_NANO.replace(" VDD_IN ", "   VDD_IN  ").replace("7160mW/6740mW", "7160mW / 6740mW ").replace("VDD_SOC ", "VDD_SOC\t")
    assert recorded(f"  {line}  \r\n").reading.power_w == pytest.approx(7.16)
    line = ORIN_NANO.replace("7160mW/6740mW", "7160 mW/6740 mW")
    assert [rail.power_w for rail in recorded(line).reading.rails] == [7.16, 1.76, 2.088]


def test_lines_without_rails_explain_that_root_sees_more(recorded):
    """As an ordinary user's on AGX Orin: an error, not 0 W."""
    with pytest.raises(UnavailableError, match="run as root") as refusal:
        recorded(AGX_ORIN.split(" VDD_GPU_SOC", maxsplit=1)[0])
    assert not isinstance(refusal.value, AbsentError)


def test_rails_that_make_no_total_are_named(recorded):
    """A board that we do not know."""
    with pytest.raises(UnavailableError, match="VDD_CORE, VDD_MEM"):
        recorded("RAM 1/2MB VDD_CORE 100mW/100mW VDD_MEM 50mW/50mW")


def test_a_rail_that_stands_twice_in_a_line_is_garbled(recorded):
    """Two lines that lost the break between them: neither figure is taken."""
    with pytest.raises(EdgemeterError, match="twice"):
        recorded(f"{ORIN_NANO} {ORIN_NANO.replace('7160', '9160')}")


def test_what_tegrastats_printed_in_place_of_figures_is_reported(recorded):
    """A recording of a failure is that failure."""
    for text in [
        "bash: tegrastats: command not found",
        "tegrastats: error while loading shared libraries: libc.so.6",
        "sudo tegrastats\nPassword:",
    ]:
        with table_row(text), pytest.raises(UnavailableError, match=text.split("\n", maxsplit=1)[0]):
            recorded(text)


def test_what_stands_before_the_first_line_is_passed_over(recorded):
    """The command, a prompt, the rest of a line; then the first whole line is the first reading."""
    text = f"$ sudo tegrastats --interval 1000\n\n_SOC 2088mW/2068mW\n{ORIN_NANO}\n{ORIN_NANO.replace('7160', '9160')}\n"
    assert recorded(text).reading.power_w == pytest.approx(7.16)


def test_a_recording_is_read_line_by_line(tmp_path):
    """Each reading a line; a cut one is a reading that failed; then the recording has ended."""
    path = tmp_path / "recorded.txt"
    path.write_text("\n".join((ORIN_NANO, ORIN_NANO.replace("7160", "8160"), ORIN_NANO[:-80], ORIN_NANO.replace("7160", "9160"))))
    with PowerRecording(path) as recording:
        sensor = Tegrastats(world=recording.world)
        assert [sensor.read().power_w, sensor.read().power_w] == [7.16, 8.16]
        with pytest.raises(TransientError, match="VDD_IN"):
            sensor.read()
        assert sensor.read().power_w == 9.16
        with pytest.raises(UnavailableError, match="has ended"):
            sensor.read()


def test_an_interval_that_is_none_is_refused():
    """With its value and the section that holds it."""
    for interval_ms in ["0", "fast", "-100", "1.5", ""]:
        with table_row(interval_ms), pytest.raises(ConfigError, match=r"interval_ms.*\[sensors.tegrastats\]"):
            Tegrastats(interval_ms=interval_ms).describe()


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return what puts a tegrastats of our own on the path."""

    def install(script):
        path = tmp_path / "bin" / "tegrastats"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")
        return tmp_path

    return install


def test_a_running_tegrastats_gives_its_newest_line(program):
    """Lines that wait are of the past; it is asked for the interval, and ended by close."""
    lines = "\\n".join(ORIN_NANO.replace("%", "%%").replace("7160", str(power)) for power in (7160, 7260, 7360))
    folder = program(f'echo $$ "$@" > "$(dirname "$0")/../asked"\nprintf "{lines}\\n"\nexec sleep 600')
    sensor = Tegrastats()
    assert sensor.describe().id == "tegrastats:VDD_IN"
    first, second = sensor.read(), sensor.read()
    assert (first.power_w, second.power_w) == (7.16, 7.36)
    assert second.taken_ns >= first.taken_ns
    process, *arguments = (folder / "asked").read_text().split()
    assert arguments == ["--interval", "100"]
    sensor.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(process), 0)


def test_after_a_pause_it_is_started_anew(program):
    """What a full pipe holds is old: the first line of a new process is not."""
    lines = "\\n".join(ORIN_NANO.replace("%", "%%").replace("7160", str(power)) for power in (7160, 7260))
    program(f'printf "{lines}\\n"\nexec sleep 600')
    sensor = Tegrastats()
    assert sensor.read().power_w == 7.16
    sensor._read_ns = time.monotonic_ns() - 3_000_000_000
    assert sensor.read().power_w == 7.16
    sensor.close()


def test_a_tegrastats_that_ends_is_an_error(program):
    """At once, and after a line."""
    program("exit 1")
    with pytest.raises(UnavailableError, match="ended unexpectedly"):
        Tegrastats().describe()
    program(f"echo '{ORIN_NANO}'")
    sensor = Tegrastats()
    assert sensor.read().power_w == 7.16
    with pytest.raises(UnavailableError, match="ended unexpectedly"):
        sensor.read()
    sensor.close()


def test_a_line_that_breaks_off_in_its_only_rail_is_not_taken_for_one_without_rails(recorded):
    """To run it as root would not help."""
    for end in ["VDD_IN 4", "VDD_IN 4556mW/", "VDD_I", "VDD_IN 45x6mW/4556mW"]:
        with table_row(end), pytest.raises(EdgemeterError, match="cut or garbled"):
            recorded(f"RAM 2147/7620MB (lfb 2x4MB) CPU [0%@729] tj@48.6C {end}")


@pytest.mark.skipif(shutil.which("tegrastats") is not None, reason="a Jetson")
def test_a_machine_without_it_is_reported():
    """It is absent, which is no fault."""
    with pytest.raises(AbsentError, match="no command 'tegrastats'"):
        Tegrastats().describe()


@pytest.mark.captures
@pytest.mark.parametrize(
    ("name", "power_w"),
    [
        ("nano_jp4", 1.022),
        ("tx2_jp4", 3.056),
        ("agx_xavier_jp5_mW", 0.467 + 0.467 + 1.245 + 0 + 0.311 + 2.768),
        ("agx_orin_jp5_NC_rails", 4.788 + 0.798 + 3.842),
        ("agx_orin_jp7_r39_triple_distinct", 2.792 + 0 + 3.918),
        ("orin_nano_super_jp6", 4.556),
    ],
)
def test_captured_lines_give_the_board_s_total(captures, name, power_w):
    """By hand from the first figures of each rail."""
    recording = read_recording(captures / f"jetson/tegrastats_{name}.txt")
    assert (recording.name, recording.description.scope) == ("tegrastats", "module")
    assert recording.reading.power_w == pytest.approx(power_w)


@pytest.mark.captures
def test_the_captured_line_of_an_ordinary_user_gives_none(captures):
    """It has no rails."""
    with (
        PowerRecording(captures / "jetson/tegrastats_agx_orin_nonroot_no_power.txt") as recording,
        pytest.raises(UnavailableError, match="root"),
    ):
        recording.read()
