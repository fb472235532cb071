"""The one way from choices that nobody vouches for to an explanation, for the page and its API."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from camapp.backbones.layers import LayerInfo
from camapp.backbones.load import LoadedModel
from camapp.cam.engine import Method
from camapp.cam.methods import find_method
from camapp.cam.targets import TopClasses
from camapp.errors import TargetError
from camapp.explainer import explain
from camapp.explanation import Explanation
from camapp.ui.frame.calls import as_downloaded
from camapp.ui.frame.choices import check_layer_count, needed_picture, own_layers
from camapp.ui.frame.classes import TOP_PREDICTION, is_top
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import Task

# Nothing to compare with.
NO_RIVAL = -2

# What may be chosen to compare with, beside the classes.
RIVALS = (("Nothing", NO_RIVAL), ("The next likeliest class", TOP_PREDICTION))

# The model card's own way to fit a picture.
OWN_FIT = "model"

# Seconds after which a method that runs the model many times gives up, so that others get their turn.
DEADLINE = 120.0


@dataclass(frozen=True)
class Choices:
    """What is to be explained, and how; as a visitor sent it.

    Args:
        picture: the path of an upload, or None.
        model: one of the models on offer.
        layers: some of its layers; none for the method's own.
        method: one of ``METHODS``.
        target: class index or name; -1 or empty for the top prediction.
        rival: another class, to be set against it; -2 or empty for none, -1 for the next likeliest.
        fit: "crop", "letterbox", "stretch", or "model" for the card's own.
        sign: "positive" or "negative".
        exact: whether the recommended layer means itself; see ``own_layers``.
    """

    picture: str | None
    model: str
    layers: Sequence[str] = ()
    method: str = "gradcam"
    target: int | str = TOP_PREDICTION
    rival: int | str = NO_RIVAL
    fit: str = OWN_FIT
    sign: str = "positive"
    exact: bool = False

    @property
    def kind(self) -> type[Method]:
        """The method.

        Raises:
            UsageError: there is none of that name.
        """
        return find_method(self.method)

    @property
    def slow(self) -> bool:
        """Whether it takes seconds or minutes."""
        return self.kind.runs_many

    def own_layers(self, layers: Sequence[LayerInfo]) -> bool:
        """Whether the layers are the method's own choice, of a model that has ``layers``."""
        return own_layers(self.layers, layers, exact=self.exact)

    def check(self) -> None:
        """Refuse what can be seen to be wrong without the model.

        Raises:
            UsageError: no picture, no such method, too many layers.
        """
        needed_picture(self.picture)
        check_layer_count(self.layers)
        find_method(self.method)


@dataclass(frozen=True)
class Explained:
    """An explanation with what made it.

    Args:
        explanation: of one class, or of two.
        model: which model.
        layers: all its layers with a map.
        named: what the model is called where it is loaded again.
        choices: what was asked for.
    """

    explanation: Explanation
    model: LoadedModel
    layers: list[LayerInfo]
    choices: Choices
    named: str


def explain_choices(pool: ModelPool, choices: Choices, task: Task[Any]) -> Explained:
    """Explain what a visitor chose.

    Args:
        pool: the models on offer.
        choices: nobody vouches for them.
        task: is told how far it is, and may stop it.

    Raises:
        CamappError: what is wrong with any of the choices.
    """
    choices.check()
    kind = choices.kind
    model, layers = pool.load(choices.model, slow=choices.slow), pool.layers(choices.model)
    own = not kind.takes_layer or choices.own_layers(layers)
    explanation = explain(
        model,
        choices.picture or "",
        targets=_targets(model, choices),
        method=kind.name,
        layer=None if own else list(choices.layers),
        fit=_fit(choices),
        sign=choices.sign,  # type: ignore[arg-type]
        progress=task.progress,
        deadline=DEADLINE,
        cancel=task.cancelled,
    )
    return Explained(explanation, model, layers, choices, as_downloaded(model).name)


def _fit(choices: Choices) -> Any:
    return None if choices.fit in (OWN_FIT, "") else choices.fit


def _targets(model: LoadedModel, choices: Choices) -> int | list[int] | TopClasses:
    """The class to explain, or two of them."""
    top, next_likeliest = is_top(choices.target), is_top(choices.rival)
    if choices.rival in (NO_RIVAL, str(NO_RIVAL), "", None):
        return TopClasses(1) if top else model.class_index(choices.target)
    if top and next_likeliest:
        return TopClasses(2)
    if not (top or next_likeliest):
        return _apart(model, model.class_index(choices.target), model.class_index(choices.rival))
    ranked = [one.index for one in explain(model, choices.picture or "", fit=_fit(choices)).predictions]
    target = ranked[0] if top else model.class_index(choices.target)
    others = [index for index in ranked if index != target]
    rival = others[0] if next_likeliest else model.class_index(choices.rival)
    return _apart(model, target, rival)


def _apart(model: LoadedModel, target: int, rival: int) -> list[int]:
    if rival == target:
        raise TargetError(f"{model.label(target)} is compared with itself: choose another class to compare with.")
    return [target, rival]
