"""The review as Markdown for a pull or merge request (verdict first, worst cases first), as JSON and as plain text."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from edgemeter.agent.base import figures
from edgemeter.agent.base.decision import ACCURACY, ENERGY, LATENCY, MISSED, Bounds, change_text, figure_name, percent
from edgemeter.agent.base.documents import json_document
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.tables import markdown
from edgemeter.agent.base.terminal import TableColumn
from edgemeter.collector.compare.judged_figures import JUDGED
from edgemeter.collector.compare.judgement import Judgement, SmallestDifferences, speed_of, verdict_lines, within_of
from edgemeter.collector.compare.spread import Spread, median_of
from edgemeter.collector.compare.summary import CaseSummary, summaries_of
from edgemeter.collector.review.gate import IN_DOUBT, GateFinding, GateLimit, state_of
from edgemeter.collector.review.review import CaseChoice, Review, ReviewPair, UnpairedCase, case_sentence
from edgemeter.collector.runs.cases import group_cases, names_of
from edgemeter.collector.runs.store import StoreContents
from edgemeter.collector.web.view import address

MARK = "<!-- edgemeter compare -->"
# GitHub refuses a comment of more than 65,536 characters; GitLab takes a million.
LONGEST = 60_000
LEFT_OUT_SHOWN = 50
FINDINGS_SHOWN = 25
FIRST_BASELINE = (
    "The first comparison has none: a push to the default branch stores one (`baseline: stored`), or measure the commit that the change "
    "branches from on the same board (`baseline: base`)."
)
WITHOUT_BASELINE_SHOWN = 100
NO_PAIR = "No case could be compared: none is on both sides. Measure both sides with the same suite; what each has is listed below."
WORST_FIRST = ("worse", "both", "not settled", "not judged", "better", "alike")
NAMES = {"both": "worse in part and better in part"}
_ESCAPED = str.maketrans({character: f"&#{ord(character)};" for character in "|<>&`*_[]#@~\\!"})


def page_address(text: str | None) -> str:
    """Return the address of the page without its last slash; raises ConfigError unless it is one that a comment can link to."""
    if not text:
        return ""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment or set(text) & set(" ()<>[]\"'`|\\"):
        raise ConfigError(f"{text!r} is not the address of a page: write https://HOST[:PORT][/PATH]")
    return text.rstrip("/")


def to_markdown(review: Review, findings: Sequence[GateFinding], page: str = "", choice: str = "") -> str:
    """Return the comment, at most as long as may be posted; what is cut is counted.

    It links to the page at the address `page`, and says what was chosen (`choice`); either may be empty.
    """
    of_pair = {pair.name: [finding for finding in findings if finding.case == pair.name] for pair in review.pairs}
    closing = {name: [finding for finding in of_case if finding.is_closing] for name, of_case in of_pair.items()}
    ordered = sorted(review.pairs, key=lambda pair: (-len(closing[pair.name]), WORST_FIRST.index(worst(pair)), -(pair.ratios.p50 or 0.0)))
    rows = [_row(pair, of_pair[pair.name], page) for pair in ordered]
    head = [
        MARK,
        f"### Edgemeter: {_headline(review, findings)}",
        "",
        f"Baseline `{_code(review.baseline)}`, new `{_code(review.new)}`.{_page_link(page)}",
        "",
        *([f"**Decision:** {_escaped(choice)}.", ""] if choice else []),
    ]
    tail = [*_gate(findings), *_left_out(review.left_out), _how(review)]
    table = ["| case | p50 | energy | accuracy | verdict |", "|---|---|---|---|---|"]
    room = LONGEST - len("\n".join([*head, *table, *tail])) - 100
    fitting: list[str] = []
    for row in rows:
        room -= len(row) + 1
        if room < 0:
            break
        fitting.append(row)
    cut = [f"\n{len(rows) - len(fitting)} more cases do not fit; list all with `--format json`."] if len(fitting) < len(rows) else []
    body = [*table, *fitting, *cut] if rows else _choice_markdown(review.choice) if review.choice else [NO_PAIR]
    return "\n".join([*head, *body, "", *tail]) + "\n"


def without_baseline(sides: Sequence[str], why: str, new: StoreContents, limits: Sequence[GateLimit], page: str = "") -> str:
    """Return the comment where the baseline has no run: why, how it gets some, and the figures of the new side."""
    cases, refused = group_cases(new.runs)
    summaries = summaries_of(cases)
    names = names_of(summary.key for summary in summaries)
    rows = [
        f"| {_escaped(names[case.key])} | {_alone(case.p50_ms, 'ms')} | {_alone(case.gross_mj, 'mJ')} "
        f"| {figures.accuracy(median_of(case.accuracy_value))} | {len(case.runs)} |"
        for case in summaries[:WITHOUT_BASELINE_SHOWN]
    ]
    table = ["The new side:", "", "| case | p50 | energy | accuracy | runs |", "|---|---|---|---|---|", *rows, ""] if rows else []
    judged = [f"Not judged: {', '.join(f'`{limit.text}`' for limit in limits)}; {IN_DOUBT}.", ""] if limits else []
    lines = [
        MARK,
        "### Edgemeter: **no baseline to compare with**",
        "",
        f"Baseline `{_code(sides[0])}`, new `{_code(sides[1])}`.{_page_link(page)}",
        "",
        f"{_escaped(why[:1].upper() + why[1:])}. {FIRST_BASELINE}",
        "",
        *judged,
        *table,
        *_left_out([UnpairedCase(sides[1], entry.run or "unreadable run", entry.reason) for entry in refused]),
    ]
    return "\n".join(lines) + "\n"


def worst(pair: ReviewPair) -> str:
    """Return in one word what became of a case: worse, better, both, alike, not settled or not judged."""
    judged = [judgement for figure in (speed_of(pair.case), MISSED, ENERGY, ACCURACY) if (judgement := pair.judgements[figure])]
    is_worse, is_better = any(judgement.is_worse for judgement in judged), any(judgement.is_better for judgement in judged)
    if is_worse or is_better:
        return "both" if is_worse and is_better else "worse" if is_worse else "better"
    outcomes = {judgement.outcome for judgement in judged} or {"not judged"}
    return next(outcome for outcome in ("not settled", "not judged", "alike") if outcome in outcomes)


def _headline(review: Review, findings: Sequence[GateFinding]) -> str:
    if not findings:
        return _counts(review)
    if (state := state_of(findings)) == "could not judge":
        return f"**could not judge, and {IN_DOUBT}**, {_counts(review)}"
    if state == "violated":
        violated = len({finding.limit for finding in findings if finding.outcome == "violated"})
        return f"**{figures.count(violated, 'limit')} violated**, {_counts(review)}"
    is_kept = all(finding.outcome == "kept" for finding in findings)
    return f"{'every limit kept' if is_kept else 'no limit violated'}, {_counts(review)}"


def _counts(review: Review) -> str:
    if review.choice:
        return f"{review.choice.sentence}."
    words = [worst(pair) for pair in review.pairs]
    counts = ", ".join(f"{words.count(word)} {NAMES.get(word, word)}" for word in WORST_FIRST if word in words)
    return f"{figures.count(len(words), 'case')} compared" + (f": {counts}" if counts else "")


def _page_link(page: str) -> str:
    return f" [See the runs]({page}/compare)." if page else ""


def _row(pair: ReviewPair, findings: Sequence[GateFinding], page: str) -> str:
    case, baseline, judged = pair.case, pair.baseline, pair.judgements
    verdict = worst(pair)
    p50 = _change(baseline.p50_ms, case.p50_ms, "ms", judged[LATENCY])
    if missed := judged[MISSED]:
        p50 += f"<br>missed: {missed.words}"
    energy = _change(baseline.gross_mj, case.gross_mj, "mJ", judged[ENERGY])
    verdict_cell = f"**{verdict}**" if verdict in ("worse", "both") else verdict
    limits = [
        f"**{'violates' if finding.outcome == 'violated' else 'not judged by'} {finding.limit.text}**"
        for finding in findings
        if finding.is_closing
    ]
    shares = [f"<sub>{finding.limit.text}: {finding.share_text}</sub>" for finding in findings if finding.share_text]
    cells = [_name(pair, page), p50, energy, _accuracy(pair), "<br>".join([verdict_cell, *limits, *shares])]
    doubt = " (disturbed runs)" if case.disturbed or baseline.disturbed else ""
    notes = [*pair.changed, *levels(pair), *energy_classes(pair)]
    changed = f"<br><sub>{_escaped(', '.join(notes))}</sub>" if notes else ""
    return "| " + " | ".join([cells[0] + doubt + changed, *cells[1:]]) + " |"


def _name(pair: ReviewPair, page: str) -> str:
    """Return the name of a case, with links to its runs over time and to the newest run of each side where the page is known."""
    if not page:
        return _escaped(pair.name)
    key = pair.case.key
    over_time = f"{page}/{address('trend', {'model': key.model, 'device': key.device, 'fleet': key.fleet})}"
    newest = {"baseline": pair.baseline.run_ids[-1], "new": pair.case.run_ids[-1]}
    sides = [f"[{name}]({page}/{address('run', {'id': run_id})})" for name, run_id in newest.items()]
    return f"[{_escaped(pair.name)}]({over_time})<br><sub>runs: {', '.join(sides)}</sub>"


def levels(pair: ReviewPair) -> list[str]:
    """Return since when the runs of each side count, where that is not from its first."""
    sides = (("baseline", pair.baseline), ("new", pair.case))
    return [
        f"{name} {side.segment.words} ({figures.count(side.segment.earlier, 'earlier run')} left out)"
        for name, side in sides
        if side.segment
    ]


def energy_classes(pair: ReviewPair) -> list[str]:
    """Return what the energies of the two sides are, where they were not measured or may not be ranked together."""
    before, after = pair.baseline.energy, pair.case.energy
    if before is None or after is None or (before.ranks_as == after.ranks_as and after.ranks_as.is_measured):
        return []
    if before.ranks_as == after.ranks_as:
        return [f"energies are {after.provenance}, not measured"]
    return [f"energy {before.ranks_as} against {after.ranks_as}: not comparable"]


def _change(before: Spread | None, after: Spread | None, unit: str, judged: Judgement | None) -> str:
    if before is None or after is None:
        return "no figure" if before is None and after is None else "new" if before is None else "gone"
    plain = f"{figures.significant(before.median)} → {figures.significant(after.median)} {unit}"
    if judged is None or judged.decision.value is None:
        return f"{plain}, not comparable"
    bounds, within = judged.decision.bounds, within_of((before, after))
    interval = (
        f" ({_share(bounds[0])} to {_share(bounds[1])}{f', within {within}' if within else ''})"
        if bounds
        else f" ({before.n} against {after.n} runs: no interval)"
    )
    return f"{plain}<br>{judged.verdict}: {_share(judged.decision.value)}{interval}"


def _alone(spread: Spread | None, unit: str) -> str:
    return "no figure" if spread is None else f"{figures.significant(spread.median)} {unit}"


def _share(ratio: float) -> str:
    text = f"{ratio - 1:+.1%}"
    return "0.0%" if text in ("-0.0%", "+0.0%") else text


def _accuracy(pair: ReviewPair) -> str:
    accuracy, other = pair.case.accuracy, pair.baseline.accuracy
    if accuracy is None or other is None:
        return "no figure"
    plain, judged = f"{figures.accuracy(other.value.median)} → {figures.accuracy(accuracy.value.median)}", pair.judgements[ACCURACY]
    if judged is None or judged.decision.value is None:
        return f"{plain}, not comparable"
    bounds = judged.decision.bounds
    interval = f" ({bounds[0] * 100:+.2f} to {bounds[1] * 100:+.2f})" if bounds else f" ({_escaped(judged.decision.reason)})"
    return f"{plain}<br>{judged.verdict}: {judged.decision.value * 100:+.2f} points{interval}"


def _gate(findings: Sequence[GateFinding]) -> list[str]:
    if not findings:
        return []
    lines = ["**Limits**", ""]
    for limit in dict.fromkeys(finding.limit for finding in findings):
        of_limit = [finding for finding in findings if finding.limit == limit]
        counts = ", ".join(
            f"{sum(finding.outcome == outcome for finding in of_limit)} {outcome}" for outcome in ("violated", "kept", "not judged")
        )
        used = max((finding for finding in of_limit if finding.used is not None), key=lambda finding: finding.used or 0.0, default=None)
        largest_share = (
            f"; the most is {used.share_text.removeprefix('used ')}, by {_escaped(used.case or '')}" if used and len(of_limit) > 1 else ""
        )
        lines.append(f"- `{limit.text}`: {counts}{largest_share}")
        listed = sorted((finding for finding in of_limit if finding.outcome != "kept"), key=lambda finding: not finding.is_closing)
        lines += [
            f"  - {finding.outcome}: {_escaped(f'{finding.case}: {finding.words}' if finding.case else finding.words)}"
            for finding in listed[:FINDINGS_SHOWN]
        ]
    return [*lines, ""]


def _left_out(left_out: Sequence[UnpairedCase]) -> list[str]:
    if not left_out:
        return []
    lines = [f"- {_escaped(f'{case.what} ({case.side}): {case.reason}')}" for case in left_out[:LEFT_OUT_SHOWN]]
    remainder = [f"- and {len(left_out) - LEFT_OUT_SHOWN} more: `--format json` lists all"] if len(left_out) > LEFT_OUT_SHOWN else []
    return [f"<details><summary>Left out ({len(left_out)})</summary>", "", *lines, *remainder, "", "</details>", ""]


def _how(review: Review) -> str:
    runs = [sum(len(side.runs) for side in sides) for sides in zip(*((pair.baseline, pair.case) for pair in review.pairs), strict=True)]
    count = f"{runs[0]} runs against {runs[1]}; " if runs else ""
    alike = f"alike: within {percent(review.matters.ratio)}"
    return f"<sub>{count}medians over runs with 95% intervals over runs or days; {alike}.</sub>"


def _code(text: str) -> str:
    return figures.printable(text).replace("`", "'")


def _escaped(text: str) -> str:
    # An entity is text everywhere; a backslash is not, in a table of GitLab.
    return figures.printable(text).translate(_ESCAPED)


def to_json(review: Review, findings: Sequence[GateFinding], choice: Mapping[str, Any] | None = None) -> str:
    """Return `{"baseline", "new", "pairs": [...], "choice", "limits": [...], "gate", "is_broken", "left_out": [...]}` as text."""
    document = {
        "baseline": review.baseline,
        "new": review.new,
        "pairs": [_pair_document(pair, review.matters) for pair in review.pairs],
        "choice": review.choice,
        "decision": choice,
        "limits": [
            {
                "limit": finding.limit.text,
                "case": finding.case,
                "outcome": finding.outcome,
                "words": finding.words,
                "used": finding.used,
                "used_at_most": finding.used_at_most,
            }
            for finding in findings
        ],
        "gate": state_of(findings) if findings else None,
        "is_broken": state_of(findings) != "open",
        "left_out": [{"side": case.side, "what": case.what, "reason": case.reason, "is_lost": case.is_lost} for case in review.left_out],
    }
    return json_document(document)


def choice_columns(choice: CaseChoice) -> list[TableColumn]:
    """Return both cases as rows: a column for each figure that is compared, and its change."""
    columns = [
        TableColumn("", ["A", "B"], "left"),
        TableColumn("case", [choice.a, choice.b], "left", folds=True),
        TableColumn("runs", [str(runs) for runs in choice.runs], rank=3),
    ]
    for diff in choice.differences:
        if diff.change is not None:
            is_accuracy = diff.figure == ACCURACY
            entry = None if is_accuracy else JUDGED[diff.figure]
            rounded, heading = (entry.shown, entry.heading) if entry else (figures.accuracy, diff.unit)
            columns += [TableColumn(heading, [rounded(diff.a), rounded(diff.b)]), TableColumn("", ["", change_text(diff)])]
    return columns


def choice_notes(choice: CaseChoice) -> list[str]:
    """Return what is not compared and why, what the cases differ in, and the command that measures the ratios on another board."""
    missing = [f"no {figure_name(diff.figure)}: {diff.note}" for diff in choice.differences if diff.change is None]
    # The same difference has two marks where it is one of class, too.
    marks = {mark.partition(": ")[2]: mark for mark in reversed(choice.marks)}
    limits = f"the ratios were measured on {choice.where} and need not hold on another board"
    remedy = "measure them there: edgemeter compare MODEL_A MODEL_B"
    return [*missing, *(f"note: {mark}" for mark in reversed(marks.values())), f"{limits}: {remedy}"]


def _choice_markdown(choice: CaseChoice) -> list[str]:
    columns = choice_columns(choice)
    rows = [list(map(_escaped, cells)) for cells in zip(*(column.cells for column in columns), strict=True)]
    headings = [column.heading for column in columns]
    table = markdown(None, headings, [column.justify == "right" for column in columns], rows)
    return [table, "", *(f"- {_escaped(note)}" for note in choice_notes(choice))]


def review_lines(review: Review, findings: Sequence[GateFinding]) -> list[str]:
    """Return the review as lines for a terminal: of each pair the sentence first; the limits; what is left out."""
    lines: list[str] = []
    if not review.pairs and review.choice is None:
        lines.append("nothing was compared: no case is on both sides; to compare two cases select one on each: see `edgemeter compare`")
    for pair in review.pairs:
        lines.append(f"{pair.name}: {worst(pair)}")
        lines.append(f"    {_sentence(pair, review.matters)}")
        lines += [f"    {line}" for line in verdict_lines(pair.case, pair.judgements)]
        if pair.changed:
            lines.append(f"    changed: {', '.join(pair.changed)}")
        lines += [f"    {text}; --all-days counts them" for text in levels(pair)]
        lines += [f"    {text}" for text in energy_classes(pair)]
    lines += [
        f"limit {finding.limit.text} {finding.outcome}: {finding.case + ': ' if finding.case else ''}"
        f"{finding.share_text + ': ' if finding.share_text else ''}{finding.words}"
        for finding in findings
    ]
    lines += [f"gate: {state}"] if (state := state_of(findings)) != "open" else []
    return [*lines, *(f"left out: {case.what} ({case.side}): {case.reason}" for case in review.left_out)]


def _sentence(pair: ReviewPair, matters: SmallestDifferences) -> str:
    return case_sentence("new", "the baseline", pair.baseline, pair.case, matters)


def _pair_document(pair: ReviewPair, matters: SmallestDifferences) -> dict[str, Any]:
    ratios = pair.ratios
    return {
        "case": pair.name,
        "state": worst(pair),
        "sentence": _sentence(pair, matters),
        "changed": list(pair.changed),
        "baseline": _side_document(pair.baseline),
        "new": _side_document(pair.case),
        **{entry.change_name: _ratio(ratios.values.get(name), ratios.intervals.get(name)) for name, entry in JUDGED.items()},
        "verdicts": {figure: judged.words for figure, judged in pair.judgements.items() if judged},
    }


def _side_document(case: CaseSummary) -> dict[str, Any]:
    return {
        **{entry.name: median_of(case.spreads.get(entry.name)) for entry in JUDGED.values()},
        "energy_scope": case.energy.scope if case.energy else None,
        "energy_provenance": case.energy.provenance if case.energy else None,
        "verdict": case.verdict,
        "level_since": case.segment.words if case.segment else None,
        "run_ids": list(case.run_ids),
    }


def _ratio(value: float | None, bounds: Bounds | None) -> dict[str, float | None]:
    return {"value": value, "low": bounds[0] if bounds else None, "high": bounds[1] if bounds else None}
