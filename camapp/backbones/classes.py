"""Which class of a model a user means by a name, the beginning of one, or an index."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass

from camapp.errors import TargetError, closest

_LISTED = 8


@dataclass(frozen=True)
class ClassNames:
    """The classes of a model.

    Args:
        model: its name, for messages.
        labels: the name of each class, by index.
    """

    model: str
    labels: tuple[str, ...]

    def index(self, wanted: int | str) -> int:
        """The index of a class, as ``LoadedModel.class_index`` says.

        Raises:
            TargetError: no class is meant, or several are; lists the candidates.
        """
        if not isinstance(wanted, str):
            return self.in_range(wanted)
        text = wanted.strip().lower()
        if re.fullmatch(r"[+-]?\d{1,18}", text) and text not in self.labels:
            return self.in_range(int(text))
        hits = self._meant(text) if text else []
        if len(hits) > 1:
            raise TargetError(f'"{wanted}" may be {self._listed(hits)}. Give the index of the one you mean.')
        if hits and self.labels[hits[0]].lower().startswith(text):
            return hits[0]
        alike = hits or [self.labels.index(label) for label in (closest(text, self.labels) if text else [])]
        hint = f" Did you mean {self._listed(alike)}?" if alike else ""
        raise TargetError(f'{self.model} has no class "{wanted}".{hint} Give a name or an index, {self._range}.')

    def in_range(self, index: int) -> int:
        """The index, if a class has it.

        Raises:
            TargetError: none has, or it is no index.
        """
        try:
            if isinstance(index, bool):
                raise TypeError
            index = operator.index(index)
        except TypeError:
            raise TargetError(f"{index!r} is not a class; give a name or an index, {self._range}.") from None
        if not 0 <= index < len(self.labels):
            raise TargetError(f"{self.model} has no class {index}: its {len(self.labels)} classes are {self._range}.")
        return index

    def _meant(self, text: str) -> list[int]:
        """The classes of that name; else those that begin with it or have it as a word.

        A word within one name alone means none ("fish" is no anemone fish), but with others it is not told apart from
        them ("cat" is no catamaran).
        """
        word = re.compile(rf"\b{re.escape(text)}\b")
        lowered = [label.lower() for label in self.labels]
        named = [index for index, label in enumerate(lowered) if label == text]
        return named or [index for index, label in enumerate(lowered) if label.startswith(text) or word.search(label)]

    @property
    def _range(self) -> str:
        return f"0 to {len(self.labels) - 1}"

    def _listed(self, indices: list[int]) -> str:
        more = f" or {len(indices) - _LISTED} more" if len(indices) > _LISTED else ""
        return " or ".join(f"{self.labels[index]} ({index})" for index in indices[:_LISTED]) + more
