"""A broker that dies by SIGKILL at any step of a copy or a delete: what its successor finds, and can put right.

The default run takes 24 seeded steps, ``-m slow`` (``make test-kills``) all of five shapes: about 300.
"""

from __future__ import annotations

import pathlib
import pickle
import random
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.killed_copies import Killer, killer
from tests.support.leftovers import leftovers, objects_of, search_of, seen_by_readers
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tierlog.remote.api import RemoteResourceNotFoundException
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier.tier_paths import open_tier
from tierlog.runtime.stores.local.store import LocalStore

SEED: Final = 20261121
EVERY_STEP: Final = 10**6


@pytest.fixture(scope="module")
def executioner() -> Iterator[Killer]:
    with killer() as made:
        yield made


class Scene:
    """A bucket with one whole segment of another id, and a segment that is to be copied."""

    def __init__(self, tmp_path: pathlib.Path, shape: str, executioner: Killer) -> None:
        # The steps are those of a copy or a deletion alone, not of what the store is asked before.
        self.keys = local_keys(tmp_path / "store") | SHAPES[shape] | {"store.probe.enabled": "false"}
        self.layout = "kafka" if shape == "kafka" else "aiven"
        self.segment = make_segment(sound_log(120, base_offset=100)).closed_in(tmp_path / "log")
        self.path = tmp_path / "segment.pickle"
        self.path.write_bytes(pickle.dumps(self.segment))
        self.executioner = executioner
        self.store = LocalStore(str(tmp_path / "store"))
        self.root = str(tmp_path / "store")
        self.other = self.segment.with_id(4711)
        with self.manager() as manager:
            manager.copy_log_segment_data(self.other.metadata, self.other.data)
        self.before = self.objects()

    def manager(self) -> TieredStorageManager:
        manager = TieredStorageManager()
        manager.configure(self.keys)
        return manager

    def objects(self) -> dict[str, bytes]:
        return {info.key: bytes(self.store.fetch(info.key)) for info in self.store.iter_objects()}

    def die(self, what: str, step: int) -> bool:
        """Whether it came to that step."""
        return self.executioner.run(what, self.path, self.keys, step).killed

    def steps(self, what: str) -> int:
        """Of a run that is left alone; what it did is undone, or done."""
        low, high = 1, 512
        while low < high:
            middle = (low + high) // 2
            if self.die(what, middle):
                low = middle + 1
            else:
                high = middle
            self.clean()
            if what == "delete":
                with self.manager() as manager:
                    manager.copy_log_segment_data(self.segment.metadata, self.segment.data)
        return low - 1

    def clean(self) -> None:
        """What ``orphans --delete`` does with what nobody owns: here everything that is not the other segment."""
        for upload in list(self.store.iter_uploads()):
            self.store.abort_upload(upload)
        self.store.delete([key for key in self.objects() if key not in self.before])

    def readable(self, segment: ClosedSegment) -> bytes | None:
        with self.manager() as manager:
            try:
                with manager.fetch_log_segment(segment.finished(), 0) as stream:
                    return stream.read()
            except RemoteResourceNotFoundException:
                return None

    def require_no_half_segment(self) -> None:
        """A reader that lists the bucket finds whole segments alone."""
        config = {key: value for key, value in self.keys.items() if key not in ("broker.id", "storage.root")}
        config.pop("storage.backend.class")
        with open_tier(self.root, layout=self.layout, config=config) as tier:  # type: ignore[arg-type]
            for found in tier.iter_segments():
                windows = [bytes(window) for _, window in tier.iter_log_windows(found)]
                assert b"".join(windows) == self.segment.log

    def require_exactly_removable(self) -> None:
        """A listing names what is left of the dead copy, all of it; the rest is the other segment, untouched."""
        own = str(self.segment.metadata.remote_log_segment_id.id)
        extra = {key for key in self.objects() if key not in self.before}
        assert all(own in key for key in extra)
        left = leftovers(self.store, self.layout)
        told = {key for each in left for key in objects_of(each)}
        whole = self.readable(self.segment)
        assert told == (set() if whole is not None else extra)
        assert not any(seen_by_readers(each) for each in left)
        assert whole in (None, self.segment.log)
        assert {key: data for key, data in self.objects().items() if key in self.before} == self.before

    def require_orphans_go(self) -> None:
        """``orphans --delete`` leaves the whole segments, and no file beside them."""
        whole = self.readable(self.segment) is not None
        search = search_of(self.store, self.layout)
        found = search.run().orphans
        assert list(search.delete(found)) == found
        assert (self.objects() == self.before) is not whole
        assert len(self.files()) == len(self.objects())

    def files(self) -> set[str]:
        """On the disk, whatever they are."""
        root = pathlib.Path(self.root)
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def require_retry(self) -> None:
        """Another attempt, under another id and under the same one, gives the right bytes."""
        retry = self.segment.with_id(2)
        with self.manager() as manager:
            for attempt in (retry, self.segment):
                custom = manager.copy_log_segment_data(attempt.metadata, attempt.data)
                with manager.fetch_log_segment(attempt.finished(custom), 0) as stream:
                    assert stream.read() == self.segment.log
            manager.delete_log_segment_data(retry.finished())
            manager.delete_log_segment_data(self.segment.finished())
        for upload in list(self.store.iter_uploads()):
            self.store.abort_upload(upload)
        assert self.objects() == self.before
        assert self.files() == set(self.before)


def campaign(scene: Scene, points: int) -> None:
    last = scene.steps("copy")
    assert last > 25, "a copy has that many steps"
    chance = random.Random(SEED)
    chosen = range(1, last + 1) if points >= last else sorted(chance.sample(range(1, last + 1), points))
    for step in chosen:
        try:
            assert scene.die("copy", step)
            scene.require_no_half_segment()
            scene.require_exactly_removable()
            if step % 2:  # else the retry finds what the dead copy left
                scene.require_orphans_go()
            scene.require_retry()
        except AssertionError as error:
            error.add_note(f"killed at step {step} of {last}, seed {SEED}")
            raise


@pytest.mark.few(1)
@pytest.mark.parametrize(("shape", "points"), [("aiven-plain", 8), ("aiven-zstd-aes", 8), ("kafka", 8)])
def test_killed_copies(shape: str, points: int, tmp_path: pathlib.Path, executioner: Killer) -> None:
    """A broker that dies in a copy must leave nothing that a reader takes for a segment, or that cannot be removed."""
    campaign(Scene(tmp_path, shape, executioner), points)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["aiven-plain", "aiven-zstd", "aiven-aes", "aiven-zstd-aes", "kafka"])
def test_copies_killed_at_every_step(shape: str, tmp_path: pathlib.Path, executioner: Killer) -> None:
    """The longer campaign: every step that there is, about three hundred in all."""
    campaign(Scene(tmp_path, shape, executioner), EVERY_STEP)


@pytest.mark.parametrize("shape", ["aiven-plain", "kafka"])
def test_killed_deletes(shape: str, tmp_path: pathlib.Path, executioner: Killer) -> None:
    """A deletion that was cut short must not leave a manifest without its log, and be repeatable."""
    scene = Scene(tmp_path, shape, executioner)
    with scene.manager() as manager:
        manager.copy_log_segment_data(scene.segment.metadata, scene.segment.data)
    last = scene.steps("delete")
    for step in range(1, last + 1):
        assert scene.die("delete", step)
        scene.require_no_half_segment()
        assert not any(seen_by_readers(left) for left in leftovers(scene.store, scene.layout))
        with scene.manager() as manager:
            manager.delete_log_segment_data(scene.segment.finished())
            assert scene.objects() == scene.before
            manager.copy_log_segment_data(scene.segment.metadata, scene.segment.data)
