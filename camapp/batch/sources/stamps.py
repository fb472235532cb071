"""Sizes and versions of objects that no listing told, asked for many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from camapp.batch.records import Item
from camapp.batch.sources.stores import is_url, store_of
from camapp.errors import CamappError

_AT_ONCE = 16
_TOGETHER = 256


def with_stamps(items: Iterable[Item]) -> Iterator[Item]:
    """Inputs with the size and the version of their objects, in the same order.

    Args:
        items: those of folders and archives know already; those that a list names at URLs are looked at, in several
            threads. One that is not there, or cannot be asked for, stays as it is: it fails when it is read.
    """
    waiting: list[Item] = []
    pool: ThreadPoolExecutor | None = None
    try:
        for item in items:
            if not waiting and ("://" not in item.path or not _is_unknown(item)):
                yield item
                continue
            waiting.append(item)
            if len(waiting) == _TOGETHER:
                pool = pool or ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="stamps")
                yield from pool.map(_stamped, waiting)
                waiting = []
        if waiting:
            pool = pool or ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="stamps")
            yield from pool.map(_stamped, waiting)
    finally:
        if pool is not None:
            pool.shutdown(wait=True, cancel_futures=True)


def _is_unknown(item: Item) -> bool:
    return item.stamp is None and is_url(item.path)


def _stamped(item: Item) -> Item:
    if not _is_unknown(item):
        return item
    try:
        found = store_of(item.path).info(item.path)
    except CamappError:
        return item
    if found is None:
        return item
    return replace(item, stamp=found.stamp, length=found.size if item.member is None else item.length)
