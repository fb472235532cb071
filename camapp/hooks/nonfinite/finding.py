"""Finding: where the first NaN or infinity of a step was born, as data and as a few lines of text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

Phase: TypeAlias = Literal["forward", "backward", "recomputation"]
Place: TypeAlias = Literal[
    "module", "between modules", "before the model", "loss", "after the backward", "hook",
    "parameter", "buffer", "batch", "constant",
]  # fmt: skip


@dataclass(frozen=True)
class ModuleCall:
    """One call of one module.

    Args:
        name: the module's dotted name; empty for the model itself.
        kind: the name of its class.
        call: the number of the call within the step, from 0.
        calls: how often the module was called in the step.
    """

    name: str
    kind: str
    call: int = 0
    calls: int = 1

    def __str__(self) -> str:
        if not self.name:
            return f"the model ({self.kind})"
        return f"{self.name}{f'@{self.call}' if self.calls > 1 else ''} ({self.kind})"


@dataclass(frozen=True)
class TensorFacts:
    """What a tensor was, and how many of its elements were not finite.

    Args:
        name: the name of the argument that it was, ``"weight"`` say; empty for a result.
        shape: its shape.
        dtype: its dtype, ``"float16"``.
        nan: how many elements are NaN.
        inf: how many are +Inf or -Inf.
        largest: the largest magnitude of those that are finite, from 0.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int
    inf: int
    largest: float


@dataclass(frozen=True)
class Finding:
    """Where the first non-finite value of a step was born.

    Args:
        place: what kind of place that is: a module; the code of a container between its modules; the step's own code
            before the model, in the loss or after the backward; a hook; or a tensor that was not finite to begin with
            (a parameter, a buffer, the batch, or another).
        phase: in the forward, in the backward, or in a forward that was run again for it (checkpointing).
        module: the module in whose forward, or in the backward of whose forward, it was born, or that uses the tensor
            which was not finite; None outside of the model.
        operation: aten's name of the operation, ``"aten.div.Tensor"``; None where no operation was involved.
        autograd: autograd's name of it, ``"DivBackward0"``; None where it has none or torch did not tell.
        inputs: what the operation took.
        outputs: what it gave. Of a tensor that was not finite to begin with, that one alone.
        largest_input: the largest finite magnitude of all that it took; None where it took no tensors.
        overflow: whether the result was too large for its dtype, as far as the magnitudes tell.
        tensor: the name of the parameter or buffer that was not finite, or whose gradient a hook worked on.
        mask: where -Inf that was written on purpose, and that the value was made of, came from; None elsewhere.
        before: the module that ran before, in true order (in a backward: whose backward ran before); None for none.
        after: the module that ran next; None for none.
        line: the line of code that called the operation, ``"net.py:34"``; None where autograd did.
    """

    place: Place
    phase: Phase
    module: ModuleCall | None
    operation: str | None
    autograd: str | None
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    largest_input: float | None = None
    overflow: bool = False
    tensor: str | None = None
    mask: str | None = None
    before: ModuleCall | None = None
    after: ModuleCall | None = None
    line: str | None = None

    @property
    def nan(self) -> int:
        """How many NaN the outputs hold."""
        return sum(facts.nan for facts in self.outputs)

    @property
    def inf(self) -> int:
        """How many infinities the outputs hold."""
        return sum(facts.inf for facts in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """All of it as numbers, texts, lists and dicts, for JSON."""
        return _plain({**asdict(self), "nan": self.nan, "inf": self.inf})

    def __str__(self) -> str:
        return "\n".join([f"{self._what()} {self._where()}.", *(f"  {line}" for line in self._details())])

    def _what(self) -> str:
        kinds = [name for name, count in (("NaN", self.nan), ("Inf", self.inf)) if count]
        return " and ".join(kinds) or "A value that is not finite"

    def _where(self) -> str:
        phase = {"forward": "forward", "backward": "backward", "recomputation": "recomputed forward"}[self.phase]
        user = f", which {self.module} uses" if self.module else ""
        if self.place == "parameter" or self.place == "buffer":
            return f"in the {self.place} {self.tensor}{user}"
        if self.place == "batch":
            return f"in the batch{user}" if self.module else "in a tensor that the step brings along"
        if self.place == "constant":
            return f"in {self.tensor or 'a tensor from outside, no parameter and no buffer'}{user}"
        if self.place == "hook":
            of = f"parameter {self.tensor}" if self.tensor else f"the output of {self.module or 'no module'}"
            return f"first in a hook, on the gradient of {of}"
        if self.place == "module":
            return f"first in the {phase} of {self.module}"
        if self.place == "between modules":
            return f"first in the {phase} between modules, in the code of {self.module or 'the step'}"
        if self.place == "loss":
            return f"first in the {phase} of the loss, behind the model"
        if self.place == "before the model":
            return f"first in the {phase} of the step, before the model"
        return "first in the step, after the backward"

    def _details(self) -> list[str]:
        lines = []
        if self.outputs:
            lines.append(f"{'; '.join(_counted(facts) for facts in self.outputs if facts.nan or facts.inf)}.")
        if self.operation:
            named = f" ({self.autograd})" if self.autograd else ""
            verb = "Taken by" if self.place in ("parameter", "buffer", "batch", "constant") else "Made by"
            given = ", ".join(f"{facts.name or 'input'} {_shaped(facts)}" for facts in self.inputs)
            line = f" at {self.line}" if self.line else ""
            lines.append(f"{verb} {self.operation}{named}{line}{f' from {given}' if given else ''}.")
        if self.largest_input is not None:
            overflow = f": an overflow of {self.outputs[0].dtype}" if self.overflow else ""
            lines.append(f"The largest finite number that it took is {self.largest_input:.4g}{overflow}.")
        if self.mask:
            lines.append(f"Made of the -Inf of a mask, which came from {self.mask}.")
        if self.before or self.after:
            lines.append(f"Before it ran {self.before or 'no module'}, after it {self.after or 'no module'}.")
        return lines


def _counted(facts: TensorFacts) -> str:
    total = 1
    for size in facts.shape:
        total *= size
    parts = [f"{count} {name}" for name, count in (("NaN", facts.nan), ("Inf", facts.inf)) if count]
    return f"{' and '.join(parts)} of {total} elements, {_shaped(facts)}"


def _shaped(facts: TensorFacts) -> str:
    return f"{facts.dtype} {facts.shape}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value
