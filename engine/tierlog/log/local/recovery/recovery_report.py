"""What loading a log did to its files."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """One thing that loading did to a file.

    Attributes:
        kind: "cut", "rebuilt", "deleted", "swapped", "split", "created", "epochs".
        path: Of the file.
        text: What, in words.
        bytes_cut: Of a log that was cut, or a file that was deleted.
    """

    kind: str
    path: str
    text: str
    bytes_cut: int = 0


@dataclass(slots=True)
class RecoveryReport:
    """What loading did, in order.

    Attributes:
        batches_checked: That were read, and found right.
        bytes_checked: Of logs that were read.
    """

    actions: list[RecoveryAction] = field(default_factory=list)
    batches_checked: int = 0
    bytes_checked: int = 0

    def add(self, kind: str, path: str, text: str, *, bytes_cut: int = 0) -> None:
        """Note an action."""
        self.actions.append(RecoveryAction(kind, path, text, bytes_cut))
