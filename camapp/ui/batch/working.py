"""A batch on its way through the queue, picture by picture, so that others get their turn between two of them."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeVar

from camapp.backbones.load import LoadedModel
from camapp.batch.live import Encoded, Outcome, PictureExplainer, ResultsArchive
from camapp.batch.live.archive import settings_of_batch
from camapp.batch.live.explaining import STOPPED
from camapp.batch.records import Item
from camapp.errors import StoppedError
from camapp.explanation import Explanation
from camapp.images.words import describe_map
from camapp.ui.batch.runs import Run
from camapp.ui.frame.scheduler import TOLD_EVERY, QueueFullError, Scheduler, Task

Update = TypeVar("Update")

PREVIEW_SIDE = 1024
THUMBNAIL_SIDE = 288
MOST_BYTES = 2**30
FULL = "The archive is full (1 GiB): give fewer pictures, or fewer outputs."

# Seconds between two tries where the queue of the models is full.
_TRY_AGAIN = 1.0


@dataclass(frozen=True, eq=False)
class Look:
    """What a visitor sees of a picture.

    Args:
        preview: its overlay, at most ``PREVIEW_SIDE`` pixels: a JPEG.
        thumbnail: the same, at most ``THUMBNAIL_SIDE``.
        words: where the map is hot.
    """

    preview: bytes
    thumbnail: bytes
    words: str

    @classmethod
    def of(cls, explanation: Explanation) -> Look:
        """The look of an explanation's first class."""
        preview = explanation.no_larger_than(PREVIEW_SIDE)
        thumbnail = preview.no_larger_than(THUMBNAIL_SIDE)
        words = describe_map(thumbnail.heatmap(), explanation.reasons[0])
        return cls(_jpeg(preview), _jpeg(thumbnail), words)


@dataclass(frozen=True, eq=False)
class Finished:
    """A picture that is finished, whatever became of it.

    Args:
        number: of the picture in its batch.
        outcome: what became of it.
        record: its row of the table.
        look: None where it has no map.
    """

    number: int
    outcome: Outcome
    record: dict[str, Any]
    look: Look | None


def work_through(
    run: Run,
    explained_by: tuple[LoadedModel, PictureExplainer],
    work: Scheduler,
    say: Callable[[int, str], Update],
    finished: Callable[[Finished], Update | None],
    every: float = TOLD_EVERY,
) -> Generator[Update, None, None]:
    """Explain the pictures of a run one by one, each in its turn, into its archive.

    Where the generator is closed, the work stops and nothing is left. Where the run is stopped, the rest is "left", and
    the archive holds what was done.

    Args:
        run: the batch.
        explained_by: the model, and what explains pictures with it.
        work: where models run.
        say: makes what is yielded of the number of the picture that is at work, and a sentence, or "" at first.
        finished: makes what is yielded of a picture that is finished; None where nothing is.
        every: seconds between two messages about a picture.
    """
    model, explainer = explained_by
    settings = settings_of_batch(model, explainer.settings(), run.given.items)
    if run.choices.table is not None and run.classes is not None:
        table = {"name": run.choices.table.name, "column": run.classes.column, "unmatched": list(run.classes.unmatched)}
        settings |= {"table": table}
    outputs = run.choices.checked_outputs()
    try:
        with explainer, ResultsArchive(run.archive, outputs=outputs, settings=settings) as archive:
            for number in range(len(run.given.items)):
                made, look = yield from _made(run, explainer, work, archive, number, say, every)
                record = archive.add_encoded(made)
                if look is not None:
                    run.preview(number).write_bytes(look.preview)
                update = finished(Finished(number, made.outcome, record, look))
                if update is not None:
                    yield update
    except BaseException:
        run.remove()
        raise
    finally:
        run.running = False


def _made(
    run: Run,
    explainer: PictureExplainer,
    work: Scheduler,
    archive: ResultsArchive,
    number: int,
    say: Callable[[int, str], Update],
    every: float,
) -> Generator[Update, None, tuple[Encoded, Look | None]]:
    item = run.given.items[number]
    stem = archive.stem(item)

    def job(task: Task[tuple[Encoded, Look | None]]) -> tuple[Encoded, Look | None]:
        def asked() -> bool:
            return task.cancelled() or run.stopping.is_set()

        made = archive.encoded(explainer.outcome(item, cancel=asked, progress=task.progress), stem)
        explanation = made.outcome.explanation
        return made, None if explanation is None else Look.of(explanation)

    known = _known(run, item, archive)
    while known is None:
        yield say(number, "")
        try:
            follow = work.follow(job, lambda text: say(number, text), owner=run.owner, slow=True, every=every)
            return (yield from follow)
        except QueueFullError as full:
            if explainer.over:
                return Encoded(explainer.outcome(item), ()), None
            yield say(number, str(full))
            time.sleep(_TRY_AGAIN)
        except StoppedError:
            return Encoded(Outcome(item, "left", reason=STOPPED), ()), None
        known = _known(run, item, archive)
    return Encoded(known, ()), None


def _known(run: Run, item: Item, archive: ResultsArchive) -> Outcome | None:
    """What becomes of a picture that the model need not run for; None for others."""
    reason = run.given.refused.get(item.name) or (run.classes.failed.get(item.name) if run.classes else None)
    if reason:
        return Outcome(item, "failed", reason=reason)
    if run.stopping.is_set():
        return Outcome(item, "left", reason=STOPPED)
    return Outcome(item, "left", reason=FULL) if archive.size > MOST_BYTES else None


def _jpeg(explanation: Explanation) -> bytes:
    buffer = io.BytesIO()
    explanation.overlay().save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
