"""Three small tools for a debugging session, on top of ``HookManager``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import nn

from camapp.errors import UsageError
from camapp.hooks.edits import Edit
from camapp.hooks.manager import HookManager
from camapp.hooks.manager.places import Place
from camapp.hooks.manager.recordings import Recorded
from camapp.hooks.manager.reducers import abs_max, mean, norm


@contextmanager
def register_hooks_for_debug(model: nn.Module, layer_names: Place | Iterable[Place]) -> Iterator[Recorded]:
    """The activations of layers, on the CPU, of the forwards within the block; readable after it too.

    Args:
        model: the network.
        layer_names: layers, as ``HookManager.record`` takes them.

    Raises:
        LayerError: a layer that the model does not have.

    Example:
        >>> with camapp.register_hooks_for_debug(model, ["layer1", "layer4"]) as activations:
        ...     model(inputs)
        >>> activations["layer4"].shape
    """
    with HookManager(model) as hooks:
        hooks.record(layer_names, of="activation", device="cpu")
        yield hooks.activations


class DebugHookManager:
    """Keeps what named modules give as ``out:NAME`` and the gradients of that as ``grad:NAME``.

    Three layers: it records, edits by rules that ask what was recorded, and cleans up with a report.

    Args:
        model: the network.

    Example:
        >>> manager = camapp.DebugHookManager(model)
        >>> manager.register_forward("stem", model.conv1)
        >>> manager.register_backward("stem", model.conv1)
        >>> model(inputs).sum().backward()
        >>> manager.storage["out:stem"].shape, manager.storage["grad:stem"].norm()
        >>> print(manager.remove())
    """

    def __init__(self, model: nn.Module) -> None:
        self.hooks = HookManager(model)  #: the manager behind it, for all that this one does not have
        self._keys: dict[str, tuple[Recorded, str]] = {}

    def register_forward(self, name: str, module: nn.Module | str) -> None:
        """Keep what ``module`` gives, a detached copy of the last call, as ``out:NAME``."""
        self._register("out", name, module, self.hooks.activations)

    def register_backward(self, name: str, module: nn.Module | str) -> None:
        """Keep the gradient of what ``module`` gives as ``grad:NAME``."""
        self._register("grad", name, module, self.hooks.gradients)

    def register_edit(
        self, name: str, module: nn.Module | str, change: Edit, when: Callable[[dict[str, Any]], Any] | None = None
    ) -> None:
        """Change the gradient of what ``module`` gives.

        Args:
            name: a name for it.
            module: the module.
            change: an edit of ``camapp.hooks.edits``.
            when: asked with what is stored; a bool, or a tensor of one. Nothing is changed before what it asks for has
                come by.
        """
        keys = self._keys
        rule = None if when is None else lambda recordings: _asked(when, keys)
        self.hooks.edit(module, change, when=rule, name=f"edit:{name}")

    @property
    def storage(self) -> dict[str, Any]:
        """What has been seen so far, by ``out:NAME`` and ``grad:NAME``."""
        return _stored(self._keys)

    def remove(self) -> str:
        """Remove all hooks, and say what fired how often and what never did; ``storage`` stays readable."""
        report = self.hooks.report()
        self.hooks.close()
        return report

    def _register(self, kind: str, name: str, module: nn.Module | str, recorded: Recorded) -> None:
        of: Any = "activation" if kind == "out" else "gradient"
        key = f"{kind}:{name}"
        before = recorded.recorders
        self.hooks.record(module, of=of, name=key)
        added = {recorder: filed for recorder, filed in recorded.recorders.items() if recorder not in before}
        if len(added) > 1:
            self.hooks.remove(key)
            raise UsageError(f"{key} is one module; {len(added)} are meant by {module!r}.")
        filed = added[key]
        self._keys[key] = (recorded, module if isinstance(module, str) and filed != key else filed)

    def __repr__(self) -> str:
        return f"DebugHookManager({', '.join(self._keys) or 'nothing registered'}; {self.hooks!r})"

    def __enter__(self) -> DebugHookManager:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hooks.close()


class GradientInspector:
    """Norm, mean and largest absolute value of the gradients of what modules give, after each backward.

    Nothing waits for the device until ``get_report`` is called. ``camapp.Inspector`` is the larger tool: it also
    watches activations and parameters, judges, and finds where a NaN is born.

    Args:
        model: the network.
        module_types: the classes of the modules to watch.
        every: watch every so many forwards, or a function of the forward's number.

    Raises:
        LayerError: the model has no module of these classes.

    Example:
        >>> inspector = camapp.GradientInspector(model)
        >>> criterion(model(inputs), labels).backward()
        >>> inspector.get_report()["conv1"]["norm"]
        >>> inspector.remove()
    """

    def __init__(
        self,
        model: nn.Module,
        module_types: type[nn.Module] | tuple[type[nn.Module], ...] = (nn.Conv2d, nn.Linear),
        *,
        every: int | Callable[[int], bool] = 1,
    ) -> None:
        kinds = module_types if isinstance(module_types, tuple) else (module_types,)
        if not kinds or not all(isinstance(kind, type) and issubclass(kind, nn.Module) for kind in kinds):
            raise UsageError("module_types is one or several classes of modules, such as (nn.Conv2d, nn.Linear).")
        self._hooks = HookManager(model)
        there = [kind for kind in kinds if any(isinstance(one, kind) for one in self._hooks.model.modules())]
        self._hooks.record(there or kinds, of="gradient", reduce=_figures, every=every)

    def get_report(self) -> dict[str, dict[str, float]]:
        """The figures of the last backward by module, ``norm``, ``mean`` and ``abs_max``; read in one transfer."""
        seen = dict(self._hooks.gradients)
        if not seen:
            return {}
        first = next(iter(seen.values()))
        rows = torch.stack([figures.to(first) for figures in seen.values()]).tolist()
        keys = ("norm", "mean", "abs_max")
        return {name: dict(zip(keys, row, strict=True)) for name, row in zip(seen, rows, strict=True)}

    def clear(self) -> None:
        """Forget the figures; the hooks stay."""
        self._hooks.gradients.clear()

    def remove(self) -> None:
        """Remove the hooks; the last figures stay readable. Harmless to repeat."""
        self._hooks.close()

    def __repr__(self) -> str:
        return f"GradientInspector({len(self._hooks.registered)} modules, {self._hooks!r})"

    def __enter__(self) -> GradientInspector:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def _stored(keys: dict[str, tuple[Recorded, str]]) -> dict[str, Any]:
    return {name: recorded[key] for name, (recorded, key) in keys.items() if key in recorded}


def _asked(when: Callable[[dict[str, Any]], Any], keys: dict[str, tuple[Recorded, str]]) -> Any:
    """What a rule answers; no where it asks for what is registered and has not come by yet."""
    try:
        return when(_stored(keys))
    except KeyError as error:
        if error.args and error.args[0] in keys:
            return False
        raise


def _figures(gradient: torch.Tensor) -> torch.Tensor:
    return torch.stack([norm(gradient), mean(gradient), abs_max(gradient).to(norm(gradient).dtype)])
