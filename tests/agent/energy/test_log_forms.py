"""Facts about `edgemeter.agent.energy.power_log`, with logs as others have them.

Each is of 2, 4 and 2 W half a second apart, which are 3 J.
"""

import re

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.energy.power_log import energy_of, read_log
from tests.fixtures.rows import table_row

ORIN = (
    "RAM 2147/7620MB (lfb 2x4MB) CPU [0%@729,off] GR3D_FREQ 0% cpu@47.6C VDD_IN {0}mW/{0}mW "
    "VDD_CPU_GPU_CV 483mW/483mW VDD_SOC 451mW/451mW"
)
POWERS_MW = (2000, 4000, 2000)


@pytest.fixture
def energy(tmp_path):
    def of(content, between=None, time_column=None, power_column=None):
        path = tmp_path / "power.log"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return energy_of(read_log(path, time_column, power_column), between)

    return of


def tegrastats(prefixes, line=ORIN):
    """Return a log of three lines, each behind its prefix."""
    return "".join(
        f"{prefix}{line.format(power)}\n" for prefix, power in zip(prefixes, POWERS_MW, strict=True)
    )


OWN = [f"05-22-2026 11:00:0{second} " for second in (0, 1, 2)]
HALVES = ("00.0", "00.5", "01.0")
PREFIXED = {
    "ts with a year": [f"2026-05-22 11:00:{second} " for second in HALVES],
    "ts '%.s'": [f"17000000{second} " for second in HALVES],
    "ts -s '%.s'": ["0.000104 ", "0.500104 ", "1.000104 "],
    "ts '%H:%M:%.S' over midnight": ["23:59:59.5 ", "00:00:00.0 ", "00:00:00.5 "],
    "ts over New Year": ["Dec 31 23:59:59.5 ", "Jan  1 00:00:00 ", "Jan  1 00:00:00.5 "],
    "kubectl --timestamps": [
        f"2026-05-22T11:00:{second}00118Z [pod/bench-7c9/agent] {stamp}"
        for second, stamp in zip(HALVES, OWN, strict=True)
    ],
    "docker logs -t": [
        f"2026-05-22T11:00:{second}00000118Z {stamp}"
        for second, stamp in zip(HALVES, OWN, strict=True)
    ],
    "journalctl -o short-precise": [
        f"May 22 11:00:{second}00118 nano tegrastats[812]: {stamp}"
        for second, stamp in zip(HALVES, OWN, strict=True)
    ],
    "journalctl -o short-iso-precise": [
        f"2026-05-22T11:00:{second}00118+0200 nano tegrastats[812]: " for second in HALVES
    ],
    "journalctl -o short-monotonic": [
        f"[   12{second}00118] nano tegrastats[812]: {stamp}"
        for second, stamp in zip(HALVES, OWN, strict=True)
    ],
    "rsyslog": [
        f"2026-05-22T11:00:{second}00118+00:00 nano-2 tegra[{pid}]: "
        for pid, second in enumerate(HALVES)
    ],
    "RFC 5424": [
        f"<13>1 2026-05-22T11:00:{second}00118Z nano tegra - - - {stamp}"
        for second, stamp in zip(HALVES, OWN, strict=True)
    ],
    "parallel --tag": [f"nano-2\t2026-05-22 11:00:{second} " for second in HALVES],
    "date": [f"Fri May 22 11:00:{second} CEST 2026 " for second in HALVES],
    "date, day first": [f"Fri 22 May 2026 11:00:{second} AM UTC: " for second in HALVES],
    "date on a line of its stamp": [f"Fri May 22 11:00:{second} UTC 2026\n" for second in HALVES],
    "date +%s.%N": [f"nano: 17000000{second}00000 " for second in HALVES],
    "Python's logging": [
        f"2026-05-22 11:00:{second.replace('.', ',')}00 - INFO - " for second in HALVES
    ],
}
BOARDS = {
    "Nano, JetPack 4": (
        "RAM 534/3964MB IRAM 0/252kB(lfb 252kB) CPU [16%@204] PLL@34C POM_5V_IN {0}/1022 "
        "POM_5V_GPU 0/0 POM_5V_CPU 204/204"
    ),
    "TX2, JetPack 4": (
        "RAM 2344/7852MB (lfb 1x4MB) CPU [1%@345,off] VDD_SYS_GPU 152/152 VDD_IN {0}/3056 "
        "VDD_SYS_CPU 152/152"
    ),
    "Xavier NX, JetPack 4": (
        "RAM 2344/7852MB (lfb 1x4MB) VDD_IN {0}/3056 VDD_CPU_GPU_CV 152/152 VDD_SOC 52/52"
    ),
    "Thor": (
        "RAM 999/62841MB CPU [0%@729] VDD_GPU 792mW/792mW VDD_CPU_SOC_MSS 0mW/0mW VIN_SYS_5V0 "
        "918mW/918mW VIN {0}mW/2000mW"
    ),
}


def test_tegrastats_of_every_board_is_read(energy):
    """Values with and without units are read over two seconds.

    Rails are added up where a board has no rail of the whole.
    """
    for name, line in BOARDS.items():
        with table_row(name):
            assert energy(tegrastats(OWN, line)).energy_j == pytest.approx(6)
    agx = (
        "GPU 467mW/467mW CPU {0}mW/467mW SOC 1245mW/1245mW CV 0mW/0mW VDDRQ 311mW/311mW SYS5V "
        "2768mW/2768mW"
    )
    assert energy(tegrastats(OWN, agx)).energy_j == pytest.approx(6 + 2 * 4.791)


PLAIN = tegrastats(PREFIXED["kubectl --timestamps"])
MANGLED = {
    "CRLF": PLAIN.replace("\n", "\r\n").encode(),
    "CR alone": PLAIN.replace("\n", "\r").encode(),
    "NUL bytes": PLAIN.encode() + bytes(400) + b"\n",
    "UTF-16 of PowerShell": PLAIN.encode("utf-16"),
    "UTF-16 big-endian": b"\xfe\xff" + PLAIN.encode("utf-16-be"),
    "UTF-8 with a mark": PLAIN.encode("utf-8-sig"),
    "Latin-1": PLAIN.encode() + b"caf\xe9 45\xb0C\n",
    "colours": "".join(f"\x1b[32m{line}\x1b[0m\n" for line in PLAIN.splitlines()).encode(),
    "other lines between": PLAIN.replace(
        "\n", "\nEpoch 3/10 loss 0.12, 12:30 left\nvdd ok\n"
    ).encode(),
    "a last line that is cut off": (
        PLAIN + PLAIN.splitlines()[0].replace("11:00:00.0", "11:00:01.5")[:150]
    ).encode(),
    "a container's log in JSON": "".join(
        f'{{"log":"{ORIN.format(power)}\\n","stream":"stdout",'
        f'"time":"2026-05-22T11:00:{second}00118Z"}}\n'
        for second, power in zip(HALVES, POWERS_MW, strict=True)
    ).encode(),
}


NVIDIA = [f"2026/05/22 11:00:{second}00" for second in HALVES]
TABLES = {
    "nvidia-smi": "timestamp, index, power.draw [W], utilization.gpu [%]\n"
    f"{NVIDIA[0]}, 0, 2.00 W, 3 %\n{NVIDIA[1]}, 0, 4.00 W, 99 %\n{NVIDIA[2]}, 0, 2.00 W, 40 %\n",
    "nvidia-smi with limits": (
        "timestamp, power.limit [W], power.draw [W], enforced.power.limit [W]\n"
        f"{NVIDIA[0]}, 70.00 W, 2.00 W, 70.00 W\n"
        f"{NVIDIA[1]}, 70.00 W, 4.00 W, 70.00 W\n"
        f"{NVIDIA[2]}, 70.00 W, 2.00 W, 70.00 W\n"
    ),
    "nvidia-smi without units": (
        f"timestamp, power.draw [W]\n{NVIDIA[0]}, 2.00\n{NVIDIA[1]}, 4.00\n{NVIDIA[2]}, 2.00\n"
    ),
    "nvidia-smi without a heading": (
        f"{NVIDIA[0]}, 0, 2.00 W, 3 %\n{NVIDIA[1]}, 0, 4.00 W, 99 %\n{NVIDIA[2]}, 0, 2.00 W, 40 %\n"
    ),
    "volts and amperes": (
        "Time (s),Main(mA),Main Voltage(V)\n0.0,500,4.0\n0.5,1000,4.0\n1.0,500,4.0\n"
    ),
    "FNIRSI": "timestamp sample_in_packet voltage_V current_A dp_V dn_V\n"
    "1700000000.0 0 5 .4 0 0\n1700000000.5 1 5 .8 0 0\n1700000001.0 2 5 .4 0 0\n",
    "a heading that comes again": (
        f"timestamp, power.draw [W]\n{NVIDIA[0]}, 2.00 W\n{NVIDIA[1]}, 4.00 W\n"
        f"timestamp, power.draw [W]\n{NVIDIA[2]}, 2.00 W\n"
    ),
    "Joulescope": (
        "#time,current,voltage,power,charge,energy\n0.0,0.4,5.0,2.0,0,0\n0.5,0.8,5.0,4.0,0.2,1\n"
        "1.0,0.4,5.0,2.0,0.6,3\n"
    ),
    "Otii": (
        '"Timestamp","Main current (A)","Main power (W)","Main energy (J)"\n0.0,0.4,2.0,0\n'
        "0.5,0.8,4.0,1.5\n1.0,0.4,2.0,3\n"
    ),
    "Monsoon": (
        "Time (s),Main Avg Current (mA),Main Avg Power (mW),Main Avg Voltage (V)\n"
        "0.0,500,2000,4\n0.5,1000,4000,4\n1.0,500,2000,4\n"
    ),
    "units in a second line": (
        "Time;Power;Voltage\n[ms];[mW];[V]\n0;2000;5\n500;4000;5\n1000;2000;5\n"
    ),
    "decimal commas": "sep=;\nZeit;t_s;P_W\nx;0,0;2,0\nx;0,5;4,0\nx;1,0;2,0\n",
    "tabs": "time\tpower (W)\n0.0\t2\n0.5\t4\n1.0\t2\n",
    "blanks": (
        "timestamp current_A power_W\n1700000000.0 0.4 2.0\n1700000000.5 0.8 "
        "4.0\n1700000001.0 0.4 2.0\n"
    ),
    "thousands": 'time_s,power_mW\n0.0,"2,000.0"\n0.5,"4,000.0"\n1.0,"2,000.0"\n',
    "thousands and units": 't_ms,P[mW]\n0,"2,000.0 mW"\n500,"4,000.0 mW"\n1000,"2,000.0 mW"\n',
    "points between thousands": "t [s];P [mW]\n0,0;2.000,0\n0,5;4.000,0\n1,0;2.000,0\n",
    "seconds since 1970": "timestamp,Watts\n1700000000.0,2\n1700000000.5,4\n1700000001.0,2\n",
    "milliseconds since 1970": (
        "timestamp,active_power\n1700000000000,2\n1700000000500,4\n1700000001000,2\n"
    ),
    "microseconds since 1970": "ts,p\n1700000000000000,2\n1700000000500000,4\n1700000001000000,2\n",
    "nanoseconds since 1970": (
        "name,time,power\nm,1700000000000000000,2\nm,1700000000500000000,4\n"
        "m,1700000001000000000,2\n"
    ),
    "a clock over midnight": "Time,Power(W)\n23:59:59.5,2\n00:00:00.0,4\n00:00:00.5,2\n",
    "a day and a clock": (
        "Date,Time,Voltage(V),Power(W)\n22.05.2026,23:59:59.5,5,2\n23.05.2026,00:00:00.0,5,4\n"
        "23.05.2026,00:00:00.5,5,2\n"
    ),
    "a clock of twelve hours": (
        "Date/Time,Watts\n5/22/2026 11:59:59.5 AM,2\n5/22/2026 12:00:00.0 PM,4\n5/22/2026 "
        "12:00:00.5 PM,2\n"
    ),
    "Shelly": "Timestamp,id,apower,voltage\n"
    + "".join(
        f"2026-05-22T11:00:{second}+02:00,0,{power / 1000},242.7\n"
        for second, power in zip(HALVES, POWERS_MW, strict=True)
    ),
    "micro": "time [µs],power [µW]\n0,2000000\n500000,4000000\n1000000,2000000\n",
    "words before the heading": (
        "# time and power\nof a meter, at a board\ntime_s,power_W\n0.0,2\n0.5,4\n1.0,2\n"
    ),
    "nvidia-smi dmon": (
        "#Date       Time        gpu    pwr  gtemp\n#YYYYMMDD   HH:MM:SS    Idx      W      C\n"
        " 20260522   11:00:00      0      2     45\n 20260522   11:00:00.5    0      4      -\n"
        " 20260522   11:00:01      0      2     45\n"
    ),
    "pandas": "\ttime\tpower\n0\t0.0\t2\n1\t0.5\t4\n2\t1.0\t2\n",
    "other lines between": "t [s],power_W\n0.0,2\nEPOCH 3/10\n0.5,4\nLOSS 1/2, 3\n1.0,2\n",
    "a column that looks like a unit": "time,power,state\n0.0,2,s\n0.5,4,w\n1.0,2,s\n",
    "other units": "time_s,power_factor,apparent_power,Power (VA),Power (kW),max power (W)\n"
    "0.0,0.9,3,3,0.002,9\n0.5,0.9,6,6,0.004,9\n1.0,0.9,3,3,0.002,9\n",
    "a last number that is cut off": "time_s,power_W\n0.0,2.00\n0.5,4.00\n1.0,2.00\n1.5,2",
    "a last line without an end": "time_s,power_W\n0.0,2.00\n0.5,4.00\n1.0,2.00",
    "readings that failed": "timestamp, power.draw [W]\n"
    f"{NVIDIA[0]}, 2.00\n2026/05/22 11:00:00.250, [N/A]\n{NVIDIA[1]}, 4.00\n2026/05/22 "
    f"11:00:00.750, [Not Supported]\n{NVIDIA[2]}, 2.00\n",
}


LOGS = {name: tegrastats(prefixes) for name, prefixes in PREFIXED.items()} | MANGLED | TABLES


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_read_whatever_its_prefix_its_encoding_and_its_columns(energy, name):
    """Prefixes of `ts`, containers, journals, syslog and shells are read before tegrastats' lines.

    The finer stamp counts, also over midnight and New Year. Line ends, encodings, colours and the
    output of other programs in between do not matter. Of meters and nvidia-smi, names, units,
    delimiters and stamps identify the columns without an option.
    """
    result = energy(LOGS[name])
    assert (result.energy_j, result.window_s) == pytest.approx((3, 1), abs=1e-5)


def test_a_column_that_is_named_may_be_given_its_unit(energy):
    """The columns of jtop have no units, and several of them are powers."""
    content = (
        "time,uptime,Power CPU,Power TOT\n{0}0,1,9,2000\n{0}0.5,2,9,4000\n{0}1,3,9,2000\n".format(
            "2026-05-22 11:00:0"
        )
    )
    content = content.replace("00.5", "00.500").replace(":001", ":01")
    assert energy(content, power_column="Power TOT [mW]").energy_j == pytest.approx(3)
    content = "sample,tick,load\n1,0,2\n2,500,4\n3,1000,2\n"
    assert energy(
        content, time_column="tick [ms]", power_column="load [W]"
    ).energy_j == pytest.approx(3)
    influx = (
        "#group,false,false\n#datatype,long,dateTime:RFC3339\n"
        ",result,table,_start,_time,_value,_field\n"
    ) + "".join(
        f",,0,2026-05-22T10:00:00Z,2026-05-22T11:00:{second}00Z,{power / 1000},power\n"
        for second, power in zip(HALVES, POWERS_MW, strict=True)
    )
    assert energy(influx, power_column="_value").energy_j == pytest.approx(3)


def test_a_window_goes_over_midnight(energy):
    """The end of the window is a clock time of the second day."""
    content = "Time,Power(W)\n" + "".join(f"{hour:02}:30:00,2\n" for hour in (21, 22, 23, 0, 1, 2))
    assert energy(content, between=("22:30:00", "01:30:00")).energy_j == pytest.approx(3 * 7200)


UNCLEAR = {
    "has 'cpu_power_w' and 'gpu_power_w': name one of them by --power-column": (
        "time_s,cpu_power_w,gpu_power_w\n0.0,2,2\n0.5,2,2\n"
    ),
    "has 'power' and 'Power \\(W\\)': name one": "time_s,power,Power (W)\n0.0,2,2\n0.5,2,2\n",
    "has 'timestamp' and 'time': name one of them by --time-column": (
        "timestamp,time,power\n0.0,0.0,2\n0.5,0.5,2\n"
    ),
    "name two of its columns by .*, or make it a CSV": "time_s,current_mA\n0.0,2\n0.5,2\n",
    "begins with .*power_mJ.*: name two of its columns": "time_s,power_mJ\n0.0,2\n0.5,2\n",
    "begins with .*POWER \\(A\\)": "time_s,POWER (A)\n0.0,2\n0.5,2\n",
    "begins with .*days": "time (days),power_w\n0.0,2\n0.5,2\n",
    "ambiguous separators .thousands or decimals.: write": (
        "time\tpower_mw\n11:00:00\t1,234\n11:00:01\t1,250\n"
    ),
    "has volts of mains, which times amperes are no power": (
        "time_s,voltage_V,current_A\n0.0,230,2\n0.5,230,2\n"
    ),
    "has powers above 1000: name their unit, as in --power-column 'power \\[mW\\]'": (
        "time_s,power\n0.0,5133\n0.5,5100\n"
    ),
    "has whole numbers as times: name their unit, as in --time-column": (
        "time,power\n0,2\n100,2\n200,2\n"
    ),
    "more cells .* than .* heading": "time_s,power_w\n0,0,2,5\n0,5,2,5\n",
    "ambiguous separators .thousands or decimals.": (
        'time,power_mw\n11:00:00,"1,234"\n11:00:01,"1,250"\n'
    ),
    "has several devices .a, b.": "time_s,device,power_w\n0.0,a,2\n0.0,b,2\n0.5,a,2\n0.5,b,2\n",
    "several devices .0, 1., or no power of one of them": "timestamp, index, power.draw [W]\n"
    f"{NVIDIA[0]}, 0, 2.00 W\n{NVIDIA[0]}, 1, [N/A]\n{NVIDIA[1]}, 0, 2.00 W\n"
    f"{NVIDIA[1]}, 1, [N/A]\n",
    "mixes numbers and dates as timestamps, or two forms of dates": (
        "time,power_w\n11:00:00,2\n2026-05-22 11:00:01,2\n"
    ),
    "has no line with a time and a power of": (
        "timestamp,power\n20260522110000,2\n20260522110001,2\n"
    ),
    "has lines of several sources": tegrastats(
        [
            f"{host} 2026-05-22 11:00:00.{digit} "
            for host, digit in (("a1", 0), ("a1", 5), ("a2", 6))
        ]
    )
    + tegrastats(
        [
            f"{host} 2026-05-22 11:00:01.{digit} "
            for host, digit in (("a1", 0), ("a2", 5), ("a2", 6))
        ]
    ),
    "has no line with the rails of a Jetson's total: log with `sudo tegrastats`": (
        "05-22-2026 11:00:00 RAM 2257/30536MB CPU [0%@729]\n" * 2
    ),
    "has no times before its lines: log with": tegrastats(["", "", ""]),
    "begins with .*ENERGY": '{"Time":"2026-05-22T11:00:00","ENERGY":{"Power":26}}\n' * 2,
}


def test_what_is_unclear_is_refused_in_one_line_that_names_what_to_do(energy):
    """An ambiguous log never gives a wrong energy.

    Several columns, other units, ambiguous numbers and lines of two boards are refused.
    """
    for reason, content in UNCLEAR.items():
        with table_row(reason):
            with pytest.raises((ConfigError, UnavailableError)) as refusal:
                energy(content)
            assert re.search(reason, str(refusal.value)), str(refusal.value)
            assert "\n" not in str(refusal.value)
