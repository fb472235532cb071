"""The public API events of the tab: /features and /probe, for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeAlias

import gradio as gr

from camapp.features.formats.packed import check_packable, packed
from camapp.ui.environment import new_result_folder, private_folder
from camapp.ui.features.deadline import Deadline
from camapp.ui.features.downloads import probe_file
from camapp.ui.features.extracting import Request, as_layers, checked_request, extract, labelled, train
from camapp.ui.frame.messages import in_words, owner_of
from camapp.ui.frame.models import ModelPool
from camapp.ui.frame.scheduler import PROGRAMS_TOLD_EVERY, Scheduler
from camapp.ui.frame.uploads import uploaded

# A file, and what is told of it. Both events are generators: Gradio closes one whose caller is gone, and so its work.
Answer: TypeAlias = tuple[str | None, dict[str, Any]]


def add_api(pool: ModelPool, work: Scheduler) -> None:
    """The events, inside the open ``gr.Blocks``; their controls are not shown."""
    with gr.Row(visible=False):
        shared = [
            gr.File(file_count="multiple", type="filepath", label="Files"),
            gr.Textbox(pool.default, label="Model"),
            gr.Textbox("penultimate", label="Layers"),
            gr.Textbox("auto", label="Pooling"),
            gr.Checkbox(False, label="Normalize"),
        ]
        outputs = [gr.File(label="File"), gr.JSON(label="Summary")]
        _add_features(pool, work, shared, outputs)
        _add_probe(pool, work, shared, outputs)


def _add_features(pool: ModelPool, work: Scheduler, shared: list[Any], outputs: list[Any]) -> None:
    def take_features(
        files: list[str],
        model: str,
        layers: str,
        pooling: str,
        normalize: bool,
        format: str,
        request: gr.Request,
    ) -> Iterator[Answer]:
        """Take the features of pictures out of a backbone.

        Args:
            files: pictures, or a .zip of them; the folders in it are the labels.
            model: a model's name, such as "efficientnet_lite0".
            layers: names of layers, parted by commas, such as "penultimate".
            pooling: how a layer's output becomes a vector, such as "auto" or "avg".
            normalize: whether each picture's features are scaled to length 1.
            format: "parquet", "npy", "npz", "safetensors", "hdf5", "csv", "mat" or "projector".
            request: who asks, for the fairness of the queue.

        Returns:
            The file, a .zip where the format is of several files; and a summary: pictures, classes, layers, failures.
            While it runs there is no file, and the summary says how far it is.
        """
        with in_words():
            check_packable(format)
            wanted = _request(pool, files, model, layers, pooling, normalize)
            found = yield from work.follow(
                lambda task: extract(pool, wanted, progress=task.progress, cancel=task.cancelled),
                _telling,
                owner=owner_of(request),
                slow=True,
            )
            name, content = packed(found.table, format, found.stem, private_folder())
            path = new_result_folder() / name
            path.write_bytes(content)
            table = found.table
            facts = {
                "pictures": len(table),
                "classes": None if table.labels is None else list(table.classes),
                "layers": {layer: info.to_dict() for layer, info in table.info.items()},
                "failures": [{"input": name, "error": reason} for name, reason in table.failures],
            }
            yield str(path), facts

    form = gr.Textbox("parquet", label="Format")
    gr.Button("Features").click(take_features, [*shared, form], outputs, api_name="features", concurrency_limit=None)


def _add_probe(pool: ModelPool, work: Scheduler, shared: list[Any], outputs: list[Any]) -> None:
    def train_probe(
        files: list[str],
        model: str,
        layers: str,
        pooling: str,
        normalize: bool,
        kind: str,
        test_share: float,
        labels: str,
        request: gr.Request,
    ) -> Iterator[Answer]:
        """Train a classifier on the features of labelled pictures.

        Args:
            files: a .zip with one folder a class; or pictures, with labels.
            model: a model's name, such as "efficientnet_lite0".
            layers: names of layers, parted by commas, whose features are joined.
            pooling: how a layer's output becomes a vector, such as "auto" or "avg".
            normalize: whether each picture's features are scaled to length 1.
            kind: "linear", "ridge" or "knn".
            test_share: the share of the pictures kept apart for the report, 0.1 to 0.5.
            labels: a line a picture, "name,label"; empty for the folders of the .zip.
            request: who asks, for the fairness of the queue.

        Returns:
            The classifier (.camapp), which camapp.load_model opens; and its report. While it runs there is no
            classifier, and the report says how far it is.
        """
        with in_words():
            wanted = _request(pool, files, model, layers, pooling, normalize)

            def learn(task: Any) -> Any:
                with Deadline(task.cancelled) as in_time:  # for both together
                    found = extract(pool, wanted, progress=task.progress, cancel=in_time)
                    slow, table = pool.load(wanted.model, slow=True), labelled(found.table, labels or "")
                    return train(slow, table, kind, test_share, cancel=in_time), found

            trained, found = yield from work.follow(
                learn, _telling, owner=owner_of(request), slow=True, every=PROGRAMS_TOLD_EVERY
            )
            path = new_result_folder() / f"{found.stem}.camapp"
            path.write_bytes(probe_file(trained))
            report = json.loads(json.dumps(trained.report.to_dict()))
            failures = [{"input": name, "error": reason} for name, reason in found.table.failures]
            yield str(path), {**report, "trained_on": len(trained.trained_on), "failures": failures}

    learning = [
        gr.Textbox("linear", label="Kind"),
        gr.Number(0.25, label="Test share"),
        gr.Textbox("", label="Labels"),
    ]
    gr.Button("Probe").click(train_probe, [*shared, *learning], outputs, api_name="probe", concurrency_limit=None)


def _telling(text: str) -> Answer:
    return None, {"status": text}


def _request(
    pool: ModelPool, files: list[str] | None, model: str, layers: str, pooling: str, normalize: bool
) -> Request:
    paths = tuple(str(uploaded(path)) for path in files or ())
    return checked_request(pool, Request(paths, str(model), as_layers(layers), str(pooling), bool(normalize)))
