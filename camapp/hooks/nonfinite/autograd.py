"""What autograd says of itself while it runs: the only room that knows torch's private names for it."""

from __future__ import annotations

import os
import threading
from types import FrameType
from typing import Any

import torch

# Private, and the same in torch 2.6 and 2.14. Where one is missing, operations are still found, but named by module
# only in the forward.
_sequence = getattr(torch.autograd, "_get_sequence_nr", None)
_node = getattr(torch._C, "_current_autograd_node", None)
_task = getattr(torch._C, "_current_graph_task_id", None)

_engine = getattr(getattr(torch.autograd.graph, "_engine_run_backward", None), "__code__", None)
_beginning = getattr(getattr(torch.autograd, "_make_grads", None), "__code__", None)
_torch_folder = os.path.dirname(torch.__file__) + os.sep

_UNNUMBERED = 2**64 - 1  # the number of nodes that accumulate the gradient of a leaf


def next_number() -> int:
    """The number that the next node of the graph will get that this thread makes; 0 where torch does not tell."""
    return _sequence() if _sequence else 0


def running_task() -> int:
    """The number of the backward that this thread works for; -1 outside of any. One within another has its own."""
    return _task() if _task else -1


def running_node() -> Any:
    """The node of the graph whose backward runs in this thread, or ran last; None outside of a backward."""
    return _node() if _node else None


def number_of(node: Any) -> int | None:
    """The number of a node, by the order in which its thread made it; None for those of leaves, which have none."""
    number = node._sequence_nr()
    return None if number == _UNNUMBERED else int(number)


def name_of(node: Any) -> str:
    """The name of a node, such as ``DivBackward0``."""
    return str(node.name()).rpartition("::")[2]


def leaf_of(node: Any) -> torch.Tensor | None:
    """The tensor whose gradient a node accumulates; None for all other nodes."""
    leaf = getattr(node, "variable", None) if name_of(node) == "AccumulateGrad" else None
    return leaf if isinstance(leaf, torch.Tensor) else None


def written_in_python(node: Any) -> bool:
    """Whether the backward of a node is a method of a ``torch.autograd.Function`` of the user's."""
    own = isinstance(node, torch.autograd.function.BackwardCFunction)
    return own and not name_of(node).startswith("BackwardHookFunction")  # torch's own, for hooks of modules


def thread() -> int:
    """The thread that asks: autograd counts its nodes by thread, and runs a GPU's backward in another one."""
    return threading.get_ident()


def nodes_behind(tensor: torch.Tensor) -> list[Any]:
    """All nodes of the graph that a backward from ``tensor`` would run, each once."""
    found: list[Any] = []
    seen: set[Any] = set()
    waiting = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        found.append(node)
        waiting.extend(following for following, _ in node.next_functions)
    return found


def users_line(frame: FrameType | None) -> str | None:
    """The line of code outside of torch that led to a call, as ``file:number``; None where autograd's engine did."""
    while frame is not None:
        code = frame.f_code
        if code is _engine:
            return None
        if not code.co_filename.startswith(_torch_folder):
            return f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def begins_backward(frame: FrameType | None) -> bool:
    """Whether a call comes from the place in torch that makes the first gradient, of ones, for a loss."""
    for _ in range(6):  # torch wraps what it calls
        if frame is None:
            return False
        if frame.f_code is _beginning:
            return True
        frame = frame.f_back
    return False
