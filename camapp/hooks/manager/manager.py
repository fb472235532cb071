"""HookManager: records, changes and cleans up; owns every hook, and takes every one of them away again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from camapp.errors import UsageError
from camapp.hooks.manager.intervening import Intervening, Places
from camapp.hooks.manager.places import find_places, whole_layers
from camapp.hooks.manager.registry import Extra
from camapp.hooks.manager.silence import Silent, Waiting, find_silent


class HookManager(Intervening):
    """Watches and changes the inside of a model while it runs or trains, and leaves no trace.

    Three layers: ``record`` collects; ``edit``, ``scale``, ``clip_norm`` and their like change what passes by, also by
    rules that ask what was recorded; ``report`` and ``close`` say what happened and take all away. Everything is
    registered under a name and listed in ``registered``. All hooks go at the end of the ``with`` block, on errors and
    interruptions too, at ``close()``, and when the manager is dropped; hooks of others are never touched.

    A step is one forward of the model. Records heed only forwards of the thread that opened the manager, no forward of
    an explanation, and none that checkpointing repeats; edits are part of the model and hold in all of them. What a
    layer does when its ``.forward`` is called directly passes unseen; ``silent`` tells.

    Args:
        model: the network that you run: the original of a compiled one, the inside of a DataParallel one.
        scaler: the ``torch.amp.GradScaler`` of the training loop; recorded gradients are then those of the loss itself,
            and limits of edits count in them.

    Raises:
        ModelError: a model whose hooks would be skipped in silence (compiled, scripted, DataParallel), with the remedy.

    Example:
        >>> with camapp.HookManager(model) as hooks:
        ...     hooks.record("layer4")
        ...     hooks.record(nn.Conv2d, of="gradient", reduce="norm", every=50)
        ...     hooks.scale("layer3", 0.1, when=lambda seen: seen.gradients["layer3.0.conv1"] > 10)
        ...     loss = criterion(model(inputs), labels)
        ...     loss.backward()
        >>> hooks.activations["layer4"].shape, hooks.remaining()
    """

    def forward(self, place: Places, hook: Callable[..., Any], *, name: str | None = None) -> None:
        """Register ``hook(module, args, output)``, called after the layer ran; what it returns replaces the output."""
        self._plain(place, "forward", hook, name)

    def forward_pre(self, place: Places, hook: Callable[..., Any], *, name: str | None = None) -> None:
        """Register ``hook(module, args, kwargs)``, called before the layer runs; a pair returned replaces them."""
        self._plain(place, "forward_pre", hook, name)

    def full_backward(self, place: Places, hook: Callable[..., Any], *, name: str | None = None) -> None:
        """Register torch's full backward hook, ``hook(module, grad_input, grad_output)``.

        torch makes the layer's outputs views that nothing behind may change in place, and does not call it for outputs
        in mappings. ``record(of="gradient")`` and ``edit`` have neither limit.
        """
        self._plain(place, "full_backward", hook, name)

    def full_backward_pre(self, place: Places, hook: Callable[..., Any], *, name: str | None = None) -> None:
        """Register torch's full backward pre-hook, ``hook(module, grad_output)``; limits as for ``full_backward``."""
        self._plain(place, "full_backward_pre", hook, name)

    def post_accumulate(self, place: Places, hook: Callable[..., Any], *, name: str | None = None) -> None:
        """Register ``hook(parameter)``, called each time a gradient has been added to a parameter's ``.grad``."""
        self._plain(place, "post_accumulate", hook, name)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stand aside for a while, such as a validation: nothing is recorded, changed or counted."""
        self._session.paused += 1
        try:
            yield
        finally:
            self._session.paused -= 1

    def begin_step(self) -> None:
        """Begin a step by hand, where parts of the model are run and never the model itself."""
        self._check_open()
        self._session.begin_step()

    def silent(self, *args: Any, **kwargs: Any) -> list[Silent]:
        """What is registered on layers and never fired, each with the reason.

        Args:
            *args: inputs of the model. With them (or ``kwargs``) the model is run once more, left as found, to see who
                takes the layer's place: a direct call of its ``.forward``, or a fused function that uses its weights.
            **kwargs: as above.
        """
        modules = dict(self.model.named_modules(remove_duplicate=False))
        waiting = [
            Waiting(action.name, station.name, station.module, action.of, station.ran)
            for station in self._layers.values()
            for action in station.actions
            if not action.fired
        ]
        waiting += [
            Waiting(
                extra.name, extra.place, modules[extra.place], "gradient" if "backward" in extra.what else "activation"
            )
            for extra in self._extras
            if not extra.fired and extra.place in modules
        ]
        inputs = (args, kwargs) if args or kwargs else None
        late = "no gradient has come: it is not on the way to a loss, or no backward ran"
        tensors = [
            Silent(action.name, station.name, late)
            for station in self._tensors.values()
            for action in station.actions
            if not action.fired
        ]
        with self.paused():
            return find_silent(self.model, waiting, self._session.step + 1, inputs) + tensors

    def report(self) -> str:
        """What is registered, how often each fired, what never did and why, and what got no gradient, as text."""
        rows = [(one.name, one.of, f"fired {one.fired:,} x") for one in self.registered]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)] if rows else []
        lines = [f"forwards: {self._session.step + 1:,}; hooks in torch: {self.remaining():,}"]
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        lines += [f"never fired: {one}" for one in self.silent()]
        lines += [f"no gradient: {place} {why}" for place, why in self.without_gradient.items()]
        return "\n".join(lines)

    def close(self) -> None:
        """Remove every hook of this manager; what was recorded stays readable. Harmless to repeat."""
        self._session.close()

    def __enter__(self) -> HookManager:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._session.open else "closed"
        return f"HookManager({type(self.model).__name__}, {state}, {len(self.registered)} registered)"

    def __deepcopy__(self, memo: Any) -> HookManager:
        raise UsageError(
            "A HookManager belongs to one model and is not copied. Copy the model, and open another on it."
        )

    def __reduce__(self) -> Any:
        raise UsageError("A HookManager cannot be pickled: it belongs to one model at work. Save what it recorded.")

    def _plain(self, place: Places, what: str, hook: Callable[..., Any], name: str | None) -> None:
        """Register a hook of the user's own at every place meant."""
        self._check_open()
        if not callable(hook):
            raise UsageError(f"A hook is a function, not {type(hook).__name__}.")
        layers, tensors = find_places(self.model, place)
        wrong = layers if what == "post_accumulate" else tensors
        if wrong:
            raise UsageError(f"{what} hooks are for {'parameters' if layers else 'layers'}, not for {place!r}.")
        whole_layers(layers, f"{what} hooks")
        places: dict[str, Any] = {**{layer.key: layer.module for layer in layers}, **tensors}
        names = self._unused_names(name, what, list(places))
        for key, target in places.items():
            extra = Extra(names[key], name or names[key], key, what, self._session.more_handles())
            getattr(extra.handles, what)(target, _counted(extra, hook, self._session))
            self._extras.append(extra)


def _counted(extra: Extra, hook: Callable[..., Any], session: Any) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        if not session.heeded:
            return None
        extra.fired += 1
        return hook(*args)

    return call
