"""Facts about a paper's tables, methods and plots: they hold what the records say, and no more."""

import re
import subprocess
from xml.etree import ElementTree as ET

import msgspec
import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.contract import record_conditions, record_figures
from edgemeter.collector.charts import vega
from edgemeter.collector.paper.methods import methods
from edgemeter.collector.paper.paper_cases import paper_cases
from edgemeter.collector.paper.paper_tables import tables
from edgemeter.collector.paper.plots import as_svg, plots
from edgemeter.collector.paper.typesetting import PaperNotes, as_paragraph
from tests.fixtures.comparison_factory import make_run, no_energy
from tests.fixtures.record_factory import STARTED_AT_NS, make_energy, make_environment, make_generation, make_generation_energy

SUSPECT = record_conditions.Verdict(state="suspect", reasons=("busy-machine: other processes used 90%",))
INVALID = record_conditions.Verdict(state="invalid", reasons=("throttled: flags 0x4",))


def five(**changes):
    """Return five runs of one case, seconds apart."""
    return [make_run(p50_ms=10 + number / 10, started_at_ns=STARTED_AT_NS + number * 10**9, **changes) for number in range(5)]


def paper_of(*runs):
    """Return what a paper says of these runs: tables and methods."""
    paper = paper_cases(runs, "all")
    return tables(paper), methods(paper)


def rows(latex):
    """Return the cells of every row of every table, without where they are folded, a note as ` (a)`."""
    plain = re.sub(r"\\textsuperscript{(\w+)}", r" (\1)", latex).replace(r"\allowbreak{}", "")
    plain = re.sub(r"\\parbox\[t\]{\d+pt}{\\raggedright (.*?)\\strut}", r"\1", plain)
    plain = re.sub(r"\\begin{tabular}\[b\]{@{}.@{}}(.*?)\\end{tabular}", lambda heading: heading[1].replace(r"\\", " "), plain)
    return [line.removesuffix(r" \\").split(" & ") for line in plain.splitlines() if line.endswith(r"\\")]


def lines_of(latex):
    """Return the rows of all tables as lines of text."""
    return "\n".join(" & ".join(row) for row in rows(latex))


def test_a_latency_has_its_interval_and_what_that_is_over():
    """Of five runs over runs, of one over its queries, of two the range; each says which."""
    latex, _ = paper_of(*five(), make_run("pi-2", p50_ms=12.25), *(make_run("pi-3", p50_ms=value) for value in (3.0, 4.0)))
    p50 = {row[0]: row[3] for row in rows(latex)[:4]}
    assert p50["Device"] == "p50 ms"
    assert re.fullmatch(r"10\.2 \[9\.\d+, 10\.\d+\] \(a\)", p50["pi-1"])
    assert (p50["pi-2"], p50["pi-3"]) == ("12.2 [12.0, 12.5] (c)", "3.50 [3.00, 4.00] (d)")
    assert r"\textsuperscript{a} 95\% interval over 5 runs, this day, this board." in latex
    assert r"\textsuperscript{c} 95\% interval over the queries of one run: the spread between runs is not known." in latex
    assert r"\textsuperscript{d} 2 runs are too few for an interval: range of the runs." in latex


def test_an_energy_has_its_uncertainty_scope_and_sensor():
    """Net energy that does not stand out is no number."""
    hidden = make_energy(net_mj=None, net_u_mj=None, net_state="not_resolvable", gross_u_mj=None)
    latex, _ = paper_of(*five(), make_run("pi-2", energy=hidden))
    assert re.search(r"62\.5 \$\\pm\$ 1\.[23] \(a\)", lines_of(latex))
    assert r"62.5 $\pm$ ? (a) & -- (b)" in lines_of(latex)
    assert r"\textsuperscript{a} energy at the scope board-input by ina219, without the power supply's own loss." in latex
    assert "net energy does not stand out from the uncertainty of idle power" in latex


def test_generated_text_has_a_table_that_names_which_joules_by_which_tokens():
    """Rates and times with units; other models are not in it, and without any there is no such table."""
    language = {"model": "notes", "task": "generation", "ap": None, "generation": make_generation(energy=make_generation_energy())}
    latex, paragraph = paper_of(*five(**language), make_run())
    assert "512+11 & 100 & 10.0 & 5,120 & 100" in lines_of(latex)
    assert r"2,000 $\pm$ 20 (a) & 20.0 $\pm$ 1.0 (b) & 1,000 $\pm$ ? (c)" in lines_of(latex)
    assert "TTFT ms & TPOT ms & prompt tokens/s & tokens/s" in lines_of(latex)
    assert r"\textsuperscript{a} gross energy of the whole request, prefill included, by its output tokens." in latex
    assert "Accuracy and energy per inference, of generated text per request" in latex
    assert "Text was generated from synthetic prompts, one request after the other (prompt + output tokens: 512+11, " in paragraph
    assert "Latency is the time of the runtime's call" in paragraph
    only_text, its_paragraph = paper_of(*five(**language))
    assert "Latency is the time of the runtime's call" not in its_paragraph
    assert "energy per request" in only_text
    plain, _ = paper_of(make_run())
    assert "TTFT" not in plain


def test_tokens_that_are_estimated_are_marked_in_the_table():
    """And so is what is by the token."""
    latex, _ = paper_of(make_run(task="generation", ap=None, generation=make_generation(counts="estimated")))
    assert "512+11 (a)" in lines_of(latex)
    assert r"\textsuperscript{a} tokens are estimated from chunks of text" in latex


def test_a_column_that_nobody_has_is_left_out():
    """No table of dashes; without accuracy and energy there is no table of them."""
    latex, _ = paper_of(*five(ap=None, **no_energy()))
    assert "Accuracy" not in latex
    assert "mJ" not in latex
    assert "p99" not in latex


def test_what_all_cases_share_stands_in_the_caption_and_what_differs_in_the_rows():
    """A row of threads 4 does not look like one of 2, on whatever device."""
    latex, _ = paper_of(make_run(threads=2), make_run("pi-2", threads=4))
    assert r"\caption{Latency, throughput and memory: tiny-detector}" in latex
    assert [row[:2] for row in rows(latex)[:3]] == [
        ["Device", "Case"],
        ["pi-1", "fp32, onnx, 2 threads"],
        ["pi-2", "fp32, onnx, 4 threads"],
    ]
    latex, _ = paper_of(make_run(), make_run(precision="int8"))
    assert r"\caption{Latency, throughput and memory: tiny-detector on pi-1}" in latex
    assert [row[0] for row in rows(latex)[:3]] == ["Case", "fp32, onnx", "int8, onnx"]


LONG = {
    "model": "efficientdet_lite4_512_quantised_aware_training_v2",
    "environment": make_environment(
        board="NVIDIA Jetson AGX Orin Developer Kit, 64 GB, revision B.1", power_mode="MODE_30W_ALL_CORES_FIXED"
    ),
}


@pytest.mark.needs("pdflatex")
@pytest.mark.slow
@pytest.mark.parametrize("options", ["", "twocolumn", "twocolumn,a4paper,11pt", "a4paper,12pt"])
def test_latex_takes_the_tables_and_the_paragraph_and_all_of_it_fits(tmp_path, options):
    """On pages of one column and of two nothing is too wide, with long names and figures and what LaTeX would take for commands."""
    language = {"model": "notes", "task": "generation", "ap": None, "generation": make_generation(energy=make_generation_energy())}
    latex, paragraph = paper_of(
        *five(), *five(precision="int8", runtime="onnx"), *five(device="raspberry-pi-5-laboratory-oslo-03", **LONG), *five(**language),
        make_run("device_with_a_very_long_name_that_has_no_hyphen_0000007", p50_ms=123456.789, verdict=SUSPECT, **LONG),
        make_run(r"pi\x{} ~^", model="a&b_c $%#", environment=make_environment(board="50% <#1> \N{DEGREE SIGN}")),
        make_run("W" * 60, model="M" * 60),
    )  # fmt: skip
    (tmp_path / "tables.tex").write_text(latex)
    (tmp_path / "methods.tex").write_text(as_paragraph(paragraph))
    packages = rf"\documentclass[{options}]{{article}}\usepackage{{booktabs}}"
    (tmp_path / "whole.tex").write_text(rf"{packages}\begin{{document}}\input{{methods}}\input{{tables}}\end{{document}}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "whole.tex"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300, errors="replace")
    assert completed.returncode == 0, completed.stdout
    assert "Missing character" not in completed.stdout
    assert re.findall(r"Overfull \\hbox.*", completed.stdout) == []
    assert (tmp_path / "whole.pdf").stat().st_size > 10_000


def test_no_table_is_wider_than_a_page_of_one_column_and_only_a_narrow_one_stays_in_a_column():
    """Without LaTeX, by the widths of the letters: what does not fit goes into another part, with the names of its rows again."""
    latex, _ = paper_of(*five(), *five(precision="int8"), *five(device="raspberry-pi-5-laboratory-oslo-03", **LONG), *five(device="pi-3"))
    parts = re.findall(r"\\caption{Latency, throughput and memory \((\d) of (\d)\)}", latex)
    assert parts == [(str(number), str(len(parts))) for number in range(1, len(parts) + 1)]
    assert len(parts) > 1
    assert all(
        row[:3] == ["Device", "Model", "Case"] for row in rows(latex) if row[0] == "Device" and "Board" not in row and "Cores" not in row
    )
    environments = dict(
        re.findall(r"\\begin{(?:table\*?)}.*?\\caption{([A-Z]\w+).*?\\end{(table\*?)}", paper_of(make_run(ap=None))[0], re.DOTALL)
    )
    assert environments == {"Latency": "table*", "Accuracy": "table", "Machines": "table*"}


def test_the_ratio_to_the_first_like_case_stands_beside_p50_with_its_interval():
    """Half as long: 0.5, between the bounds that five runs of each allow; the first is 1 with a note; what is not alike has none."""
    halved = [make_run(precision="int8", p50_ms=5 + number / 20, started_at_ns=STARTED_AT_NS + number * 10**9) for number in range(5)]
    latex, _ = paper_of(*five(), *halved, *five(model="another"))
    heading, *lines = rows(latex)[:4]
    ratio = heading.index("Ratio")
    assert heading[ratio - 1] == "p50 ms"
    cells = {(row[0], row[1].split(",")[0]): row[ratio] for row in lines}
    assert cells["another", "fp32"] == "--"
    assert re.fullmatch(r"1 \(\w\)", cells["tiny-detector", "fp32"])
    assert re.fullmatch(r"0\.500 \[0\.4\d+, 0\.5\d+\]", cells["tiny-detector", "int8"])


def test_brackets_are_intervals_and_letters_are_notes():
    """No number in brackets or parentheses is a note; the letters go on after z."""
    latex, _ = paper_of(*five(), make_run("pi-2", verdict=SUSPECT))
    assert not re.search(r"[\[(]\d+[\])]", latex)
    notes = PaperNotes()
    assert [notes.cite(str(number)) for number in (0, 25, 1, 25)] == ["a", "b", "c", "b"]
    assert [notes.cite(f"note {number}") for number in range(30)][22:26] == ["z", "aa", "ab", "ac"]


def test_what_a_device_sent_cannot_become_latex():
    """Names of devices, models and boards."""
    latex, paragraph = paper_of(make_run(r"pi\input{x}", model="a&b_c", environment=make_environment(board="50% #1")))
    assert r"pi\textbackslash{}input\{x\}" in latex
    assert r"a\&b\_c" in latex
    assert r"50\% \#1" in latex
    for line in latex.splitlines():
        assert line.startswith("%") or "input{" not in line
    assert r"a&b_c" in paragraph


def test_the_paragraph_states_how_the_runs_were_measured():
    """Instrument, scope, uncertainty, warm-up, numbers, versions."""
    _, paragraph = paper_of(*five())
    for words in (
        "We report 5 runs of 1 case (tiny-detector) on 1 device (pi-1), measured on 2025-10-09 (UTC).",
        "A run warmed up for 20 queries (0.260 s; the running median had settled before timing in 5 of 5 runs), and then timed 64 queries",
        "onnxruntime 1.22.1 (CPUExecutionProvider, 2 threads), measured by Edgemeter 0.1.0",
        "governor performance, kernel 6.12.34, highest temperature 48.5 °C",
        "Energy was measured by ina219 at the scope board-input, which excludes the power supply's own loss, with a period of 10.0 ms and",
        "a step of 0.00200 W.",
        "Its uncertainties are expanded to 95% and combine gain.",
        "Accuracy is AP on 80 images of scenes",
    ):
        assert words in paragraph, words


def test_the_paragraph_states_nothing_that_the_records_do_not():
    """An unknown gain is an unknown uncertainty; what was not measured has its reason; replayed is not measured."""
    unknown = make_energy(gross_u_mj=None, budget=(record_figures.UncertaintyTerm(term="gain", u_mj=None),))
    bare = make_environment(governor=None, power_mode=None, firmware=None)
    _, paragraph = paper_of(
        make_run(energy=unknown, environment=bare),
        make_run("pi-2", ap=None, **no_energy("no power sensor here"), environment=bare, clock_synchronised=None),
        make_run("pi-3", provenance={"latency": "replayed", "energy": "replayed"}, environment=bare),
    )
    assert "Its uncertainty is unknown, because these terms are: gain." in paragraph
    assert "in 1 run they are unknown, because these terms are: gain." in paper_of(*five(), make_run(energy=unknown))[1]
    assert "Net energy" not in paper_of(make_run(energy=make_energy(net_mj=None, net_u_mj=None, net_state="no_idle")))[1]
    assert "Energy was not measured in 1 run: no power sensor here." in paragraph
    assert "Of these, 1 run is replayed, not measured." in paragraph
    assert "Energy is replayed, read by ina219" in paragraph
    assert "The accuracy of 1 case is unknown." in paragraph
    assert "The wall clock was not known to be synchronised in 1 run." in paragraph
    assert "governor" not in paragraph


def test_runs_that_do_not_count_are_named_with_the_reason():
    """Invalid ones are left out, suspect ones stay and are marked."""
    latex, paragraph = paper_of(*five(), make_run(verdict=INVALID), make_run("pi-2", verdict=SUSPECT))
    assert "Left out were 1 run or parts of runs: invalid: throttled (1)." in paragraph
    assert "1 run kept here violated measurement rules and count as suspect (busy-machine)." in paragraph
    assert re.search(r"suspect \([a-d]\)", lines_of(latex))
    assert "in 1 of 1 run: busy-machine." in latex


def test_without_a_run_that_counts_there_is_no_table():
    """The reason is the run's own."""
    with pytest.raises(UnavailableError, match=r"throttled: flags 0x4.*edgemeter run"):
        paper_cases([make_run(verdict=INVALID)], "all")


def test_the_order_in_which_runs_come_does_not_matter():
    """Stores give them in different orders."""
    runs = [*five(), *five(precision="int8"), make_run("pi-0")]
    assert paper_of(*runs) == paper_of(*reversed(runs))


@pytest.mark.slow
def test_a_plot_is_an_svg_that_needs_nothing_else():
    """Its own name space, size and colours; no links; the same bytes each time."""
    charts = plots(paper_cases([*five(), *five(device="pi-2"), *five(precision="int8")], "all").cases)
    assert sorted(charts) == ["energy-against-accuracy-detection", "latency-against-accuracy-detection", "latency-tiny-detector"]
    for chart in charts.values():
        svg = as_svg(chart)
        root = ET.fromstring(svg)  # noqa: S314 - our own
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert float(root.get("width", "0")) > 0
        assert b"href=" not in svg
        assert b"var(" not in svg
        assert b"#0072b2" in svg
        assert as_svg(chart) == svg


def test_without_samples_there_is_no_plot_of_every_query():
    """The plots that need no samples are drawn all the same."""
    runs = [msgspec.structs.replace(run, samples=()) for run in five()]
    assert sorted(plots(paper_cases(runs, "all").cases)) == ["energy-against-accuracy-detection", "latency-against-accuracy-detection"]


def test_a_plot_becomes_a_pdf():
    """By the library that draws it."""
    (chart, *_) = plots(paper_cases(five(), "all").cases).values()
    assert vega.pdf(chart).startswith(b"%PDF-")
