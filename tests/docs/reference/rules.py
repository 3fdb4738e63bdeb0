"""The rules: of the verdict on a run, and of which cases are compared."""

from itertools import groupby
from operator import itemgetter

from edgemeter.agent.verdict.words import rule_rows
from edgemeter.collector.compare.pairing import comparability_rules
from tests.docs.reference.tables import table

HEAD = """# Rules

## Verdict on a run

The verdict is `ok`, `disturbed` or `invalid`. If a run is not ok, find its rule below, do what the last column says, and measure again.

- **Disturbed**: something other than the model changed the figures. The run is left out once three runs of its case are ok.
- **Invalid**: the figures are wrong. The run is listed and enters no statistic.
- **Note**: the figures are right, but you should know about it.

A rule is not violated if the machine does not report what the rule needs.
"""
EFFECTS = {"invalid": "Invalid", "disturbed": "Disturbed", "note": "Notes"}
COMPARABILITY = """
## What is compared with what

- **Cases with a reference** (`edgemeter compare --reference NAME`, and the page): each case is compared with the most similar reference
  case, by the rules below. A case without a match is listed with the reason.
- **A change with its baseline** (`edgemeter compare OLD NEW`, stored runs): each case is compared with the same case on the same device. If
  no device is on both sides, the board has to be the same. If each side has one case, these two are compared.
- **Models that you name** (`edgemeter compare a.onnx b.onnx`): they may differ in everything. Speeds are compared only under the same
  scenario, rate and deadline, accuracies only by the same metric on the same images, energies only at the same scope. `--require` and
  `--cheapest` choose among cases that differ only in model, precision and input size.
"""
KINDS = [
    ("measured", "measured", "yes"),
    ("replayed", "replayed", "yes, marked"),
    ("imported (MLPerf)", "compatible MLPerf results", "no"),
    ("published", "nothing", "no"),
]


def page() -> str:
    """Return the page: the rules of the verdict with what to do, then what must match, rules with the same requirement together."""
    text = HEAD
    for effect, heading in EFFECTS.items():
        rows = [(f"`{row.name}`", row.sentence, row.remedy) for row in rule_rows() if row.effect == effect]
        text += f"\n### {heading}\n\n{table(['rule', 'sentence', 'what to do'], rows)}"
    text += COMPARABILITY
    for (requirement, otherwise), group in groupby(comparability_rules(), key=itemgetter("asked", "otherwise")):
        rows = [(row["what"], row["why"]) for row in group]
        if len(rows) > 1:
            text += f"\n{requirement.capitalize()}; otherwise {otherwise}:\n\n{table(['what', 'why'], rows)}"
        else:
            text += f"\n**{rows[0][0].capitalize()}**: {requirement}; otherwise {otherwise} ({rows[0][1]}).\n"
    return f"{text}\n{table(['figures', 'are compared with', 'and ranked'], KINDS)}"
