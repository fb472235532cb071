"""The files of features and classifiers, made when they are downloaded."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from camapp.errors import UsageError
from camapp.features.formats.packed import packed
from camapp.features.saved import check_savable
from camapp.files import zipped_folder
from camapp.transfer import TrainedProbe
from camapp.ui.environment import private_folder
from camapp.ui.features.extracting import Extraction
from camapp.ui.features.learnt import Learnt
from camapp.ui.features.summary_view import download_names
from camapp.ui.frame.results import Results


def keep_features(results: Results, extraction: Extraction, owner: str = "") -> str:
    """Keep the features of a visitor for download in every format; the token."""

    def maker(form: str) -> Callable[[Mapping[str, str]], bytes]:
        return lambda _: packed(extraction.table, form, extraction.stem, private_folder())[1]

    files = {name: maker(form) for form, name in download_names(extraction.stem).items()}
    return results.keep_files(files, size=extraction.bytes, owner=owner)


def keep_probe(results: Results, learnt: Learnt, owner: str = "") -> dict[str, Any]:
    """Keep the classifier of a visitor, and its report, for download.

    Returns:
        ``files``, the token; ``probe`` and ``report``, the names of the files; where the classifier cannot be saved
        there is a ``reason`` in place of its name.
    """
    trained, probe, report = learnt.trained, f"{learnt.stem}.camapp", f"{learnt.stem}.report.zip"
    files = {report: lambda _: report_zip(trained), probe: lambda _: probe_file(trained)}
    reason = None
    try:
        check_savable(trained.backbone)
    except UsageError as error:
        reason = str(error)
        del files[probe]
    return {
        "files": results.keep_files(files, size=learnt.bytes, owner=owner),
        "probe": None if reason else probe,
        "report": report,
        "reason": reason,
    }


def probe_file(trained: TrainedProbe) -> bytes:
    """The classifier as the bytes of a .camapp file."""
    with tempfile.TemporaryDirectory(dir=private_folder()) as folder:
        return trained.save(Path(folder) / "probe.camapp").read_bytes()


def report_zip(trained: TrainedProbe) -> bytes:
    """The files of the report, packed."""
    if trained.report is None:
        raise UsageError("This classifier has no report: no pictures were kept apart.")
    with tempfile.TemporaryDirectory(dir=private_folder()) as folder:
        trained.report.save(folder)
        return zipped_folder(Path(folder))
