"""Which inputs a source means: folders, patterns, lists, tables, archives and any mixture of them, one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from camapp.batch.records import Item
from camapp.batch.sources.folders import from_standard_input, in_folder, in_list, item_of, matching
from camapp.batch.sources.names import UniqueNames
from camapp.batch.sources.stamps import with_stamps
from camapp.batch.sources.store_failures import shown
from camapp.batch.sources.stores import Found, has_pattern, here, is_url, store_of, without_query
from camapp.batch.sources.tables import PARQUET_SUFFIXES, Columns, in_table
from camapp.batch.sources.tar_archives import in_tar
from camapp.batch.sources.zip_archives import in_zip
from camapp.errors import StoreError, UsageError
from camapp.sources.folders import is_picture_name
from camapp.sources.text import LIST_SUFFIXES, TABLE_SUFFIXES

Source: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

USUAL_COLUMNS = Columns()
STANDARD_INPUT = "-"
_TABLES = (*TABLE_SUFFIXES, *PARQUET_SUFFIXES)
_CONTAINERS = (*LIST_SUFFIXES, *_TABLES, ".zip", ".tar")
# A member of a compressed stream is only reached through all that lies before it.
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".gz", ".7z", ".rar")


def list_items(source: Source, columns: Columns = USUAL_COLUMNS) -> Iterator[Item]:
    """The inputs of a source, one by one and always in the same order, in little memory however many there are.

    ======================  ==============================================  ====================  =================
    source                  inputs                                          order                 label
    ======================  ==============================================  ====================  =================
    a folder                its files that end like pictures, with those    by name, folder by    first subfolder
                            of its subfolders; nothing hidden; a folder     folder
                            that links lead to once
    a file                  itself
    ``"photos/**/*.jpg"``   the files that match; where it ends like one    by name
                            of those below, what they name
    .txt, .lst, .list       the paths in it, one a line, from its own       as listed
                            folder; not lines that begin with ``#``
    .csv, .tsv, .parquet    the paths in a column, from its own folder      as listed             a column
    .zip                    its files that end like pictures, as in a       as packed             first subfolder
                            folder
    .tar                    the same; not links                             as packed             ``KEY.cls`` or
                                                                                                  ``KEY.json`` beside
                                                                                                  ``KEY.jpg``, or
                                                                                                  first subfolder
    ``"-"``                 the paths on standard input, one a line         as they come
    ======================  ==============================================  ====================  =================

    Wherever a path may stand, in a list or a table too, there may be a URL that fsspec reads: ``s3://bucket/photos``,
    ``https://host/list.csv``. Paths in a list or table that lies at a URL count from there.

    Names are relative to the source, have forward slashes and no ``..``, also where an archive or a table has; names
    that come twice get a number. A picture that is named twice is two inputs: a table may ask for two classes of it.
    Paths are absolute.

    Args:
        source: one of these, or a sequence of them.
        columns: of tables, what holds what.

    Returns:
        The inputs. Whether there is any has been tried; what is wrong further on is raised when it is reached.

    Raises:
        UsageError: there is nothing at the source, no picture in it, or something that cannot be read; a column that
            is not there.
        StoreError: a store that cannot be reached, refuses, or needs a package that is not installed.
    """
    parts = [source] if isinstance(source, str | os.PathLike) else list(source)
    if not parts:
        raise UsageError("The source names no picture. Give a folder, a file, a pattern, an archive or a list.")
    paths = [here(os.fsdecode(part)) for part in parts]
    if columns and not any(without_query(path).lower().endswith(_TABLES) for path in paths):
        raise UsageError(
            f"Columns are named ({', '.join(name for name in vars(columns).values() if name)}), but no source is a "
            f"table ({', '.join(_TABLES)}). Give a table, or leave the columns out."
        )
    items = with_stamps(_named(paths, columns))
    return chain([next(items)], items)


def _named(paths: list[str], columns: Columns) -> Iterator[Item]:
    names = UniqueNames()
    for path in paths:
        for item in _items_of(path, columns, alone=len(paths) == 1):
            name = names.take(item.name)
            yield item if name == item.name else replace(item, name=name)


def _items_of(source: str, columns: Columns, *, alone: bool) -> Iterator[Item]:
    if source == STANDARD_INPUT:
        return from_standard_input()
    path = _absolute(source)
    fails_alone = not alone and is_picture_name(without_query(path))  # one of many, when it is read
    try:
        found = store_of(path).info(path)
    except StoreError:
        if not fails_alone:
            raise
        found = Found(path, os.path.basename(without_query(path)))
    if found is not None:
        return in_folder(path) if found.is_folder else _in_file(found, columns)
    if has_pattern(source):
        return _in_pattern(source if is_url(source) else os.path.expanduser(source), columns)
    if not fails_alone:
        raise UsageError(f'There is nothing at "{shown(source)}". Check the path and its spelling.')
    return iter([item_of(Found(path, os.path.basename(without_query(path))))])


def _in_file(file: Found, columns: Columns) -> Iterator[Item]:
    path = file.path
    ending = without_query(path).lower()
    if ending.endswith(LIST_SUFFIXES):
        return in_list(path)
    if ending.endswith(_TABLES):
        return in_table(path, columns)
    if ending.endswith((".zip", ".tar")):
        return _in_archive(file, in_zip if ending.endswith(".zip") else in_tar)
    if ending.endswith(_COMPRESSED):
        raise UsageError(
            f"{shown(path)} is compressed as a whole, so that no picture in it can be read alone. Unpack it, and give "
            "the folder; or pack it again as .zip, or as .tar without compression."
        )
    return iter([item_of(file)])


def _in_archive(archive: Found, members: Callable[[str], Iterator[Item]]) -> Iterator[Item]:
    """Its members, which share its stamp."""
    if not is_url(archive.path):
        return members(archive.path)
    stamp = (archive if archive.stamp else store_of(archive.path).info(archive.path) or archive).stamp
    # One that cannot be had must not be asked for again for each member.
    return (replace(item, stamp=stamp or "unknown") for item in members(archive.path))


def _in_pattern(pattern: str, columns: Columns) -> Iterator[Item]:
    hits = matching(pattern)
    if pattern.lower().endswith((*_CONTAINERS, *_COMPRESSED)):
        return chain.from_iterable(_in_file(hit, columns) for hit in hits)
    return (item_of(hit, labelled=False) for hit in hits)


def _absolute(path: str) -> str:
    """The same for workers that run in another folder; steps up stay, since a folder before them may be a link."""
    return os.path.join(os.getcwd(), os.path.expanduser(path)) if path and not is_url(path) else path
