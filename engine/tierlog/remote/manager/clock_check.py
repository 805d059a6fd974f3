"""The broker's clock against the store's: a clock that jumps ahead makes a whole tier look too old."""

from __future__ import annotations

import logging

from tierlog.remote.manager.tier_services import TierServices

_log = logging.getLogger(__name__)


class ClockCheck:
    """Tells by how much the broker's clock differs from the store's, as far as the storage manager knows that one;
    otherwise from the time at which this object was made and the time that has passed since.

    Args:
        services: What the manager works with.

    Attributes:
        is_off: Whether they differed by more than ``clock.jump.max.ms`` when ``trusted`` was last asked.

    Thread safety: any number of threads.
    """

    def __init__(self, services: TierServices) -> None:
        self._services = services
        clock = services.machine.clock
        self._began_ms = clock.time_ms()
        self._began_seconds = clock.monotonic_seconds()
        self.is_off = False

    def difference_ms(self) -> int:
        """Return how far the broker's clock is ahead; negative: it is behind."""
        clock = self._services.machine.clock
        reference_ms: int | None = None
        try:
            reference_ms = self._services.storage.store_time_ms()
        except Exception as error:  # noqa: BLE001 - optional, of a third party: expiry must not end with it
            _log.debug("the store's time is not known: %s", error)
        if reference_ms is None:
            reference_ms = self._began_ms + int((clock.monotonic_seconds() - self._began_seconds) * 1000)
        return clock.time_ms() - reference_ms

    def trusted(self) -> bool:
        """Whether segments may expire by the broker's clock."""
        difference_ms = self.difference_ms()
        is_off = abs(difference_ms) > self._services.config.clock_jump_max_ms
        if is_off != self.is_off:
            self.is_off = is_off
            if is_off:
                _log.warning(
                    "the clock differs by %d ms from the store's, or from the time that has passed since the start: "
                    "nothing expires by time until it does not",
                    difference_ms,
                )
            else:
                _log.info("the clock is right again: segments expire by time")
        return not is_off
