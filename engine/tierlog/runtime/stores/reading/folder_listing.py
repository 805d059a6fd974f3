"""Listings of large stores by folder, some side by side: a store gives a page of a thousand keys a request, and the
next page only after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Final

from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.waiting.threads import OrderedCalls

#: Folders that are listed at once.
LISTINGS_MAX: Final = 16
#: Objects up to which a listing is read as it comes: one page.
_PAGE_OBJECTS = 1000
#: Objects of one folder that are in memory before their turn comes; those behind them are listed then.
_AHEAD_OBJECTS = 4 * _PAGE_OBJECTS
#: Levels of folders that are told apart: a topic's and a partition's.
_LEVELS_MAX = 2

_Place = str | ObjectInfo
_Begun = tuple[list[ObjectInfo], Iterator[ObjectInfo]]


def iter_by_folder(store: ObjectStore, prefixes: Sequence[str], machine: Machine) -> Generator[ObjectInfo]:
    """Iterate the objects of ``ObjectStore.iter_objects`` below prefixes, a folder's one after another where the store
    does so.

    Of a store with latency several prefixes are listed at once, and so are the folders below one of more than a page:
    of as many levels as the key at the end of the page has, up to two. That page is listed again then.

    Args:
        store: Stays the caller's.
        prefixes: Each as of ``iter_objects``, in the order wanted.
        machine: Its threads.

    Raises:
        StoreError and its kinds.
    """
    if store.is_local:
        for prefix in prefixes:
            yield from store.iter_objects(prefix)
        return
    ahead = LISTINGS_MAX if len(prefixes) > 1 else 0
    with closing(OrderedCalls(LISTINGS_MAX, machine, "the listing")) as calls:
        pages = calls.iter_ahead(partial(_begin, store, _PAGE_OBJECTS), prefixes, ahead=ahead)
        with closing(pages):
            for prefix, (page, rest) in zip(prefixes, pages, strict=True):
                folder = prefix[: prefix.rfind("/") + 1]
                levels = page[-1].key.count("/", len(folder)) if len(page) == _PAGE_OBJECTS else 0
                if levels:
                    yield from _iter_below(store, prefix, folder, min(levels, _LEVELS_MAX), calls)
                else:
                    yield from itertools.chain(page, rest)


def _iter_below(
    store: ObjectStore, prefix: str, folder: str, levels: int, calls: OrderedCalls
) -> Generator[ObjectInfo]:
    places: Iterable[_Place] = [folder]
    for _ in range(levels):
        places = _level_below(store, places, prefix, calls)
    with closing(calls.iter_ahead(partial(_begin, store, _AHEAD_OBJECTS), places, ahead=LISTINGS_MAX)) as begun:
        for first, rest in begun:
            yield from first
            yield from rest


def _level_below(store: ObjectStore, places: Iterable[_Place], prefix: str, calls: OrderedCalls) -> Generator[_Place]:
    """Yield the folders and objects of one more level; objects stand for themselves."""

    def below(place: _Place) -> list[_Place]:
        if isinstance(place, ObjectInfo):
            return [place]
        level = store.list_folder(place)
        found: list[_Place] = [*level.folders, *level.objects]
        return sorted((each for each in found if _key(each).startswith(prefix)), key=_key)

    with closing(calls.iter_ahead(below, places, ahead=LISTINGS_MAX)) as levels:
        for level in levels:
            yield from level


def _key(place: _Place) -> str:
    return place if isinstance(place, str) else place.key


def _begin(store: ObjectStore, objects: int, place: _Place) -> _Begun:
    if isinstance(place, ObjectInfo):
        return [place], iter(())
    listing = iter(store.iter_objects(place))
    return list(itertools.islice(listing, objects)), listing
