import json

import pytest

from edgemeter.agent.base.documents import json_document
from edgemeter.collector.datacenter import constants
from edgemeter.collector.datacenter import document as datacenter_document
from edgemeter.collector.datacenter.analysis import AnalysisSetting, analyse
from edgemeter.collector.datacenter.document import document
from edgemeter.collector.datacenter.formulas import Band, exactly
from edgemeter.collector.datacenter.sides import EdgeSide, ServerSide
from tests.fixtures.rows import table_row

ASSUMED = constants.read_constants()
NETWORKS = ("fixed-marginal", "mobile-gsma")


def make_edge(**changes):
    """Return a board of 3 W idle and 75 mJ net that can do 40 a second; `changes` are its fields."""
    fields = {
        "name": "board",
        "provenance": "measured",
        "scope": "wall-ac",
        "excludes": (),
        "saturated_mj": Band(145.0, 150.0, 155.0),
        "idle_w": Band(2.9, 3.0, 3.1),
        "net_mj": Band(70.0, 75.0, 80.0),
        "rate_per_s": exactly(40.0),
        "latency_ms": 25.0,
    }
    return EdgeSide(**(fields | changes))


def make_server(**changes):
    """Return a server of 300 W idle and 900 W at 6,000 a second; `changes` are its fields."""
    fields = {
        "name": "server",
        "load": "batch-saturated",
        "provenance": "measured",
        "scope": "wall-ac",
        "excludes": (),
        "idle_w": Band(295.0, 300.0, 305.0),
        "max_w": Band(890.0, 900.0, 910.0),
        "rate_per_s": exactly(6000.0),
        "latency_ms": 30.0,
    }
    return ServerSide(**(fields | changes))


def analysed(edge=None, server=None, rate=None, networks=NETWORKS):
    """Return the analysis and its one part."""
    analysis = analyse(edge or make_edge(), [server or make_server()], ASSUMED, AnalysisSetting(rate, 100_000, networks))
    return analysis, analysis.parts[0]


def winners(cells, network):
    """Return the winners over the utilisations for one network."""
    return [cell.winner for cell in cells if cell.network == network]


def test_the_network_decides_who_wins_at_a_low_rate():
    """One inference a second: the server wins at the lower end of the estimates and loses at the upper one."""
    _, part = analysed(rate=1.0)
    assert set(winners(part.gross, "fixed-marginal")) == {"datacenter"}
    assert set(winners(part.gross, "mobile-gsma")) == {"edge"}
    words = "the edge takes less energy below 1.8% utilisation, the datacenter at none for certain; between them network, PUE"
    assert words in datacenter_document.headline(part)


def test_a_busy_board_wins_everywhere():
    """At 40 a second it costs 150 mJ, less than the server alone at 80% and the cheapest network."""
    _, part = analysed()
    assert {cell.winner for cell in part.gross} == {"edge"}
    assert "the edge takes less energy at 5% to 80% utilisation, whatever the network" in datacenter_document.headline(part)


def test_a_winner_holds_at_both_ends_of_every_band():
    """Where the bands overlap nobody is named, and the PUE is given from which on the edge wins."""
    _, part = analysed(edge=make_edge(saturated_mj=Band(400.0, 500.0, 600.0)))
    cell = next(cell for cell in part.gross if (cell.utilisation_ratio, cell.network) == (0.2, "fixed-marginal"))
    assert (cell.winner, cell.margin_mj) == ("either", 0.0)
    assert cell.pue_from * (300 + 600 * 0.2) / (0.2 * 6000) * 1000 + 40.0 == pytest.approx(500.0)
    assert datacenter_document.cell_text(cell) == f"edge from PUE {cell.pue_from:.2f}"


def test_an_edge_that_leaves_something_out_wins_with_a_question_mark():
    """The margin says how much may be left out; a whole figure needs none."""
    for edge_scope, is_proven in (("wall-ac", True), ("board-input", False), ("soc-rails", False)):
        with table_row(edge_scope):
            edge = make_edge(scope=edge_scope, excludes=() if is_proven else ("power-supply loss",))
            _, part = analysed(edge=edge)
            assert {cell.is_proven for cell in part.gross} == {is_proven}
            text = {datacenter_document.cell_text(cell) for cell in part.gross}
            assert text == {"edge"} if is_proven else {"edge?"}
            assert bool(datacenter_document.proofs(part, edge)) is not is_proven


def test_a_server_of_which_only_the_gpu_was_seen_does_not_win_outright():
    """What was not measured would cost more, so that the edge's wins stand and the server's do not."""
    server = make_server(scope="gpu-board", excludes=("processor", "fans"))
    _, part = analysed(server=server, rate=1.0)
    assert {(cell.winner, cell.is_proven) for cell in part.gross} == {("datacenter", False), ("edge", True)}
    (output,) = datacenter_document.proofs(part, make_edge())
    assert "excludes processor, fans" in output


def test_net_of_idle_a_board_may_win_where_it_loses_gross():
    """Whether idle power is charged is the question, so both are shown."""
    _, part = analysed(rate=1.0)
    assert winners(part.net, "fixed-marginal") == ["edge"]


def test_break_evens_state_where_the_sides_are_equal():
    """In words that never promise more than the bands hold."""
    analysis, part = analysed(rate=1.0)
    low, high = datacenter_document.break_even_lines(part, analysis.edge)
    assert low.startswith("fixed-marginal: the datacenter wins from a utilisation of 2.")
    assert "mobile-gsma: the edge wins at any utilisation" in high
    assert "bytes a request" in low


def test_a_board_too_slow_for_the_break_even_rate_never_wins():
    """What it would have to serve is more than it can."""
    edge = make_edge(idle_w=exactly(30.0), net_mj=exactly(300.0), saturated_mj=exactly(1050.0), rate_per_s=exactly(40.0))
    analysis, part = analysed(edge=edge, networks=("fixed-marginal",))
    server = make_server(idle_w=exactly(10.0), max_w=exactly(900.0))
    analysis, part = analysed(edge=edge, server=server, networks=("fixed-marginal",))
    assert (
        "the datacenter wins at every rate the edge can reach (40.0 per s)" in datacenter_document.break_even_lines(part, analysis.edge)[0]
    )


def test_without_idle_power_there_is_no_rate_and_no_net():
    """The gross energy at full speed is all there is, and that is noted."""
    edge = make_edge(idle_w=None, net_mj=None, why_no_idle="idle power was not measured")
    analysis, part = analysed(edge=edge)
    assert part.net == ()
    assert part.break_evens[0].rate_per_s is None
    assert any("idle power was not measured" in line for line in datacenter_document.cautions(analysis))


def test_what_was_not_measured_is_marked():
    """A stated server makes a stated result."""
    analysis, _ = analysed(server=make_server(provenance="stated"))
    assert datacenter_document.cautions(analysis) == ["server: stated, not measured; the same holds for every figure derived from it"]


def test_the_document_is_json_with_every_band_and_constant():
    """An infinite break-even is null."""
    analysis, _ = analysed()
    printed = json.loads(json_document(document(analysis, ASSUMED, 100_000, "DE", ("a note",))))
    part = printed["against"][0]
    assert part["break_even"][0]["utilisation_ratio"]["high"] is None
    assert [row["utilisation_ratio"] for row in part["gross_by_utilisation"]] == [0.05, 0.1, 0.2, 0.4, 0.8]
    assert part["per_million"][0]["carbon_g"]["low"] < part["per_million"][0]["carbon_g"]["high"]
    assert printed["constants"]["pue"]["source"]
    assert printed["notes"] == ["a note"]
