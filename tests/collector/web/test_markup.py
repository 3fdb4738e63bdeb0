"""Facts about markup: text is escaped once, whoever sent it."""

from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.web.markup import Markup, element, join, part


def test_text_is_escaped_in_content_and_attributes():
    """What a device sent cannot become an element or end an attribute; control characters have no place in HTML."""
    markup = element("p", {"title": '"><script>'}, "<b>&")
    assert markup == '<p title="&quot;&gt;&lt;script&gt;">&lt;b&gt;&amp;</p>'
    assert element("p", None, "a\x00b\x1bc") == "<p>a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c</p>"


def test_markup_made_here_is_not_escaped_again():
    """An element inside an element stays markup, a text beside it is escaped; a void element has no end."""
    assert element("p", None, element("b", None, "x"), "&") == "<p><b>x</b>&amp;</p>"
    assert isinstance(join(["a", Markup("<br>")]), Markup)
    assert element("meta", {"charset": "utf-8", "name": None}) == '<meta charset="utf-8">'


def test_a_template_escapes_text_and_keeps_markup():
    """In content and in attributes, without control characters; what was made here stays."""
    facts = part("facts", {"<Board>": "a\x1b<b>&", "Kernel": None})
    assert (
        facts == "<dl><div><dt>&lt;Board&gt;</dt><dd>a\N{REPLACEMENT CHARACTER}&lt;b&gt;&amp;</dd></div>"
        "<div><dt>Not reported</dt><dd>Kernel</dd></div></dl>"
    )
    chart = Chart("x", {}, rows_table([]), facts={"data-device": '"><script>\x00', "data-board": None})
    figure = part("chart", chart, element("svg"))
    assert (
        '<figure class="chart-figure" data-device="&quot;&gt;&lt;script&gt;\N{REPLACEMENT CHARACTER}"><figcaption>x</figcaption>' in figure
    )
    assert "<svg></svg>" in figure
    assert isinstance(figure, Markup)
