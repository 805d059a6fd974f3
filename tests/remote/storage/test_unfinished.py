"""What a listing alone tells of copies that died."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import ConfigError
from tierlog.remote.storage.object_keys import PARSERS
from tierlog.remote.storage.unfinished import WHOLE, iter_unfinished
from tierlog.runtime.object_store import ObjectInfo

TOPIC = "orders-bWFkZS10b3BpYy1vZi10bA"
ID = "AAAAAAAAAGUAAAAAAAAAZ"


def keys(layout: str, segment: int) -> dict[str, str]:
    """Suffix → key of a whole segment."""
    if layout == "aiven":
        return {s: f"{TOPIC}/3/{segment:020d}-{ID}{segment}.{s}" for s in WHOLE["aiven"]}
    named = {s: f"{segment:020d}.{s}" for s in ("log", "index", "timeindex", "snapshot")}
    named |= {s: s for s in ("segment.json", "leader-epoch-checkpoint")}
    return {s: f"{TOPIC}/3/{ID}{segment}/{name}" for s, name in named.items()}


@given(
    layout=st.sampled_from(sorted(WHOLE)),
    there=st.lists(st.sets(st.integers(0, 5)), min_size=1, max_size=5),
    prefix=st.sampled_from(["", "p/", "p"]),
    seed=st.randoms(),
)
def test_exactly_the_objects_of_no_whole_segment(layout: str, there: list[set[int]], prefix: str, seed: object) -> None:
    """One object too many and a live segment is deleted; one too few and it costs money for ever."""
    listed, expected = [], set()
    for segment, chosen in enumerate(there):
        whole = keys(layout, segment)
        assert whole.keys() == set(WHOLE[layout])
        mine = [key for place, key in enumerate(whole.values()) if place in chosen]
        listed += [ObjectInfo(prefix + key, 1, 0) for key in mine]
        if len(mine) < len(whole):
            expected |= {prefix + key for key in mine}
    listed.append(ObjectInfo("something/else", 1, 0))
    listed.append(ObjectInfo(f"other/{prefix}{TOPIC}/3/x.log", 1, 0))
    seed.shuffle(listed)  # type: ignore[attr-defined]
    found = list(iter_unfinished(listed, layout, key_prefix=prefix))
    assert {info.key for each in found for info in each.objects} == expected
    for each in found:
        assert each.missing
        described = any(info.key.endswith(("rsm-manifest", "segment.json")) for info in each.objects)
        assert each.seen_by_readers == described


def test_other_layouts_are_refused() -> None:
    """A broker's log directory has no such thing as an unfinished segment: all of it would be deleted."""
    assert "log-dir" in PARSERS
    with pytest.raises(ConfigError):
        list(iter_unfinished([], "log-dir"))
