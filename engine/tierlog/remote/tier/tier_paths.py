"""The Tier of a PATH: the store it names, and the layout that its keys show."""

from __future__ import annotations

import itertools
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tierlog.arguments import require_path, require_text
from tierlog.errors import ConfigError, StoreError
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.tier.chunks.key_ring import KeyRing, read_key_ring
from tierlog.remote.tier.configured_store import as_it_is, open_configured_store, stack_store
from tierlog.remote.tier.layouts.aiven import AivenLayout
from tierlog.remote.tier.layouts.kafka import KafkaLayout
from tierlog.remote.tier.layouts.listing import Layout, Scope
from tierlog.remote.tier.layouts.local_tiered import LocalTieredLayout
from tierlog.remote.tier.layouts.log_dir import LogDirLayout
from tierlog.remote.tier.layouts.segment_lookup import KnownLayout, KnownSegments
from tierlog.remote.tier.layouts.single_file import SingleFileLayout
from tierlog.remote.tier.objects.object_keys import PARSERS
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files
from tierlog.runtime.stores.protocol.object_store import ObjectInfo, ObjectStore
from tierlog.runtime.stores.store_urls import local_path, split_last
from tierlog.runtime.stores.wrappers.passing_store import MASK

_log = logging.getLogger(__name__)

LAYOUTS: Final = ("aiven", "kafka", "local-tiered", "log-dir", "file")
#: Those whose keys hold the ids of segments.
KEYED_LAYOUTS: Final = ("aiven", "kafka", "local-tiered")
#: Known segments that are asked for before a layout is given up.
_KNOWN_TRIED_MAX: Final = 16
#: Recognised keys that are looked at before the layout is believed, and all keys before a place is given up.
_RECOGNISED_MAX: Final = 1000
_LOOKED_AT_MAX: Final = 200_000
_SHOWN_KEYS: Final = 3
#: A last folder that can be that of a topic or partition: ends with a number or an id.
_INSIDE_OF_A_KEY: Final = re.compile(r"(?:\d|-[A-Za-z0-9_-]{22})$")
#: Of every message format: first the offset (8 bytes), the length (4), then what differs.
_MAGIC_POSITION: Final = 16
#: Folders above PATH that may belong to a key: PATH can be the folder of one topic or of one partition.
_FOLDERS_ABOVE: Final = 2


@dataclass(frozen=True, slots=True)
class Place:
    """PATH as a store: a folder at or above it, and what leads from there to PATH ("" or ending with "/")."""

    folder: str
    inner: str


def open_tier(
    path: str | os.PathLike[str],
    *,
    layout: str = "auto",
    config: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    wrap_store: Callable[[ObjectStore], ObjectStore] = as_it_is,
    limited: bool = False,
    known: KnownSegments | None = None,
    list_once: bool = False,
    all_footers: bool = False,
) -> Tier:
    """Open a tier for reading.

    Args:
        path: ``s3://``, ``gs://``, ``az://``, ``abfss://``, ``memory://``, ``file://`` or a local path: a bucket, a
            folder in it (also that of one topic or partition), a broker's log directory, or one ``.log`` file.
        layout: One of LAYOUTS, or ``auto``: found by looking at the keys. Naming it saves the listing.
        config: The RSM's keys, with or without ``rsm.config.``; ``rsm.config.file``; ``store.*``.
        machine: Its local files, threads and clock.
        wrap_store: Wraps the store that the tier reads: to count its calls, or to break them.
        limited: Obey the configuration's download limit, which else is the storage manager's alone.
        known: The segments that the tier has, from metadata: it shows these and no others, and nothing is listed unless
            ``layout`` is auto and none of them can be found.
        list_once: The listing that finds the layout, if it is complete and has at most 1,000 objects, is the first
            listing of the tier: for a caller that lists the tier at once.
        all_footers: Each segment knows where its footer would be, whether there is one or not: for who writes them.

    Returns:
        A Tier; close it (it is a context manager).

    Raises:
        ConfigError: an unknown layout or key, a key file that is none, or nothing that fits a layout lies at ``path``
            (what does lie there is said). TypeError: an argument is of another type.
        ObjectNotFoundError: a local path that does not exist. StoreError and its kinds.
    """
    path = require_path("path", path)
    if require_text("layout", layout) != "auto" and layout not in LAYOUTS:
        raise ConfigError(f"unknown layout {layout!r}; one of auto, {', '.join(LAYOUTS)}")
    machine = machine or Machine()
    tier_config = read_storage_config(config, machine=machine)
    key_ring = read_key_ring(tier_config, machine)

    def opened(url: str) -> ObjectStore:
        store = open_configured_store(url, tier_config, machine=machine)
        return stack_store(store, tier_config, machine=machine, wrap_store=wrap_store, limited=limited)

    if known is not None:
        return _open_known(path, layout, tier_config, key_ring, machine, opened, known)
    if layout == "file" or (layout == "auto" and _is_file(path, machine.files)):
        folder, name = split_last(path)
        if layout == "auto":
            _refuse_other_files(path, machine.files)
        store = opened(folder)
        return Tier(store, SingleFileLayout(store, name, path), key_ring=key_ring, machine=machine, url=folder)
    url, scope, found, listed = _look(path, layout, tier_config, machine)
    store = opened(url)
    made = _layout(
        found, store, scope, key_ring, machine, unlisted_footers=all_footers or tier_config.footer_path is not None
    )
    return Tier(
        store,
        made,
        key_ring=key_ring,
        machine=machine,
        url=url,
        scope=scope,
        listed=listed if list_once else None,
        footers_elsewhere=_footer_store(tier_config, machine, store),
    )


def _open_known(
    path: str,
    layout: str,
    config: StorageConfig,
    key_ring: KeyRing,
    machine: Machine,
    opened: Callable[[str], ObjectStore],
    known: KnownSegments,
) -> Tier:
    found = _find_known(path, layout, config, opened, known)
    if found is None:
        url, scope, name, _ = _look(path, layout, config, machine)
        if name not in KEYED_LAYOUTS:
            raise ConfigError(f"{path} is no bucket (layout {name}): metadata says what a bucket holds")
        found = url, _scope_by_keys(url, scope, name, opened, known), name
    url, scope, name = found
    store = opened(url)
    asks = config.footer_object_enabled or config.footer_path is not None
    made = KnownLayout(store, name, scope, known, unlisted_footers=asks)
    elsewhere = _footer_store(config, machine, store)
    return Tier(store, made, key_ring=key_ring, machine=machine, url=url, scope=scope, footers_elsewhere=elsewhere)


def _footer_store(config: StorageConfig, machine: Machine, store: ObjectStore) -> ObjectStore | None:
    """Open the place of footers that are not beside their segments; None if there is none. Closes the store of the tier
    where it cannot be opened.
    """
    if config.footer_path is None:
        return None
    try:
        found = open_configured_store(config.footer_path, config, machine=machine)
    except BaseException:
        store.close()
        raise
    return stack_store(found, config, machine=machine)


def _find_known(
    path: str,
    layout: str,
    config: StorageConfig,
    opened: Callable[[str], ObjectStore],
    known: KnownSegments,
) -> tuple[str, Scope, str] | None:
    """Find the layout like ``_look``, by asking for segments that should be there. None if none of some is."""
    names = KEYED_LAYOUTS if layout == "auto" else (layout,) if layout in KEYED_LAYOUTS else ()
    for place in _places_of(path, layout, config):
        scope = _scope(place, config)
        store = opened(place.folder)
        try:
            for name in names:
                if KnownLayout(store, name, scope, known).finds_any(_KNOWN_TRIED_MAX):
                    return place.folder, scope, name
        finally:
            store.close()
    return None


def _scope_by_keys(
    url: str, scope: Scope, name: str, opened: Callable[[str], ObjectStore], known: KnownSegments
) -> Scope:
    """Return the scope with the prefix of the ids in keys, as the first ones show it, unless a prefix is configured."""
    if scope.key_prefix:
        return scope
    store = opened(url)
    try:
        parsed = map(PARSERS[name], (info.key for info in store.iter_objects(scope.folder)))
        looked_at = itertools.islice(parsed, _RECOGNISED_MAX)
        for prefix in dict.fromkeys(key.prefix for key in looked_at if key is not None):
            found = replace(scope, key_prefix=prefix)
            if KnownLayout(store, name, found, known).finds_any(_KNOWN_TRIED_MAX):
                return found
    finally:
        store.close()
    return scope


def _scope(place: Place, config: StorageConfig) -> Scope:
    return Scope(folder=place.inner, key_prefix=config.key_prefix, mask=config.key_prefix_mask)


def _layout(
    name: str, store: ObjectStore, scope: Scope, key_ring: KeyRing, machine: Machine, *, unlisted_footers: bool
) -> Layout:
    if name == "aiven":
        return AivenLayout(store, scope, key_ring, machine, unlisted_footers=unlisted_footers)
    if name == "kafka":
        return KafkaLayout(store, scope, machine, unlisted_footers=unlisted_footers)
    return LocalTieredLayout(store, scope, machine) if name == "local-tiered" else LogDirLayout(store, scope, machine)


def _is_file(path: str, files: Files) -> bool:
    """Whether PATH is one file: a local one, or an object that is named like a log."""
    local = local_path(path)
    if local is None:
        return path.endswith(".log")
    found = files.find(local)
    return found is not None and not found.is_directory


def _refuse_other_files(path: str, files: Files) -> None:
    """Raise ConfigError for a file that is neither named like a log nor begins like one."""
    local = local_path(path)
    if local is None or local.endswith(".log"):
        return
    head = bytearray(_MAGIC_POSITION + 1)
    with files.open_read(local) as file:
        size_bytes = file.read_into(head, position=0)
    if size_bytes < len(head) or head[_MAGIC_POSITION] > 2 or head[0] & 0x80 or head[8] & 0x80:
        raise ConfigError(
            f"{path} is no log of Kafka's: give a bucket, a log directory or a .log file"
            "; other files of a log directory are shown by `tierlog dump`"
        )


def _look(
    path: str, layout: str, config: StorageConfig, machine: Machine
) -> tuple[str, Scope, str, list[ObjectInfo] | None]:
    """Find the URL of the store, where in it the segments are, their layout, and all objects there if they
    were listed.
    """
    prefix = config.key_prefix
    places = _places_of(path, layout, config)
    found, place = layout, places[0]
    seen = _SeenObjects()
    if layout == "auto" or len(places) > 1:
        store = stack_store(open_configured_store(path, config, machine=machine), config, machine=machine)
        try:
            keys = (info.key[len(prefix) :] for info in seen.passed_on(store.iter_objects(prefix)))
            recognised = _recognise(keys, path, layout, places)
            if not recognised:
                # The first copy is under way, or died: a tier without segments, and something for `orphans`.
                recognised = _recognise(_unfinished_keys(store, prefix), path, layout, places)
        finally:
            store.close()
        if isinstance(recognised, list):
            if layout == "auto":
                raise _nothing_found(path, config, recognised)
        else:
            found, place = recognised
    return place.folder, _scope(place, config), found, seen.below(place)


class _SeenObjects:
    """The first objects of a listing that another reader iterates."""

    def __init__(self) -> None:
        self._objects: list[ObjectInfo] = []
        self._is_whole = False

    def passed_on(self, objects: Iterable[ObjectInfo]) -> Iterator[ObjectInfo]:
        """Yield the objects one by one; as many are stored as should show a layout."""
        for info in objects:
            if len(self._objects) <= _RECOGNISED_MAX:
                self._objects.append(info)
            yield info
        self._is_whole = len(self._objects) <= _RECOGNISED_MAX

    def below(self, place: Place) -> list[ObjectInfo] | None:
        """Return all objects, their keys as from that folder; None unless the listing was read to its end and short."""
        if not self._is_whole:
            return None
        return [info._replace(key=place.inner + info.key) for info in self._objects]


def _places_of(path: str, layout: str, config: StorageConfig) -> list[Place]:
    """PATH, and the folders above that may belong to a key."""
    places = [Place(path, "")]
    if not config.key_prefix and (layout == "auto" or _INSIDE_OF_A_KEY.search(path.rstrip("/"))):
        places += _places_above(path)
    return places


def _unfinished_keys(store: ObjectStore, prefix: str) -> Iterator[str]:
    """Yield the keys of unfinished uploads; none where the store does not list them for a reader."""
    try:
        for upload in store.iter_uploads(prefix):
            yield upload.key[len(prefix) :]
    except (StoreError, ConfigError) as error:
        _log.debug("%s: unfinished uploads: %s", store.describe(), error)


def _places_above(path: str) -> list[Place]:
    places: list[Place] = []
    folder, inner = path, ""
    for _ in range(_FOLDERS_ABOVE):
        folder, name = split_last(folder)
        if not folder or not name:
            break
        inner = f"{name}/{inner}"
        places.append(Place(folder, inner))
    return places


def _recognise(keys: Iterable[str], path: str, layout: str, places: Sequence[Place]) -> tuple[str, Place] | list[str]:
    """Return the layout that the keys have, seen from the lowest place from which they have one; else the
    first keys.
    """
    examples: dict[Place, dict[str, str]] = {}
    seen: list[str] = []
    count = 0
    for key in itertools.islice(keys, _LOOKED_AT_MAX):
        found = _find_layout(key, layout, places)
        if found is None:
            seen += [key] if len(seen) < _SHOWN_KEYS else []
            continue
        examples.setdefault(found[1], {}).setdefault(found[0], key)
        count += 1
        if layout != "auto" or count >= _RECOGNISED_MAX:
            break
    place = next((place for place in places if place in examples), None)
    if place is None:
        return seen
    if len(examples[place]) > 1:
        told = ", ".join(f"{name} ({key})" for name, key in examples[place].items())
        raise ConfigError(f"{path} holds keys of several layouts: {told}; give a narrower path, or the layout")
    return next(iter(examples[place])), place


def _find_layout(key: str, layout: str, places: Sequence[Place]) -> tuple[str, Place] | None:
    parsers = PARSERS if layout == "auto" else {layout: PARSERS[layout]}
    for place in places:
        for name, parse in parsers.items():
            if parse(place.inner + key) is not None:
                return name, place
    return None


def _nothing_found(path: str, config: StorageConfig, seen: list[str]) -> ConfigError:
    shown = MASK if config.key_prefix_mask else config.key_prefix
    place = f"{path} (below key.prefix {shown!r})" if config.key_prefix else path
    if not seen:
        hint = "; if the path already holds key.prefix, leave that key out" if config.key_prefix else ""
        return ConfigError(f"{place} is empty or does not exist: if it has nothing yet, give its layout{hint}")
    told = ", ".join(seen)
    return ConfigError(
        f"{place} holds no tiered segments and no log directory; it holds {told}"
        "; give the bucket prefix, log directory or .log file, or the layout"
    )
