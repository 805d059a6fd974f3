"""Chance as an argument."""

from __future__ import annotations

import pytest

from tierlog.runtime.machine.randomness import Rng, SeededRng, SystemRng


@pytest.mark.parametrize("rng", [SystemRng(), SeededRng(1)])
def test_draws_are_within_their_bounds(rng: Rng) -> None:
    """If this fails, a key is too short, or jitter makes a wait negative or endless."""
    assert len(rng.secret_bytes(32)) == 32
    assert rng.secret_bytes(32) != rng.secret_bytes(32)
    assert all(0.5 <= rng.uniform(0.5, 1.5) <= 1.5 for _ in range(100))
    assert {rng.integer_below(3) for _ in range(200)} == {0, 1, 2}
    with pytest.raises(ValueError):
        rng.integer_below(0)


def test_a_seed_repeats_a_run() -> None:
    """If this fails, a failure that a simulation found cannot be looked at again."""

    def draws(seed: int) -> list[object]:
        rng = SeededRng(seed)
        return [rng.secret_bytes(8), rng.uniform(0, 1), rng.integer_below(1000)]

    assert draws(7) == draws(7)
    assert draws(7) != draws(8)
