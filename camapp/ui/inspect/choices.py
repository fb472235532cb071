"""The one way from choices that nobody vouches for to costs, channels and an inspection, for the page and its API."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from camapp.backbones.costs import Costs, measure_costs
from camapp.backbones.load import LoadedModel
from camapp.channels import RANKINGS, ChannelMaps, channel_maps
from camapp.channels.ranking import checked_ranking
from camapp.errors import LayerError, UsageError
from camapp.images.decode import decode
from camapp.inspection import Inspection, inspect_picture
from camapp.ui.frame.calls import as_downloaded
from camapp.ui.frame.choices import check_layer, needed_picture, recommended_layer
from camapp.ui.frame.classes import TOP_PREDICTION, is_top
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import Task

T = TypeVar("T")

SCALES = ("channel", "common")
MOST_CHANNELS = 256

# Seconds for the forward of an inspection, after which its backward is not begun: others wait.
DEADLINE = 120.0

# Costs of models and inspections of pictures that are remembered: another layer of the same picture needs neither anew.
_REMEMBERED = 16


@dataclass(frozen=True)
class Choices:
    """What is to be inspected, and how it is shown; as a visitor sent it.

    Args:
        picture: the path of an upload, or None.
        model: one of the models on offer.
        layers: names of its layers, of which the first is inspected; none for the recommended one.
        target: class index or name; -1 or empty for the top prediction.
        ranking: one of ``RANKINGS``.
        most: how many channels are shown.
        scale: "channel" or "common".
    """

    picture: str | None
    model: str
    layers: Sequence[str] = ()
    target: int | str = TOP_PREDICTION
    ranking: str = "mean"
    most: int = 36
    scale: str = "channel"

    def check(self) -> None:
        """Refuse what can be seen to be wrong without the model.

        Raises:
            UsageError: a ranking, a scale or a number of channels that there is not.
        """
        checked_ranking(self.ranking)
        if self.scale not in SCALES:
            raise UsageError(f'No scale "{str(self.scale)[:40]}". Scales: {", ".join(SCALES)}.')
        if isinstance(self.most, bool) or not isinstance(self.most, int) or not 1 <= self.most <= MOST_CHANNELS:
            raise UsageError(f"{str(self.most)[:40]} channels cannot be shown: choose from 1 to {MOST_CHANNELS}.")

    def check_with_picture(self) -> None:
        """Likewise, where a picture is needed.

        Raises:
            UsageError: there is none, or as ``check``.
        """
        needed_picture(self.picture)
        self.check()

    @property
    def top(self) -> bool:
        """Whether each picture's own likeliest class is meant."""
        return is_top(self.target)

    def target_of(self, model: LoadedModel) -> int | None:
        """The class, None for the likeliest.

        Raises:
            TargetError: the model has no such class.
        """
        return None if self.top else model.class_index(self.target)


@dataclass
class Looks:
    """Looks at what was chosen, and remembers what the next look may need again.

    Args:
        pool: the models on offer.
    """

    pool: ModelPool
    _costs: _Memory = field(default_factory=lambda: _Memory(_REMEMBERED))
    _inspections: _Memory = field(default_factory=lambda: _Memory(_REMEMBERED))

    def layer(self, choices: Choices) -> str:
        """The layer that is inspected.

        Raises:
            LayerError: the model has none of that name that gives a map.
        """
        layers = self.pool.layers(choices.model)
        name = next(iter(choices.layers), "") or recommended_layer(layers)
        if not name:
            raise LayerError(f"{choices.model} has no layer that gives a map.")
        check_layer(name, layers, choices.model)
        return name

    def costs(self, model: str) -> Costs:
        """What every part of a model costs."""
        return self._costs.get(model, lambda: measure_costs(self.pool.load(model)))

    def channels(self, choices: Choices) -> ChannelMaps:
        """The channels of the layer, ranked.

        Raises:
            CamappError: what is wrong with any of the choices.
        """
        model = as_downloaded(self.pool.load(choices.model))
        ranking = checked_ranking(choices.ranking)
        target = choices.target_of(model) if ranking == "gradient" else None
        return channel_maps(model, choices.picture or "", self.layer(choices), ranking=ranking, target=target)

    def inspection(self, choices: Choices, task: Task[Any]) -> Inspection:
        """The figures of all layers, of one forward and backward.

        Args:
            choices: nobody vouches for them.
            task: may stop it.

        Raises:
            CamappError: what is wrong with any of the choices.
            StoppedError: nobody waits for it any more, or it took too long.
        """
        model = as_downloaded(self.pool.load(choices.model, slow=True))
        target = choices.target_of(model)

        def make() -> Inspection:
            picture = decode(choices.picture or "")
            return inspect_picture(model, picture, target=target, deadline=DEADLINE, cancel=task.cancelled)

        return self._inspections.get((choices.picture, choices.model, target), make)

    def knows_inspection(self, choices: Choices) -> bool:
        """Whether the inspection is there at once."""
        model = self.pool.load(choices.model)
        return (choices.picture, choices.model, choices.target_of(model)) in self._inspections


class _Memory:
    """The last few things that were made, by what they were made of."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, key: Hashable) -> bool:
        with self._lock:
            return key in self._kept

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                found: T = self._kept[key]
                return found
        made = make()
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return made


def ranking_choices() -> list[tuple[str, str]]:
    """The rankings as a control offers them."""
    return [(words[:1].upper() + words[1:], name) for name, words in RANKINGS.items()]
