"""The Batch tab: files and what to make of them on the left, each picture as it is done on the right."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, TypeAlias

import gradio as gr

from camapp.backbones.load import LoadedModel
from camapp.batch.jobs.map_files import OUTPUTS
from camapp.batch.live import ClassTable, PictureExplainer
from camapp.batch.sources import Reader
from camapp.errors import CamappError, UsageError
from camapp.files import safe_stem
from camapp.sources.folders import SUFFIXES
from camapp.ui.batch.api import add_batch_api
from camapp.ui.batch.calls import python_call, shell_call
from camapp.ui.batch.choices import BatchChoices
from camapp.ui.batch.files import NamedFile, NamedFiles
from camapp.ui.batch.runs import Run, Runs
from camapp.ui.batch.view import Row, batch_view, finished_row, table_notes, view_of, waiting_rows
from camapp.ui.batch.working import Finished, work_through
from camapp.ui.environment import new_result_folder
from camapp.ui.frame.calls import CalledModel
from camapp.ui.frame.classes import TOP_PREDICTION, is_top
from camapp.ui.frame.events import PRIVATE, QUIET
from camapp.ui.frame.messages import in_words, owner_of, sent, status_bar, status_line, told
from camapp.ui.frame.selection import Update
from camapp.ui.frame.tab import Frame, Tab

# The values of the controls, by component.
Given: TypeAlias = dict[Any, Any]

READY = "Ready. Add up to 50 pictures, or one .zip of them."

# Seconds between two redraws of rows, unless the batch is over.
_REDRAWN_EVERY = 0.25


class BatchTab(Tab):
    """Draws the tab, and answers its events."""

    name = "batch"
    title = "Batch"
    shows = ("layers", "method", "target")

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self.runs = Runs(frame.results)

    def draw_controls(self) -> None:
        """The files, the table of classes, and what goes into the archive."""
        self.files = NamedFiles(
            label="Pictures, or one .zip",
            file_count="multiple",
            file_types=["image", ".zip", *sorted(SUFFIXES)],
            elem_id="batch-files",
            height=190,
            buttons=[],
        )
        with gr.Accordion("A class for each file (CSV)", open=False, elem_id="batch-classes"):
            self.table = NamedFiles(
                label="Columns: file (or path, name) and class (or label, target)",
                file_count="single",
                file_types=[".csv", ".tsv"],
                elem_id="batch-table",
                height=110,
                buttons=[],
            )
            self.column = gr.Dropdown(
                [],
                label="Column of classes",
                info="They count instead of the class above.",
                visible=False,
                elem_id="batch-column",
            )
        self.outputs = gr.CheckboxGroup(
            [("Overlays (JPEG)", "overlay"), ("Heatmaps (16-bit PNG)", "heatmap"), ("Raw maps (.npy)", "raw")],
            value=list(OUTPUTS),
            label="In the archive",
            elem_id="batch-outputs",
        )
        self.run = gr.Button("Explain all", variant="primary", elem_id="batch-run")

    def draw_results(self) -> None:
        """Status, gallery and table."""
        self.status = status_bar("batch-status", READY)
        self.view = batch_view(elem_id="batch-view")
        add_batch_api(self.frame, self.runs)

    def connect(self) -> None:
        """List files as they are given, run them, stop, and open one in Explain."""
        selection, shown = self.frame.selection, [self.view, self.status]
        given: set[Any] = {self.files, self.table, self.column}  # Gradio hands a set over as one dictionary
        self.files.change(self.list_files, given, shown, trigger_mode="always_last", **PRIVATE)
        tabled = self.table.change(self.read_table, [self.table], [self.column, self.status], **PRIVATE)
        tabled.success(self.list_files, given, shown, **PRIVATE)
        self.column.input(self.list_files, given, shown, **PRIVATE)
        chosen = {selection.model, selection.layers, selection.method, selection.target}
        self.run.click(self.run_batch, {*given, self.outputs, *chosen}, shown, **PRIVATE)
        self.status.stop(self.stop, None, None, **QUIET)
        opened = [selection.picture, selection.target, *selection.other_classes, self.frame.navigation]
        self.opened = self.view.open(self.open_in_explain, [selection.model], opened, **PRIVATE)

    def hands_over(self) -> list[Any]:
        """Opening a picture in Explain."""
        return [self.opened]

    def list_files(self, given: Given, request: gr.Request) -> Update:
        """Show what was given, or at once what is wrong with it; not while a batch runs, whose rows are on show."""
        if self.runs.is_running(owner_of(request)):
            return {self.status: gr.skip()}
        if not given[self.files]:
            return {self.view: None, self.status: status_line("ready", READY)}
        table = given[self.table]
        choices = BatchChoices(given[self.files], "", table=table[0] if table else None, column=given[self.column])
        try:
            pictures = choices.given()
            notes = table_notes(choices.classes(pictures))
        except CamappError as error:
            return {self.view: {"error": str(error)}, self.status: status_line("error", str(error))}
        ready = status_line("ready", f"{len(pictures.items):,} to do. Press “Explain all”.")
        return {self.view: view_of(waiting_rows(pictures), "given", notes=notes), self.status: ready}

    def read_table(self, table: list[NamedFile]) -> Update:
        """Offer the columns of a table that may hold classes."""
        if not table:
            return {self.column: gr.Dropdown(choices=[], value=None, visible=False)}
        with in_words():
            columns = ClassTable.read(table[0].path.read_bytes(), table[0].name).class_columns
        return {self.column: gr.Dropdown(choices=list(columns), value=columns[0], visible=True)}

    def run_batch(self, given: Given, request: gr.Request) -> Iterator[Update]:
        """Explain all files, showing each as it is done."""
        steps = self._worked_through(self._choices(given), owner_of(request))
        yield from told(self.status, steps, lambda message: {self.view: {"error": message}})

    def stop(self, request: gr.Request) -> None:
        """Stop this window's batch; what is done of it stays, and goes into the archive."""
        self.runs.stop(owner_of(request))

    def open_in_explain(self, model: str, event: gr.EventData) -> Update:
        """Put a picture of a batch where the Explain tab looks."""
        with in_words():
            token, number = sent(event, "run"), sent(event, "number")
            run = self.runs.find(str(token))
            if not isinstance(number, int) or not 0 <= number < len(run.given.items):
                raise UsageError(f"This batch has no picture number {str(number)[:20]}.")
            item = run.given.items[number]
            with Reader() as reader:
                content = reader.read(item)
            # A copy under a plain name: of a member of an archive there is no file, and an upload may go any minute.
            path = new_result_folder() / f"{safe_stem(item.name)}{_ending(item.name)}"
            path.write_bytes(content)
            target = self._target_of(run, item.name, model)
        selection = self.frame.selection
        return {selection.picture: str(path), **selection.retargeted(target), self.frame.navigation: "explain"}

    def _choices(self, given: Given) -> BatchChoices:
        selection = self.frame.selection
        method, table = given[selection.method], given[self.table]
        return BatchChoices(
            given[self.files],
            given[selection.model],
            given[selection.layers],
            method[0] if method else "",
            given[selection.target],
            table[0] if table else None,
            given[self.column],
            given[self.outputs],
        )

    def _worked_through(self, choices: BatchChoices, owner: str) -> Iterator[Update]:
        """The way through a batch."""
        given = choices.given()
        classes = choices.classes(given)
        choices.checked_outputs()
        run = self.runs.begin(choices, given, classes, owner)
        try:
            shown = _Shown(self, run, waiting_rows(given))
            yield shown.update("Loading the model…")
            explained_by = yield from self.frame.work.follow(
                lambda task: choices.explainer(self.frame.pool, classes), shown.update, owner=owner, slow=True
            )
            shown.describe(*explained_by)
            yield from work_through(run, explained_by, self.frame.work, shown.at_work, shown.finished)
        finally:
            run.running = False
        yield shown.over()

    def _target_of(self, run: Run, name: str, model: str) -> int:
        """The class that a picture was explained for, where it is one of the model chosen now."""
        wanted = run.classes.classes.get(name) if run.classes else run.choices.target
        if model != run.choices.model or wanted is None or is_top(wanted):
            return TOP_PREDICTION
        return self.frame.pool.class_index(model, wanted)


class _Shown:
    """What the page shows of a run, as it goes on."""

    def __init__(self, tab: BatchTab, run: Run, rows: list[Row]) -> None:
        self._tab, self._run, self._rows = tab, run, rows
        self._notes = table_notes(run.classes)
        self._copies: list[tuple[str, str]] = []
        self._what = ""
        self._view: dict[str, Any] = {}
        self._drawn = 0.0

    def describe(self, model: LoadedModel, explainer: PictureExplainer) -> None:
        """Say what the pictures are explained with, and how to do it elsewhere."""
        run, settings = self._run, explainer.settings()
        choices, classes, targets = run.choices, run.classes, settings["targets"]
        layers = [str(name) for name in settings["layer"]]
        named = "each its own class" if classes else "each its top prediction"
        if explainer.target is not None:
            named = f'class "{model.label(explainer.target)}"'
        where = " + ".join(choices.layers) or "recommended layer" if explainer.takes_layer else "the whole network"
        self._what = " · ".join([model.card.title, explainer.title, where, named])
        files = [file.name for file in choices.files]
        given = (CalledModel.of(model), settings["method"], layers)
        python = python_call(files, *given, targets, choices.checked_outputs())
        table = None
        if classes is not None and choices.table is not None:
            read = ClassTable.read(choices.table.path.read_bytes(), choices.table.name)
            table = (choices.table.name, read.file_column, classes.column)
        shell = shell_call(files, *given, None if classes else targets, choices.checked_outputs(), table)
        self._copies = [("Copy Python", python), ("Copy command", shell)]

    def update(self, text: str) -> Update:
        """The whole view, and a sentence."""
        if not self._view or time.monotonic() - self._drawn > _REDRAWN_EVERY:
            self._view, self._drawn = self._made("running"), time.monotonic()
        return {self._tab.view: self._view, self._tab.status: status_line("running", text)}

    def at_work(self, number: int, text: str) -> Update:
        """A picture is at work."""
        row = self._rows[number]
        if row["status"] == "waiting":
            self._rows[number] = {**row, "status": "running"}
        of = f"Explaining {number + 1:,} of {len(self._rows):,}: {row['name']}."
        return self.update(f"{of} {text}".strip())

    def finished(self, finished: Finished) -> Update | None:
        """A picture is finished; told at once where nothing was told for a while, else with what comes next."""
        self._rows[finished.number] = finished_row(finished)
        if time.monotonic() - self._drawn < _REDRAWN_EVERY:
            return None
        return self.update(f"Finished {finished.number + 1:,} of {len(self._rows):,}.")

    def over(self) -> Update:
        """All are finished."""
        left = any(row["status"] == "left" for row in self._rows)
        view = self._made("stopped" if left else "done", self._run.bytes)
        took = time.monotonic() - self._run.since
        seconds = f"{took:.1f} s" if took < 10 else f"{took:.0f} s"
        text = f"Done in {seconds}: {view['counts']}."
        if left:
            why = "Stopped" if self._run.stopping.is_set() else "Ended"
            text = f"{why} after {seconds}: {view['counts']}. The archive has what is done."
        whole = all(row["status"] == "done" for row in self._rows)
        return {self._tab.view: view, self._tab.status: status_line("done" if whole else "partly", text)}

    def _made(self, phase: str, archive_bytes: int = 0) -> dict[str, Any]:
        return view_of(
            self._rows,
            phase,
            run=self._run.token,
            what=self._what,
            notes=self._notes,
            archive_bytes=archive_bytes,
            copies=self._copies if phase != "running" else (),
        )


def _ending(name: str) -> str:
    ending = name[name.rfind(".") :].lower()
    return ending if ending in SUFFIXES else ""
