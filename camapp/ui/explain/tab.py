"""The Explain tab: a picture and a few choices on the left, where the model looked on the right."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import gradio as gr

from camapp.errors import UsageError
from camapp.faithfulness import check_faithfulness
from camapp.ui.explain.check import check_of, check_view
from camapp.ui.explain.choices import NO_RIVAL, OWN_FIT, RIVALS, Choices, Explained, explain_choices
from camapp.ui.explain.downloads import keep_explanation
from camapp.ui.explain.summary import done_text, summary, summary_of
from camapp.ui.explain.viewer import view_of, viewer
from camapp.ui.frame.classes import TOP_PREDICTION, chosen_class, class_picker, class_value
from camapp.ui.frame.events import LATEST, PRIVATE, QUIET, trigger_of
from camapp.ui.frame.kept import Kept
from camapp.ui.frame.messages import STOPPED, in_words, sent, status_bar, status_line
from camapp.ui.frame.samples import sample_path
from camapp.ui.frame.selection import Update
from camapp.ui.frame.tab import STALE, Frame, Tab
from camapp.ui.frame.topic import End, Topic, Turn

_CHECK_SECONDS = 120.0

# The values of the controls, by component.
Given: TypeAlias = dict[Any, Any]


class ExplainTab(Tab):
    """Draws the tab, and answers its events."""

    name = "explain"
    title = "Explain"
    keeps_up = True

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        # what each visitor has on show, for its check
        self._shown: Kept[Explained] = Kept("", size_of=lambda one: one.explanation.picture.rgb.nbytes)

    def draw_controls(self) -> None:
        """What only this tab asks: a class to compare with, how the picture is fitted, which evidence is shown."""
        pool = self.frame.pool
        classes = class_value(pool.default, pool.labels(pool.default))
        self.rival = class_picker("Compare with", classes, RIVALS, elem_id="rival")
        self.frame.selection.other_classes.append(self.rival)
        with gr.Accordion("More", open=False, elem_id="more"):
            self.fit = gr.Dropdown(
                [
                    ("The model's own way", OWN_FIT),
                    ("Centre crop", "crop"),
                    ("Letterbox", "letterbox"),
                    ("Stretch", "stretch"),
                ],
                value=OWN_FIT,
                label="How the picture is fitted",
                elem_id="fit",
            )
            self.sign = gr.Dropdown(
                [("What supports the class", "positive"), ("What speaks against it", "negative")],
                value="positive",
                label="What is shown",
                elem_id="sign",
            )
        self.run = gr.Button("Explain", variant="primary", elem_id="explain-run")
        self.frame.selection.draw_other_models()

    def draw_results(self) -> None:
        """Status, heatmap, facts, and the check."""
        self.status = status_bar("status")
        self.viewer = viewer(elem_id="viewer")
        self.summary = summary(elem_id="summary")
        self.check = check_view(elem_id="check")
        self._explaining, self._checking, self._switching = (Topic(self.frame.work, self.status) for _ in range(3))

    def views(self) -> list[gr.HTML]:
        """The viewer; it explains by itself when its tab is opened."""
        return [self.viewer]

    def addressed(self) -> list[Any]:
        """The class to compare with, the fit and the sign."""
        return [self.rival, self.fit, self.sign]

    def read_address(self, query: Mapping[str, str], model: str) -> Update:
        """Values for the controls that an address may set."""
        updates: Update = {}
        rival = query.get("vs", "")
        if rival:
            known = rival == str(TOP_PREDICTION)
            index = TOP_PREDICTION if known else self.frame.pool.class_index(model, rival)
            updates[self.rival] = class_value(model, self.frame.pool.labels(model), index)
        for name, control, usual in (("fit", self.fit, OWN_FIT), ("sign", self.sign, "positive")):
            value = query.get(name, usual)
            allowed = [choice for _, choice in control.choices]
            if value not in allowed:
                raise UsageError(f"The address says {name}={value[:40]}; it is one of {', '.join(map(str, allowed))}.")
            if value != usual:
                updates[control] = value
        return updates

    def connect(self) -> None:
        """Explain on every choice; a new picture from its top prediction."""
        selection = self.frame.selection
        # Gradio hands a set of inputs over as one dictionary
        chosen = {*selection.chosen, self.rival, self.fit, self.sign, self.frame.navigation}
        shown = [self.viewer, self.summary, self.check, self.status]
        targets = [selection.target, self.rival]
        triggers = [
            self.run.click,
            trigger_of(selection.layers, "pick"),
            trigger_of(selection.method, "pick"),
            trigger_of(selection.target, "pick"),
            trigger_of(self.rival, "pick"),
        ]
        gr.on(
            [*triggers, self.fit.input, self.sign.input],
            self.explain_again,
            chosen,
            shown,
            **LATEST,
        )
        self.viewer.wanted(self.explain_once_opened, chosen, shown, **LATEST)
        selection.picture.upload(self.explain_new, chosen, [*shown, *targets], **LATEST)
        picked = selection.samples.pick(self.pick_sample, None, [selection.picture, self.status], **LATEST)
        picked.success(self.explain_new, chosen, [*shown, *targets], **LATEST)
        self.summary.explain(self.explain_class, chosen, [*shown, selection.target], **LATEST)
        selection.model.input(self.explain_with_model, chosen, [*shown, *selection.switched], **LATEST)
        self.check.start(self.check_map, chosen, [self.check, self.status], **PRIVATE)
        selection.picture.clear(self.clear, None, shown, **QUIET)
        self.status.stop(self.stop, None, None, **QUIET)

    def explain_again(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Explain the picture with what is chosen, where the tab is open."""
        if not self._is_open(given):
            yield self._later(request)
            return
        yield from self._explained(self._choices(given), request)

    def explain_once_opened(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Explain what another tab or an address selected; without a picture there is nothing to complain of."""
        if given[self.frame.selection.picture] is None:
            self._explaining.drop(request)
            yield {self.viewer: None, self.status: status_line("ready")}
            return
        yield from self.explain_again(given, request)

    def explain_new(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Explain a new picture: its own top prediction, not a class that was chosen for the one before."""
        also = {self.frame.selection.target: chosen_class(TOP_PREDICTION), self.rival: chosen_class(NO_RIVAL)}
        if not self._is_open(given):
            yield {**also, **self._later(request)}
            return
        yield from self._explained(self._choices(given, target=TOP_PREDICTION, rival=NO_RIVAL), request, also)

    def explain_class(self, given: Given, event: gr.EventData, request: gr.Request) -> Iterator[Update]:
        """Explain one of the predicted classes."""
        target = sent(event, "index")
        also = {self.frame.selection.target: chosen_class(target)}
        yield from self._explained(self._choices(given, target=target), request, also)

    def explain_with_model(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Offer another model's layers, methods and classes, and explain the picture with it."""
        choices, is_open = self._choices(given, layers=(), target=TOP_PREDICTION, rival=NO_RIVAL), self._is_open(given)
        yield from self._switching.answer(
            request, lambda turn: self._switched(turn, choices, request, explain=is_open), self._gone
        )

    def check_map(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Delete and insert what the map marks, beside random maps."""
        choices = self._choices(given)

        def steps(turn: Turn) -> Generator[Update, None, None]:
            yield turn.telling("Checking…")
            shown = self._shown.get(turn.owner)

            def run(task: Any) -> Any:
                same = shown is not None and shown.choices == choices
                explained = shown if shown and same else explain_choices(self.frame.pool, choices, task)
                slow = self.frame.pool.load(choices.model, slow=True)
                return check_faithfulness(
                    slow, explained.explanation, progress=task.progress, cancel=task.cancelled, deadline=_CHECK_SECONDS
                )

            found = yield from turn.follow(run, slow=True)
            yield {self.check: check_of(found), self.status: status_line("done", f"Checked. {found.verdict}")}

        ready = {self.check: {"ready": True}}
        yield from self._checking.answer(request, steps, lambda message: {self.check: {"error": message}}, ready)

    def pick_sample(self, event: gr.EventData) -> Update:
        """Put a sample picture where an upload goes."""
        with in_words():
            path = sample_path(sent(event, "sample"))
        return {self.frame.selection.picture: path, self.status: status_line("running", "Opening the sample…")}

    def clear(self, request: gr.Request) -> Update:
        """Back to the beginning."""
        self._explaining.drop(request)
        self._checking.drop(request)
        return {self.viewer: None, self.summary: None, self.check: None, self.status: status_line("ready")}

    def stop(self, request: gr.Request) -> None:
        """Stop what the visitor waits for."""
        self._explaining.stop(request)
        self._checking.stop(request)

    def _explained(self, choices: Choices, request: gr.Request, also: Update | None = None) -> Iterator[Update]:
        """What the page shows on the way to a result; on an error the old result goes, and a message comes."""

        def steps(turn: Turn) -> Generator[Update, None, None]:
            yield {**(also or {}), self.check: None, **turn.telling("Explaining…")}
            choices.check()
            explained = yield from turn.follow(
                lambda task: explain_choices(self.frame.pool, choices, task), slow=choices.slow
            )
            token = keep_explanation(self.frame.results, explained.explanation, turn.owner)
            self._shown.keep(explained, turn.owner, token=turn.owner)
            view, facts = view_of(explained.explanation, token), summary_of(explained, token)
            done = status_line("done", done_text(explained))
            yield {self.viewer: view, self.summary: facts, self.check: {"ready": facts["checkable"]}, self.status: done}

        self._checking.drop(request)  # of a map that goes
        yield from self._explaining.answer(request, steps, self._gone, self._gone(STOPPED))

    def _switched(
        self, turn: Turn, choices: Choices, request: gr.Request, *, explain: bool
    ) -> Generator[Update, None, None]:
        """The way to another model, and to what it makes of the picture."""
        pool = self.frame.pool
        with self._explaining.turn(request) as asked:  # what ends it ends no loading: the controls must fit the model
            yield from self.loaded(choices.model, request, turn.telling)
        turn.check()
        suited = choices.method not in pool.unsuitable(choices.model)
        updates = self.frame.selection.switched_to(choices.model, choices.method)
        if asked.ended is End.STOPPED:
            yield {**updates, **self._gone(STOPPED), self.status: status_line("ready", STOPPED)}
        elif asked.ended is End.NEWER or not explain:  # whatever was asked for meanwhile did not know this model
            yield {**updates, **self._later(request)}
        elif asked.ended is End.DROPPED or choices.picture is None:
            yield {**updates, self.viewer: None, self.status: status_line("ready")}
        else:
            choices = choices if suited else replace(choices, method="gradcam")
            yield from self._explained(choices, request, updates)

    def _later(self, request: gr.Request) -> Update:
        """The map belongs to another selection by now: it is made anew as soon as the tab is open."""
        self._explaining.drop(request)
        self._checking.drop(request)
        return {self.viewer: STALE, self.check: None, self.status: status_line("ready")}

    def _choices(self, given: Given, **instead: Any) -> Choices:
        """The values of the controls as choices."""
        selection = self.frame.selection
        methods = given[selection.method]
        values = {
            "picture": given[selection.picture],
            "model": given[selection.model],
            "layers": given[selection.layers],
            "method": methods[0] if methods else "",
            "target": given[selection.target],
            "rival": given[self.rival],
            "fit": given[self.fit],
            "sign": given[self.sign],
        }
        return Choices(**{**values, **instead})

    def _is_open(self, given: Given) -> bool:
        return bool(given[self.frame.navigation] == self.name)

    def _gone(self, message: str) -> Update:
        """Instead of a result, why there is none."""
        return {self.viewer: {"error": message}, self.summary: None, self.check: None}
