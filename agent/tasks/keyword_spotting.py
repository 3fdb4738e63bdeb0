"""Keyword spotting: one word per recording, scored as a classifier is; models of samples and models of features (the card's input)."""

from collections.abc import Callable, Sequence

from edgemeter.agent.audio.front_end import FrontEnd
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.datasets.items import Item
from edgemeter.agent.tasks import Inputs
from edgemeter.agent.tasks.classification import Classification


class KeywordSpotting(Classification):
    """Keeps the five best classes of every recording."""

    def _front_end(self) -> Callable[[Item], Sequence[Inputs]]:
        front = FrontEnd(self._model, self._loaded)

        def calls(item: Item) -> Sequence[Inputs]:
            found = [front.call(values, item) for values in front.real(item)]
            if len(found) > 1:
                raise ConfigError(f"item {item.name!r} makes {len(found)} calls, a keyword one: remove input.features.frames from the card")
            return found

        return calls
