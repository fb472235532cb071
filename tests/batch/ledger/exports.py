"""A small export on the ledger, whose pictures are texts, and what its folder holds in the end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from camapp.batch.ledger import Ledger, Planned
from camapp.batch.records import Guess, Item, Row
from camapp.files import write_atomically

NAMES = ("a/one.jpg", "a/One.png", "a/two.jpg", "b/one.jpg", "run.jpg", "b/broken.jpg", "b/ö.jpg")
SETTINGS = {"method": "gradcam", "paint": {"alpha": 0.5, "layers": ["layer4"]}, "ending": "txt"}
TIMES = ("started", "finished", "seconds", "inputs_per_second")


class NameFingerprint:
    """Names, labels and lengths of all items."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def add(self, item: Item) -> None:
        self._digest.update(repr((item.name, item.label, item.length)).encode())

    def hexdigest(self) -> str:
        return self._digest.hexdigest()


def listing(names: Sequence[str] = NAMES) -> Callable[[], Iterator[Item]]:
    return lambda: (Item(name, f"/pictures/{name}", label=name.partition("/")[0]) for name in names)


def open_ledger(out: Path, names: Sequence[str] = NAMES, settings: dict[str, Any] = SETTINGS, **options: Any) -> Ledger:
    return Ledger.open(out, settings, listing(names), NameFingerprint, **{"shard_size": 2, **options})


def work(out: Path, shard: int, one: Planned, ending: str = "txt") -> Row:
    """Write the output of an input, and say what became of it."""
    if "broken" in one.item.name:
        return Row(one.number, one.item, "failed", reason="not a picture")
    file = f"{one.stem}.{ending}"
    (out / file).parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out / file, f"{one.item.name} {ending}".encode())
    guesses = (Guess(281, "tabby", 0.75), Guess(7, "cock", 0.125))
    return Row(one.number, one.item, "done", "", 40, 30, ("turned",), guesses, ("tabby",), (file,), shard)


def export(out: Path, log: Callable[[int], object] = lambda shard: None, ending: str = "txt", **options: Any) -> None:
    """An export from its beginning, or from where it was stopped, to its end."""
    with open_ledger(out, settings={**SETTINGS, "ending": ending}, **options) as ledger:
        worker = ledger.handle()
        for shard in ledger.todo():
            log(shard)
            worker.finish_shard(shard, [work(out, shard, one, ending) for one in worker.items(shard)])
        worker.close()
        ledger.close_export({"model": "resnet50"})


def contents(out: Path) -> dict[str, bytes]:
    """Every file and folder in a folder, times aside."""
    found = {path.relative_to(out).as_posix(): path.read_bytes() if path.is_file() else b"" for path in out.rglob("*")}
    if "run.json" in found:
        run = json.loads(found["run.json"])
        found["run.json"] = json.dumps({key: run[key] for key in run if key not in TIMES}).encode()
    return found
