"""What a call that is copied says of files and of the model, so that it runs as it stands elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace

from camapp.backbones.load import LoadedModel
from camapp.features.headed import HeadedNetwork
from camapp.features.saved import SUFFIX


def here(name: str) -> str:
    """A file of this folder as a word of a command: a name that begins with ``-`` would be an option."""
    return f"./{name}" if name.startswith("-") else name


def in_a_comment(text: str) -> str:
    """A text within a comment of a program, which would end where a line does."""
    return " ".join(text.split())


@dataclass(frozen=True)
class CalledModel:
    """A model as calls name it.

    Args:
        name: of its card, or of the file of a classifier that was trained here.
        random_weights: whether it has random weights.
    """

    name: str
    random_weights: bool = False

    @classmethod
    def of(cls, model: LoadedModel) -> CalledModel:
        """How a model is called."""
        return cls(model.name, model.weights.random)

    @property
    def python(self) -> str:
        """What stands for it in Python, where ``camapp`` is imported."""
        return f"camapp.load_model({self.name!r}, random_weights=True)" if self.random_weights else repr(self.name)

    @property
    def words(self) -> list[str]:
        """The options of a command that name it."""
        return ["--model", here(self.name), *(["--random-weights"] if self.random_weights else [])]

    @property
    def hint(self) -> str:
        """A line of comment in front of the Python: where the file of a classifier comes from; else nothing."""
        return f"# {self.name}: download it from the Features tab first\n" if self.name.endswith(SUFFIX) else ""


def as_downloaded(model: LoadedModel) -> LoadedModel:
    """The model under a name that loads it anywhere: a classifier's is that of its file, others keep theirs."""
    if not isinstance(model.module, HeadedNetwork) or model.name.endswith(SUFFIX):
        return model
    return replace(model, card=model.card.model_copy(update={"name": model.name + SUFFIX}))
