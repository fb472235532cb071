"""The Ray cluster that an export runs on: started or joined, left as it was; and how many workers it has room for."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from camapp.errors import UsageError

# Ray itself tries an address where nothing listens for two minutes (seen with 2.60), and says so on stderr.
REACH_SECONDS = 5.0
# All that lies there is the job: Ray's own default is a third of the memory, its least 75 MiB.
STORE_BYTES = 128 * 2**20
MOST_THREADS = 8


@dataclass(frozen=True)
class Share:
    """The part of a cluster that an export takes.

    Args:
        workers: how many.
        threads: of each, for decoding and writing beside the model.
        gpus: of each: 0, or a whole one or a part; each has one processor as well.
    """

    workers: int
    threads: int
    gpus: float


def check_ray() -> Any:
    """The module of Ray.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise UsageError(
            f'The ray engine needs Ray, which cannot be imported ({error}). Install it: pip install "camapp[ray]"; or '
            "take the local engine."
        ) from error
    return ray


@contextmanager
def joined(address: str | None = None, processors: int | None = None) -> Iterator[Any]:
    """Ray, connected to a cluster; one that was started or joined for this is left at the end.

    Where the program has initialised Ray already, its cluster is taken and stays.

    Args:
        address: ``HOST:PORT`` of a cluster that this machine is a node of, or ``"auto"`` for the one that runs here; by
            default what ``RAY_ADDRESS`` names, else a cluster of this machine alone, started now.
        processors: of a cluster that is started; all by default.

    Raises:
        UsageError: Ray is not installed, or no cluster answers at the address.
    """
    ray = check_ray()
    if ray.is_initialized():
        _check_same(ray, address)
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if address == "local":
        options |= {"num_cpus": processors, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    else:
        _check_reachable(address)
    with _own_signals(), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # what will be otherwise in versions to come (seen with 2.51)
        try:
            ray.init(address=address, **options)
        except Exception as error:  # of a class of its own for each cause, and other ones with each version
            raise UsageError(
                f"The Ray cluster at {address} could not be joined: {error}. This machine must be a node of it, with "
                "the same Ray and Python; of a cluster that asks for a token, Ray must have been given it."
            ) from error
    try:
        yield ray
    finally:
        with _own_signals():
            ray.shutdown()


def share_of(ray: Any, device: str, workers: int | None, threads: int | None, per_gpu: int = 1) -> Share:
    """How many workers a cluster has room for, and what each of them gets.

    Args:
        ray: from ``joined``.
        device: that the model shall run on, as for ``load_model``; "auto" takes GPUs where the cluster has any.
        workers: how many are wanted. More than there is room for are waited for, since a cluster may grow.
        threads: of each; by default none on processors, and on GPUs the processors that each has to itself.
        per_gpu: how many workers share a GPU.

    Raises:
        UsageError: there is no room for any.
    """
    resources = ray.cluster_resources()
    processors, graphics = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    on_gpus = device.startswith("cuda") or (device == "auto" and graphics > 0)
    room = min(processors, graphics * per_gpu) if on_gpus else processors
    if workers is None and room < 1:
        raise UsageError(
            f"The Ray cluster has {processors} processors and {graphics} GPUs; a worker on {device} needs one "
            f"processor{' and one GPU' if on_gpus else ''}. Say workers=1 or more to wait until it has grown."
        )
    if threads is None:
        threads = max(1, min(MOST_THREADS, processors // max(1, graphics * per_gpu))) if on_gpus else 0
    return Share(workers or room, threads, 1 / per_gpu if on_gpus else 0)


def _check_same(ray: Any, address: str | None) -> None:
    here = ray.get_runtime_context().gcs_address
    if address not in (None, "auto", "local", here):
        raise UsageError(
            f"Ray is connected to {here}, not to {address}. Leave the address out, or call ray.shutdown() first."
        )


def _check_reachable(address: str) -> None:
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or "/" in host:
        raise UsageError(
            f'A Ray cluster is named by HOST:PORT (or "auto" on one of its nodes), not {address!r}. "ray status" on a '
            "node tells it; the port is 6379 if nothing else was said."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f'Nothing answers at {address} ({error}). Start a cluster with "ray start --head", and join it on this '
            f'machine with "ray start --address={address}".'
        ) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep this program's handler of SIGTERM: Ray puts its own in its place, which exits (seen with 2.60)."""
    main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if main and before is not None:
            signal.signal(signal.SIGTERM, before)
