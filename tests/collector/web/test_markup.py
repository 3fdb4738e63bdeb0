"""Facts about markup: text is escaped once, whoever sent it."""

from edgemeter.collector.charts.chart import Chart, rows_table
from edgemeter.collector.web.markup import Markup, render
from edgemeter.collector.web.queries import live_chart


def test_a_template_escapes_text_and_keeps_markup():
    """Content and attributes are escaped, without control characters; a template's markup stays."""
    assert (
        render("message.html", text="a\x00b<b>&")
        == '<p class="note">a\N{REPLACEMENT CHARACTER}b&lt;b&gt;&amp;</p>\n'
    )
    assert render("message.html", text=Markup("<b>x</b>")) == '<p class="note"><b>x</b></p>\n'
    figure = live_chart(
        Chart("x", {}, rows_table([]), facts={"data-device": '"><script>\x00', "data-board": None}),
        "<svg></svg>",
    )
    escaped = (
        'data-device="&quot;&gt;&lt;script&gt;\N{REPLACEMENT CHARACTER}"><figcaption>x</figcaption>'
    )
    assert f'<figure class="chart-figure" {escaped}' in figure
    assert "<noscript><svg></svg></noscript>" in figure
    assert isinstance(figure, Markup)


def test_a_sentence_has_its_commands_and_days_as_such():
    """No backtick is shown, and no line ends within a day.

    A device's text stays text, and markup stays as it is.
    """
    text = render(
        "message.html", text="<b>: `edgemeter runs` since 2026-08-20 11:00, pi-2026-08-201"
    )
    assert text == (
        '<p class="note">&lt;b&gt;: <code>edgemeter runs</code> since <span '
        'class="whole">2026-08-20</span> 11:00, pi-2026-08-201</p>\n'
    )
