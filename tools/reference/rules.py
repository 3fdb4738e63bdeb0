"""The rules: of the verdict on a run, and of which cases are compared."""

from edgemeter.agent.verdict.words import rule_rows
from edgemeter.collector.compare.pairing import EQUAL_IF_KNOWN, comparability_rules
from tools.reference.tables import table

HEAD = """# Rules

## Verdict on a run

The verdict is `ok`, `disturbed` or `invalid`. If a run is not ok, find its sentence below, do what
the last column says, and measure again. In a sentence, N is a number of your run, and `...` names
the part that it is about.

- **Disturbed**: something other than the model changed the figures. The run is left out once three
  runs of its case are ok.
- **Invalid**: the figures are wrong. The run is listed and enters no statistic.
- **Note**: the figures are right.

If the machine does not report what a rule needs, the rule is not violated.
"""
EFFECTS = {"invalid": "Invalid", "disturbed": "Disturbed", "note": "Notes"}
COMPARABILITY = """
## What is compared with what

- `edgemeter compare --reference NAME`, and the web page, compare each case with the most similar
  case of the reference, by the rules below.
- `edgemeter compare OLD NEW`, with stored runs, compares the same cases on the same device, or else
  on the same board.
- `edgemeter compare a.onnx b.onnx` compares any models. Speeds need the same scenario, rate and
  deadline, accuracies the same metric and images, energies the same scope.
"""


def page() -> str:
    """Return the page: the rules of the verdict with what to do, then what must match."""
    text = HEAD
    for effect, heading in EFFECTS.items():
        rows = [
            (f"`{row.name}`", row.sentence, row.remedy)
            for row in rule_rows()
            if row.effect == effect
        ]
        text += f"\n### {heading}\n\n{table(['rule', 'sentence', 'what to do'], rows)}"
    text += COMPARABILITY
    rules = comparability_rules()
    equal = [row for row in rules if row["asked"] == EQUAL_IF_KNOWN]
    text += "\nThese have to be equal, if both are known. Otherwise the case is left out:\n\n"
    text += table(["what", "why"], ((row["what"], row["why"]) for row in equal))
    further = (tuple(row.values()) for row in rules if row not in equal)
    return f"{text}\nFurther rules:\n\n{table(['what', 'has to be', 'otherwise', 'why'], further)}"
