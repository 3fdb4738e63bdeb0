"""The kit: tables, methods, plots, and the runs that they were made of, as one archive or folder from which they can be made again."""

import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from edgemeter.agent.base import durable_file, figures
from edgemeter.agent.base.errors import UnavailableError, os_error_as
from edgemeter.agent.bundle.archive import BUNDLE_SUFFIX
from edgemeter.agent.contract.record import RunRecord, encode
from edgemeter.collector.charts import vega
from edgemeter.collector.compare.summary import DaysCounted
from edgemeter.collector.paper.methods import methods
from edgemeter.collector.paper.paper_cases import paper_cases
from edgemeter.collector.paper.paper_tables import tables
from edgemeter.collector.paper.plots import as_svg, plots
from edgemeter.collector.paper.typesetting import as_paragraph
from edgemeter.collector.runs.store import oldest_first

TABLES, METHODS, RECORDS, BUNDLES = "tables.tex", "methods.tex", "records.json", "bundles"
# Every file has the same date: what differs between two archives is their content.
_DATE = (1980, 1, 1, 0, 0, 0)
_README = """# {title}

Made by Edgemeter {version} from {runs}. Every number here can be made again from the runs in this folder:

```console
$ pip install 'edgemeter[report,sign]=={version}'
{verify}$ edgemeter report {sources} -o again/{options}
$ diff tables.tex again/tables.tex && diff methods.tex again/methods.tex
$ sha256sum -c SHA256SUMS
```

| file | what it is |
|---|---|
| `tables.tex` | the tables, LaTeX with booktabs: every figure with its 95% interval or uncertainty, and its unit |
| `methods.tex` | how the runs were measured, in sentences made from the records |
| `plots/` | latency of every query, and cost against accuracy, as SVG and PDF |
{contents}| `SHA256SUMS` | the hash of every other file |

To cite Edgemeter: CITATION.cff in its repository, with version {version}.
"""


def kit(runs: Iterable[RunRecord], bundles: Mapping[str, Path], days: DaysCounted, version: str) -> dict[str, bytes]:
    """Return the files of the kit; `bundles` (by run id) stay as they are; raises UnavailableError without runs, a bundle or charts."""
    ordered = oldest_first(runs)
    paper = paper_cases(ordered, days)
    files = {TABLES: tables(paper).encode(), METHODS: as_paragraph(methods(paper)).encode()}
    for name, chart in plots(paper.cases).items():
        files |= {f"plots/{name}.svg": as_svg(chart), f"plots/{name}.pdf": vega.pdf(chart)}
    without_bundle = [run for run in ordered if run.id not in bundles]
    files |= {f"{BUNDLES}/{run.id}{BUNDLE_SUFFIX}": _read(bundles[run.id]) for run in ordered if run.id in bundles}
    if without_bundle:
        files[RECORDS] = b'{"runs": [' + b",\n".join(encode(run) for run in without_bundle) + b"]}\n"
    files["README.md"] = _readme(ordered, len(without_bundle), days, version).encode()
    files["SHA256SUMS"] = "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()
    return files


def tables_of(runs: Iterable[RunRecord], days: DaysCounted) -> bytes:
    """Return the tables alone; raises as `kit`."""
    return tables(paper_cases(runs, days)).encode()


def write_kit(files: Mapping[str, bytes], path: Path) -> None:
    """Write the files as the archive `path` (.zip), or into the folder `path`; raises UnavailableError if they cannot be written."""
    with os_error_as(UnavailableError, f"cannot write {str(path)!r}", "give a writable place with enough space"):
        if path.suffix.lower() == ".zip":
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
                for name in sorted(files):
                    packed.writestr(zipfile.ZipInfo(name, _DATE), files[name], zipfile.ZIP_DEFLATED)
            written = {path: archive.getvalue()}
        else:
            written = {path / name: content for name, content in files.items()}
        for target, content in written.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            with durable_file.replacing(target, 0o644) as file:
                file.write(content)


def _readme(runs: Sequence[RunRecord], unbundled: int, days: DaysCounted, version: str) -> str:
    has_bundles = unbundled < len(runs)
    sources = [*([BUNDLES] if has_bundles else []), *([RECORDS] if unbundled else [])]
    contents = "| `bundles/` | runs as bundles: record and raw samples, with signatures where they were signed |\n" if has_bundles else ""
    contents += "| `records.json` | runs as records, with their raw samples where they were kept |\n" if unbundled else ""
    return _README.format(
        title="What these tables were made of", version=version, runs=figures.count(len(runs), "run"), sources=" ".join(sources),
        verify=f"$ edgemeter bundle verify {BUNDLES}/*{BUNDLE_SUFFIX}\n" if has_bundles else "",
        options=" --all-days" if days == "all" else "", contents=contents,
    )  # fmt: skip


def _read(path: Path) -> bytes:
    with os_error_as(UnavailableError, f"cannot read the bundle {str(path)!r}"):
        return path.read_bytes()
