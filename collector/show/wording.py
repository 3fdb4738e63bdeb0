"""The names of cases in tables, charts and headlines."""

from collections.abc import Iterable, Sequence

from edgemeter.agent.base import figures
from edgemeter.agent.contract.case_identity import FIELD, FIELDS, CaseKey
from edgemeter.collector.compare.comparison import ComparedCase
from edgemeter.collector.compare.summary import CaseSummary
from edgemeter.collector.runs.cases import apart, grouped
from edgemeter.collector.runs.relation import load_text


def only(texts: Iterable[str]) -> str | None:
    """Return the one text that all are, None when they differ or there are none."""
    different = list(dict.fromkeys(texts))
    return different[0] if len(different) == 1 else None


def listed(texts: Sequence[str], limit: int = 4) -> str:
    """Return `a, b and c`; of more than `limit` the first and how many more."""
    if len(texts) > limit:
        return f"{', '.join(texts[: limit - 1])} and {len(texts) - limit + 1} more"
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def level_text(case: CaseSummary) -> str:
    """Return since when the runs of a case count, and how many came before; empty where all count."""
    return f"{case.segment.words}; {figures.count(case.segment.earlier, 'earlier run')} left out" if case.segment else ""


def level_of_boards(boards: Sequence[ComparedCase]) -> str:
    """Return since when the runs of boards of one type count, on how many of them, and how many came before; empty where all count."""
    segments = [board.case.segment for board in boards if board.case.segment]
    days = sorted(figures.stamp(segment.since_ns)[:10] for segment in segments)
    period = " to ".join(dict.fromkeys((days[0], days[-1]))) if days else ""
    earlier = figures.count(sum(segment.earlier for segment in segments), "earlier run")
    return f"{len(segments)} of {len(boards)} boards since {period}; {earlier} left out" if segments else ""


def case_names(cases: Sequence[CaseSummary]) -> list[str]:
    """Return a short name for each case: precision and runtime, and of the rest, such as its role, what tells cases of one device apart."""
    models = [case.key.model for case in cases]
    parts = [*([models] if len(set(models)) > 1 else []), [case.key.precision for case in cases], [case.key.runtime for case in cases]]
    owners = [f"{case.key.fleet} {case.key.device} {case.key.role}" for case in cases]
    short = [" · ".join(texts) for texts in zip(*parts, *telling_parts(cases, [owners, *parts]), strict=True)]
    # One device may be the reference too, and devices of two fleets may have one name: where nothing else tells their cases apart.
    alike = grouped(((case.key.device, name), case.key) for case, name in zip(cases, short, strict=True))
    distinctions = {key: apart(key, keys, [FIELD["role"].text, FIELD["fleet"].text]) for keys in alike.values() for key in keys}
    return [" · ".join([name, *distinctions[case.key]]) for case, name in zip(cases, short, strict=True)]


def telling_parts(cases: Sequence[CaseSummary], shown_texts: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return what else tells the cases apart, each a text for every case; `shown_texts` are such texts that a reader sees anyway."""
    case_of_data = {case.key.dataset_sha256: case for case in cases}
    names_of_data = {sha256: case.subject.dataset.name for sha256, case in case_of_data.items()}
    # Where two data sets have one name, the start of their hashes tells them apart.
    is_clear = len(set(names_of_data.values())) == len(names_of_data)
    telling: list[list[str]] = []
    for entry in FIELDS:
        if entry.name in ("device", "model", "precision", "runtime"):
            continue
        texts = [entry.text(case.key) for case in cases]
        if entry.name == "dataset_sha256":
            hashes = [case.key.dataset_sha256 for case in cases]
            texts = [names_of_data[sha256] + ("" if is_clear else f" ({sha256[:6]})") for sha256 in hashes]
        if _different([*shown_texts, *telling, texts]) > _different([*shown_texts, *telling]):
            telling.append(texts)
    return telling


def load_words(key: CaseKey) -> str:
    """Return under which load a case ran, and beside which models, after a comma; empty of one alone, call by call."""
    return f", {load}" if (load := load_text(key)) else ""


def _different(parts: Sequence[Sequence[str]]) -> int:
    return len(set(zip(*parts, strict=True)))
