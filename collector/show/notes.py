"""Footnotes: a long reason stands once below a table, and a number stands for it in the cells."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Notes:
    """Numbers reasons from 1 in the order in which they are first cited."""

    texts: list[str] = field(default_factory=list)

    def cite(self, text: str) -> int:
        """Return the number of `text`, a new one when it was not cited before."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text) + 1
