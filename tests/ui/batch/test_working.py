"""A batch on its way through the queue: every picture accounted for, stopped at any moment, nothing left behind."""

from __future__ import annotations

import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import camapp
from camapp.batch.live import PictureExplainer
from camapp.batch.live.explaining import STOPPED
from camapp.errors import UsageError
from camapp.ui.batch import runs as keeping
from camapp.ui.batch import working
from camapp.ui.batch.choices import BatchChoices
from camapp.ui.batch.files import NamedFile
from camapp.ui.batch.runs import Run, Runs
from camapp.ui.batch.view import counts_text, finished_row, view_of, waiting_rows
from camapp.ui.batch.working import Finished, work_through
from camapp.ui.frame import kept as kept_room
from camapp.ui.frame import results as results_room
from camapp.ui.frame.results import Results
from camapp.ui.frame.scheduler import Scheduler
from tests.networks import Plain


@pytest.fixture(scope="module")
def tiny() -> Any:
    torch.manual_seed(0)
    return camapp.wrap_model(Plain().eval(), size=32, labels=["ant", "bee", "cat", "dog", "eel"], layer="last")


@pytest.fixture
def files(tmp_path: Path) -> list[NamedFile]:
    paths = [tmp_path / f"upload-{number}.png" for number in range(4)]
    for number, path in enumerate(paths):
        noise = np.random.default_rng(number).integers(0, 255, (4, 5, 3), np.uint8)
        Image.fromarray(noise).resize((500, 400)).save(path)
    return [NamedFile(path, f"photo ({number}).png") for number, path in enumerate(paths)]


def begun(files: list[NamedFile], runs: Runs | None = None, owner: str = "me", **options: Any) -> Run:
    choices = BatchChoices(files, "tiny", **options)
    given = choices.given()
    return (runs or Runs(Results())).begin(choices, given, choices.classes(given), owner)


def steps(run: Run, model: Any, work: Scheduler | None = None, **options: Any) -> Any:
    """What a batch yields: ("at", number, text) and the pictures that are finished."""
    explainer = PictureExplainer(model, **options)
    return work_through(
        run, (model, explainer), work or Scheduler(), lambda number, text: ("at", number, text), lambda done: done
    )


def finished(run: Run, model: Any, **options: Any) -> list[Finished]:
    return [step for step in steps(run, model, **options) if isinstance(step, Finished)]


def members(run: Run) -> list[str]:
    with zipfile.ZipFile(run.archive) as archive:
        return archive.namelist()


def test_every_picture_is_finished_once_and_the_archive_holds_what_is_done(tiny: Any, files: list[NamedFile]) -> None:
    files[2].path.write_bytes(b"only words")
    run = begun(files)
    done = finished(run, tiny)
    assert [(one.number, one.outcome.status) for one in done] == [(0, "done"), (1, "done"), (2, "failed"), (3, "done")]
    assert not run.running
    assert members(run)[:3] == ["overlays/photo (0).jpg", "heatmaps/photo (0).png", "raw/photo (0).npy"]
    assert members(run)[-2:] == ["results.csv", "settings.json"]
    with Image.open(run.preview(0)) as preview:
        assert preview.size == (500, 400)
    assert not run.preview(2).exists()


def test_the_maps_are_those_of_each_picture_alone(tiny: Any, files: list[NamedFile]) -> None:
    for one, file in zip(finished(begun(files), tiny), files, strict=True):
        assert one.outcome.explanation is not None
        np.testing.assert_array_equal(one.outcome.explanation.raw, camapp.explain(tiny, file.path).raw)


def test_a_class_that_the_table_names_is_explained_and_a_file_without_one_fails(
    tiny: Any, files: list[NamedFile], tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("file,class\nphoto (0).png,eel\nPHOTO (1).png,unicorn\n")
    run = begun(files, table=NamedFile(tmp_path / "t.csv", "t.csv"))
    assert run.classes is not None
    done = finished(run, tiny, targets=run.classes.classes)
    assert [one.outcome.status for one in done] == ["done", "failed", "failed", "failed"]
    assert done[0].record["label"] == "eel"
    assert "unicorn" in done[1].outcome.reason
    assert "no row for it" in done[2].outcome.reason


def test_stopped_it_keeps_what_is_done_and_tells_the_rest_as_left(tiny: Any, files: list[NamedFile]) -> None:
    run = begun(files)
    done = []
    for step in steps(run, tiny):
        if isinstance(step, Finished):
            done.append(step)
            run.stopping.set()
    assert [one.outcome.status for one in done] == ["done", "left", "left", "left"]
    assert done[1].outcome.reason == STOPPED
    assert len(members(run)) == 3 + 2


def test_when_the_visitor_leaves_nothing_is_left_and_the_work_ends(tiny: Any, files: list[NamedFile]) -> None:
    run, work = begun(files), Scheduler()
    going = steps(run, tiny, work)
    assert next(going)[0] == "at"
    assert isinstance(next(going), Finished)
    assert run.folder.exists()
    going.close()
    assert not run.folder.exists()
    assert not run.running
    assert work.run(lambda task: "the queue is free", owner="other") == "the queue is free"


def test_others_get_their_turn_between_two_pictures(tiny: Any, files: list[NamedFile]) -> None:
    work, order = Scheduler(), []
    first = threading.Event()

    def other() -> None:
        first.wait(20)
        work.run(lambda task: order.append("other"), owner="other", slow=True)

    thread = threading.Thread(target=other)
    thread.start()
    for step in steps(begun(files), tiny, work):
        if isinstance(step, Finished):
            order.append(step.number)
            first.set()
            thread.join(20) if step.number == 0 else None
    assert order.index("other") == 1


def test_where_the_queue_is_full_it_waits_for_its_turn(
    tiny: Any, files: list[NamedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "_TRY_AGAIN", 0.02)
    work, gate = Scheduler(most_waiting=1), threading.Event()
    holding = [threading.Thread(target=lambda: work.run(lambda task: gate.wait(20), owner="o", slow=True))]
    holding[0].start()
    waiting = threading.Thread(target=lambda: work.run(lambda task: None, owner="p", slow=True))
    told = []
    for step in steps(begun(files[:1]), tiny, work):
        if isinstance(step, Finished):
            assert step.outcome.status == "done"
        else:
            told.append(step[2])
        if len(told) == 1:
            waiting.start()
            while not work._lanes[True].waiting:
                threading.Event().wait(0.01)
        if "queue is full" in told[-1]:
            gate.set()
    assert any("queue is full" in text for text in told)
    for thread in (*holding, waiting):
        thread.join(20)


def test_an_archive_that_is_full_takes_no_more(
    tiny: Any, files: list[NamedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(working, "MOST_BYTES", 1000)
    done = finished(begun(files), tiny)
    assert [one.outcome.status for one in done] == ["done", "left", "left", "left"]
    assert "archive is full" in done[1].outcome.reason


def test_so_many_batches_run_at_once_and_no_more(files: list[NamedFile]) -> None:
    runs = Runs(Results())
    going = [begun(files, runs, owner=f"{number}") for number in range(keeping.MOST_RUNNING)]
    with pytest.raises(UsageError, match="4 batches are running already"):
        begun(files, runs)
    runs.stop("1")
    assert [run.stopping.is_set() for run in going] == [False, True, False, False]
    going[1].running = False
    assert begun(files, runs).running


def test_old_batches_make_room_with_their_files(files: list[NamedFile], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "MOST_KEPT", 2)
    runs = Runs(Results())
    old = [begun(files, runs) for _ in range(2)]
    for run in old:
        run.running = False
    new = begun(files, runs)
    with pytest.raises(UsageError, match="This batch has expired"):
        runs.find(old[0].token)
    assert not old[0].folder.exists()
    assert runs.find(new.token) is new


def test_a_batch_that_runs_keeps_its_token_and_its_files_however_much_comes_and_goes(
    files: list[NamedFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results_room, "MOST_KEPT", 3)
    results = Results()
    runs = Runs(results)
    run = begun(files, runs)
    for _ in range(10):
        results.keep_files({"a.txt": b"a"})
    now = kept_room.time.monotonic()
    monkeypatch.setattr(kept_room.time, "monotonic", lambda: now + kept_room.KEPT_SECONDS + 5)
    assert results.holds(run.token)
    assert runs.find(run.token) is run
    assert run.folder.is_dir()
    run.running = False
    assert not results.holds(run.token)
    assert not runs.is_running("me")
    assert not run.folder.exists()


def test_a_row_says_what_became_of_a_file(tiny: Any, files: list[NamedFile]) -> None:
    files[1].path.write_bytes(b"only words")
    run = begun(files[:2])
    rows = waiting_rows(run.given)
    assert counts_text(rows, "given") == "2 files"
    assert counts_text(rows, "running") == "2 files: 2 waiting"
    done = finished(run, tiny)
    rows = [finished_row(one) for one in done]
    explained = done[0].record
    assert rows[0]["facts"][0] == ["Class", f"{explained['label']} ({explained['index']})"]
    assert rows[0]["thumbnail"].startswith("data:image/jpeg;base64,/9j/")
    assert rows[0]["words"].startswith("Hottest at ")
    assert "is text, not a picture" in rows[1]["reason"]
    assert "thumbnail" not in rows[1]
    view = view_of(rows, "done", run=run.token, archive_bytes=2 * 2**20)
    assert (view["counts"], view["share"], view["archive"]) == ("2 files: 1 done, 1 failed", [2, 2], "2.0 MB")
    assert view["token"] == run.token
    assert view_of(rows, "running", run=run.token)["token"] == ""
