"""FunctionCalls: sees the calls of torch's functions while a model runs, and may answer some of them otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from torch.overrides import TorchFunctionMode

from camapp.hooks.as_found import here


class FunctionCalls(TorchFunctionMode):
    """While it is entered, calls of some functions of torch are answered by handlers, modules' own calls included.

    Unlike module hooks it sees functional calls too (``F.relu``, a method of a tensor). Nothing of the model is
    changed, so nothing has to be put back. Only the thread that entered it is heeded, and no forward of another
    explanation nested in this one. Calls within a handler, or within one of torch's own Python functions, are not seen.
    """

    #: By function, the name of the method that answers: given the function, its positional and its keyword arguments,
    #: it returns what the caller gets. (Names, since methods bound to it would make it a cycle, which lives on for a
    #: while with all the tensors that it holds.)
    answers: ClassVar[Mapping[Callable[..., Any], str]]

    def __init__(self) -> None:
        super().__init__()
        self._here = (0, 0)

    def __enter__(self) -> Any:
        self._here = here()
        return super().__enter__()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer one call."""
        answer = self.answers.get(func) if here() == self._here else None
        if answer is None:
            return func(*args, **(kwargs or {}))
        return getattr(self, answer)(func, args, kwargs or {})
