"""The ray engine gives what the local engine gives, byte for byte, and loses nothing to dying workers or early ends."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import camapp
from camapp.batch import RunOptions, export_features, export_heatmaps, read_manifest, read_run
from camapp.batch.engines.cluster import Share, joined, share_of
from camapp.batch.engines.orders import MOST_DEATHS, WorkersLost
from camapp.batch.engines.ray import Meeting, Worker, run_ray
from camapp.batch.jobs.job import Work
from camapp.batch.ledger import Ledger
from camapp.batch.records import Item, Row
from camapp.batch.sources import Fingerprint
from camapp.errors import LayerError, UsageError

ray = pytest.importorskip("ray", reason="the ray engine needs Ray, which has no wheels for every Python")

BROKEN = {"a/empty.png": b"", "b/text.jpg": b"only words", "b/cut.png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"}
COUNT = 20
OPTIONS: dict[str, Any] = {"batch_size": 2, "shard_size": 3}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A cluster of two processors, whose workers take the classes of this file along with the job."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(
        "local",
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty tiny pictures in two folders, and three broken ones among them."""
    folder = tmp_path_factory.mktemp("source")
    for number in range(COUNT):
        path = folder / "ab"[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(exist_ok=True)
        Image.linear_gradient("L").rotate(17 * number).resize((24 + number, 20)).convert("RGB").save(path)
    for name, content in BROKEN.items():
        (folder / name).write_bytes(content)
    return folder


class Small(torch.nn.Module):
    """A network of this file's own."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.conv(x).relu().mean((2, 3)))


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    return camapp.wrap_model(Small(), size=16, mean=(0.5,) * 3, std=(0.5,) * 3, labels=["a", "b", "c"])


@pytest.fixture(scope="module")
def whole(model: Any, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the local engine makes of it."""
    out = tmp_path_factory.mktemp("whole") / "out"
    report = export_heatmaps(model, source, out, **OPTIONS, run=RunOptions(workers=1, threads=0))
    assert (report.done, report.failed) == (COUNT, len(BROKEN))
    return out


def on_ray(**more: Any) -> RunOptions:
    return RunOptions(workers=2, engine="ray", **more)


def same(out: Path, whole: Path) -> None:
    """The two exports hold the same files, and say the same of each input."""

    def files(folder: Path) -> dict[str, bytes]:
        found = [path for path in folder.rglob("*") if path.is_file()]
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in found
            if path.name not in ("run.json", "manifest.parquet")
        }

    def rows(folder: Path) -> list[dict[str, Any]]:
        return read_manifest(folder).drop_columns("seconds").to_pylist()

    assert rows(out) == rows(whole)
    assert files(out) == files(whole)
    assert not (out / ".camapp").exists()


def test_heatmaps_are_those_of_the_local_engine_and_only_the_broken_pictures_failed(
    model: Any, source: Path, whole: Path, tmp_path: Path
) -> None:
    seen: list[tuple[int, int, int]] = []
    report = export_heatmaps(
        model, source, tmp_path / "out", **OPTIONS, run=on_ray(progress=lambda *counts: seen.append(counts))
    )
    assert (report.done, report.failed, report.finished, report.resumed) == (COUNT, len(BROKEN), True, False)
    same(tmp_path / "out", whole)
    failed = [row for row in read_manifest(tmp_path / "out").to_pylist() if row["status"] == "failed"]
    assert {row["name"] for row in failed} == set(BROKEN)
    assert len(seen) == 8
    assert seen[-1] == (COUNT, len(BROKEN), COUNT + len(BROKEN))
    facts = read_run(tmp_path / "out")["facts"]
    assert (facts["engine"], facts["workers"], facts["device"]) == ("ray", 2, "cpu")
    assert ray.is_initialized()


@pytest.mark.slow
def test_features_of_a_model_that_each_worker_loads_are_those_of_the_local_engine(source: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"layers": ["blocks.1", "penultimate"], "batch_size": 4, "shard_size": 8}
    for name, run in (("local", RunOptions(workers=1, threads=0)), ("ray", on_ray())):
        report = export_features("efficientnet_lite0", source, tmp_path / name, **options, device="cpu", run=run)
        assert (report.done, report.failed) == (COUNT, len(BROKEN))
    same(tmp_path / "ray", tmp_path / "local")


def test_a_worker_that_is_killed_half_way_is_replaced(model: Any, source: Path, whole: Path, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: int, failed: int, total: int) -> None:
        if done + failed > total // 3 and not killed:
            killed.append(pids_of_workers()[0])
            os.kill(killed[0], signal.SIGKILL)

    report = export_heatmaps(model, source, tmp_path / "out", **OPTIONS, run=on_ray(progress=kill))
    assert killed
    assert (report.done, report.failed, report.this_run) == (COUNT, len(BROKEN), COUNT + len(BROKEN))
    same(tmp_path / "out", whole)


def pids_of_workers() -> list[int]:
    """The processes of this cluster's actors, as the system sees them."""
    listed = subprocess.run(["ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in listed.splitlines()[1:]]
    raylets = {pid for pid, parent, args in lines if int(parent) == os.getpid() and "raylet" in args}
    return [int(pid) for pid, parent, args in lines if parent in raylets and "Worker" in args]


@pytest.mark.slow
def test_an_export_goes_on_with_either_engine_where_the_other_was_stopped(
    model: Any, source: Path, whole: Path, tmp_path: Path
) -> None:
    out, done, total = tmp_path / "out", 0, COUNT + len(BROKEN)
    for run in (RunOptions(workers=1, threads=0), on_ray(), RunOptions(workers=1, threads=0)):
        stop = threading.Event()
        early = replace(run, stop=stop, progress=lambda *counts, stop=stop: stop.set())
        report = export_heatmaps(model, source, out, **OPTIONS, run=early)
        assert 0 < report.this_run <= 2 * OPTIONS["shard_size"]  # what two workers had under way, and no more
        assert not report.finished
        assert report.resumed == (done > 0)
        done += report.this_run
    rest = export_heatmaps(model, source, out, **OPTIONS, run=on_ray())
    assert (rest.finished, rest.this_run) == (True, total - done)
    same(out, whole)


def test_a_file_that_cannot_be_written_is_named_as_by_the_system(
    model: Any, source: Path, whole: Path, tmp_path: Path
) -> None:
    out, stop = tmp_path / "out", threading.Event()
    early = RunOptions(workers=1, threads=0, stop=stop, progress=lambda *_: stop.set())
    assert not export_heatmaps(model, source, out, **OPTIONS, run=early).finished
    shutil.move(out / "raw", tmp_path / "raw")
    (out / "raw").write_bytes(b"in the way")
    with pytest.raises(OSError, match="raw") as caught:
        export_heatmaps(model, source, out, **OPTIONS, run=on_ray())
    assert type(caught.value) in (FileExistsError, NotADirectoryError)
    assert "Traceback" not in str(caught.value)
    (out / "raw").unlink()
    shutil.move(tmp_path / "raw", out / "raw")
    assert export_heatmaps(model, source, out, **OPTIONS, run=RunOptions(workers=1, threads=0)).finished
    same(out, whole)


class Script:
    """A job that does to its worker what is said for a shard."""

    batch_size = 2

    def __init__(self, acts: dict[int, Callable[[], object]], opening: Callable[[], object] = int) -> None:
        self._acts = acts
        self._opening = opening

    def open(self, out: Path) -> None:
        self._opening()

    def prepare(self, data: bytes, work: Work) -> int:
        return len(data)

    def run(self, batch: Sequence[int]) -> list[int]:
        return list(batch)

    def write(self, result: int, work: Work) -> Row:
        self._acts.get(work.shard, int)()
        return Row(work.number, work.item, "done", notes=(str(torch.get_num_threads()),))

    def end_shard(self, shard: int, rows: Sequence[Row]) -> Sequence[Row]:
        return rows


def played(
    job: Script, out: Path, change: Callable[[Item], Item] = lambda item: item, count: int = 4, workers: int = 1
) -> Ledger:
    """A job run over inputs that are this file, two a shard; the ledger that it left."""
    items = [change(Item(f"{number}.png", __file__)) for number in range(count)]
    ledger = Ledger.open(out, {}, lambda: iter(items), Fingerprint, shard_size=2)
    with ledger, joined("auto") as ours:
        run_ray(
            ours,
            job,
            ledger.handle(),
            out,
            ledger.todo(),
            share=Share(workers, 0, 0),
            told=lambda done, failed: None,
            stop=threading.Event(),
        )
    return ledger


def raising(kind: type[Exception], *arguments: object) -> Callable[[], object]:
    def act() -> object:
        raise kind(*arguments)

    return act


class Unpicklable(Exception):  # noqa: N818
    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)


@pytest.mark.parametrize(
    ("job", "kind", "text"),
    [
        (Script({}, opening=raising(LayerError, 'No layer "x".')), LayerError, 'No layer "x".'),
        (
            Script({1: raising(OSError, 28, "No space left on device", "/out/x")}),
            OSError,
            "[Errno 28] No space left on",
        ),
        (Script({1: raising(Unpicklable, "odd", 3)}), RuntimeError, "Unpicklable: odd"),
    ],
    ids=["opening", "disk", "unpicklable"],
)
def test_an_error_of_a_worker_arrives_as_it_was(job: Script, kind: type[Exception], text: str, tmp_path: Path) -> None:
    with pytest.raises(kind) as caught:
        played(job, tmp_path / "out")
    assert type(caught.value) is kind
    assert str(caught.value).startswith(text)
    assert "ray" not in str(caught.value).lower()


@pytest.mark.slow
def test_a_shard_that_ends_its_worker_each_time_ends_the_run_and_is_named(tmp_path: Path) -> None:
    job = Script({1: lambda: os._exit(1)})
    with pytest.raises(WorkersLost, match=f"{MOST_DEATHS} workers died on shard 1"):
        played(job, tmp_path / "out")


@pytest.mark.slow
def test_workers_that_die_while_they_open_end_the_run(tmp_path: Path) -> None:
    with pytest.raises(WorkersLost, match="while they loaded the model"):
        played(Script({}, opening=lambda: os._exit(1)), tmp_path / "out")


def test_more_workers_than_the_cluster_has_room_for_are_no_reason_to_wait_for_ever(tmp_path: Path) -> None:
    ledger = played(Script({}), tmp_path / "out", count=12, workers=6)
    assert ledger.todo() == []
    rows = [row for shard in range(6) for row in ledger.handle().read(shard).to_pylist()]
    assert {tuple(row["notes"]) for row in rows} == {("1",)}  # threads of torch


def test_a_node_that_does_not_see_the_files_or_has_other_versions_is_named(tmp_path: Path) -> None:
    node, shards = socket.gethostname(), played(Script({}), tmp_path / "out", count=2).handle()
    meeting = Meeting.here(shards)
    meeting.check(node)
    lost = tmp_path / "elsewhere" / ".camapp" / "lock.123"
    with pytest.raises(UsageError, match=f"{node} does not see the export in {tmp_path / 'elsewhere'}"):
        replace(meeting, locks=(str(lost),)).check(node)
    with pytest.raises(UsageError, match=rf"{node} has torch .*, and the export runs with 1\.0"):
        replace(meeting, versions={**meeting.versions, "torch": "1.0"}).check(node)
    kind, error = Worker().run(0, str(tmp_path / "elsewhere" / "one.png"))
    assert kind == "error"
    assert type(error) is UsageError
    assert f"{node} does not see {tmp_path / 'elsewhere' / 'one.png'}" in str(error)


def test_what_the_cluster_has_decides_on_workers_and_threads() -> None:
    class Cluster:
        """Says what it has; there are no GPUs here to ask."""

        def __init__(self, **resources: float) -> None:
            self.cluster_resources = lambda: resources

    assert share_of(ray, "auto", None, None) == Share(2, 0, 0)
    assert share_of(ray, "cpu", 1, 3) == Share(1, 3, 0)
    assert share_of(Cluster(CPU=32.0, GPU=4.0), "auto", None, None) == Share(4, 8, 1)
    assert share_of(Cluster(CPU=8.0, GPU=4.0), "cuda", None, None) == Share(4, 2, 1)
    assert share_of(Cluster(CPU=32.0, GPU=4.0), "cpu", None, None) == Share(32, 0, 0)
    assert share_of(Cluster(CPU=32.0, GPU=4.0), "auto", None, None, per_gpu=4) == Share(16, 2, 0.25)
    assert share_of(Cluster(), "cuda", 2, None).workers == 2
    with pytest.raises(UsageError, match=r"2 processors and 0 GPUs; a worker on cuda needs .* one GPU"):
        share_of(ray, "cuda", None, None)


def test_addresses_that_cannot_be_meant_are_refused() -> None:
    here = ray.get_runtime_context().gcs_address
    with joined(here) as ours:
        assert ours is ray
    with pytest.raises(UsageError, match=rf"connected to {here}, not to other:6379"), joined("other:6379"):
        pass


def test_options_that_do_not_go_together_are_refused(model: Any, source: Path, tmp_path: Path) -> None:
    for run, text in (
        (RunOptions(engine="spark"), "engine is one of local, ray, not 'spark'"),  # type: ignore[arg-type]
        (RunOptions(ray_address="auto"), "is for the ray engine"),
        (RunOptions(engine="ray", workers=0), "workers"),
    ):
        with pytest.raises(UsageError, match=text):
            export_heatmaps(model, source, tmp_path / "out", run=run)
    assert not (tmp_path / "out").exists()


def ended(*arguments: object, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, which knows nothing of this file's cluster."""
    program = f"import sys\n{before}\nfrom camapp.cli import main\nsys.argv = ['camapp', *sys.argv[1:]]\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_the_command_starts_a_cluster_of_its_own_and_says_no_more_than_with_the_local_engine(
    source: Path, tmp_path: Path
) -> None:
    command = ("heatmaps", source, "out", "--outputs", "raw", "--shard-size", 12, "--engine", "ray", "--workers", 1)
    out = tmp_path / "out"
    ran = ended(*command[:2], out, *command[3:])
    assert ran.returncode == 3, ran.stderr
    assert f"{COUNT} of {COUNT + len(BROKEN)} pictures" in ran.stdout
    assert ran.stderr.splitlines() == [f"camapp: 3 of 23 pictures failed; {out / 'manifest.parquet'} says why"]
    assert len(list((out / "raw").rglob("*.npy"))) == COUNT


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_shards_finish_and_the_command_ends_with_130(
    source: Path, tmp_path: Path, number: signal.Signals
) -> None:
    out, shards = tmp_path / "out", tmp_path / "out" / ".camapp" / "shards"
    command = [sys.executable, "-m", "camapp", "heatmaps", str(source), str(out), "--outputs", "raw"]
    command += ["--shard-size", "2", "--engine", "ray", "--workers", "1"]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while child.poll() is None and not (shards.exists() and any(shards.iterdir())):
        time.sleep(0.01)
    os.killpg(child.pid, number)  # as a terminal does: to all of the group
    _, said = child.communicate(timeout=120)
    assert child.returncode == 130, said
    assert "resume with the same command" in said
    assert 1 <= len(list(shards.iterdir())) < 12


def test_without_ray_the_command_says_how_to_install_it(source: Path, tmp_path: Path) -> None:
    ran = ended("heatmaps", source, tmp_path / "out", "--engine", "ray", before="sys.modules['ray'] = None")
    assert ran.returncode == 2
    assert 'pip install "camapp[ray]"' in ran.stderr
    assert not (tmp_path / "out").exists()


def test_an_address_where_nothing_listens_is_refused_before_anything_is_written(source: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        ran = ended("features", source, tmp_path / "out", "--parts", "--engine", "ray", "--ray-address", address)
    assert ran.returncode == 2
    assert f"Nothing answers at {address}" in " ".join(ran.stderr.split())
    assert not (tmp_path / "out").exists()
