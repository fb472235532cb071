"""Gradients of what checkpointing computes again within a backward, matched to what the forward gave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from camapp.hooks.inspector.figures import Reading

if TYPE_CHECKING:
    from camapp.hooks.inspector.forward import Seen


class Recomputed:
    """Gradients of recomputed outputs.

    Reentrant checkpointing runs a segment of the network without a graph, and again within the backward, last segment
    first: only what is recomputed has gradients. (The other kind recomputes too, but sends gradients through the
    outputs of the forward; nothing ever comes here.)
    """

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._new = True

    def counted(self, name: str) -> int:
        """The number of a recomputed call within its segment."""
        if self._new:
            self._segments.append(_Segment())
            self._new = False
        calls = self._segments[-1].calls
        calls[name] = calls.get(name, 0) + 1
        return calls[name] - 1

    def taker(self, name: str, call: int, part: str) -> Callable[[Reading], None]:
        """What takes the gradient of a part of a recomputed call."""
        gradients = self._segments[-1].gradients

        def take(gradient: Reading) -> None:
            gradients[name, call, part] = gradient

        return take

    def gradient_came(self) -> None:
        """A segment is recomputed as a whole before gradients run through it: what is computed next begins another."""
        self._new = True

    def deliver(self, seen: dict[tuple[str, int, str], Seen]) -> None:
        """Give each gradient to the call that it belongs to: among those without a graph, the last segment's last."""
        waiting: dict[str, list[int]] = {}
        for (name, call, _), one in seen.items():
            calls = waiting.setdefault(name, [])
            if not one.recorded and call not in calls:
                calls.append(call)
        for segment in self._segments:
            for name in dict.fromkeys(name for name, _, _ in segment.gradients):
                calls = waiting.get(name, [])
                own = calls[max(0, len(calls) - segment.calls[name]) :]
                del calls[len(calls) - len(own) :]
                for (of, call, part), gradient in segment.gradients.items():
                    if of == name and call < len(own) and (name, own[call], part) in seen:
                        seen[name, own[call], part].gradient = gradient


@dataclass
class _Segment:
    """What was recomputed in one go: how often each layer ran, and the gradients by layer, call and part."""

    calls: dict[str, int] = field(default_factory=dict)
    gradients: dict[tuple[str, int, str], Reading] = field(default_factory=dict)
