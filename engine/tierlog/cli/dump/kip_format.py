"""``tierlog dump --format kip``: one line for each metadata record, as KIP-405's formatter has them."""

from __future__ import annotations

from tierlog.cli.dump.kafka_format import KafkaForm, iter_payloads
from tierlog.cli.dump.log import Records
from tierlog.cli.dump.payloads import PayloadDecoder
from tierlog.records.batch_table import BatchTable


class KipForm(KafkaForm):
    """The records' own lines and nothing beside them; only logs have any."""

    def __init__(self, label: str, payloads: PayloadDecoder) -> None:
        super().__init__(label, payloads)

    def begin_lines(self) -> list[str]:
        return []

    def log_lines(self, _base_offset: int | None) -> list[str]:
        return []

    def batch_lines(self, _table: BatchTable) -> list[str]:
        return []

    def record_lines(self, records: Records) -> list[str]:
        """The lines of the data records: fewer than rows where there are control records."""
        lines = []
        for _, payload in iter_payloads(records, self._payloads):
            self.payload_faults += bool(payload.fault)
            lines.append(f"key:{payload.key},{payload.value}" if payload.key is not None else payload.value or "")
        return lines

    def step_lines(self, _steps: dict[int, int]) -> list[str]:
        """None: offsets that do not follow one another are no matter of the formatter."""
        return []
