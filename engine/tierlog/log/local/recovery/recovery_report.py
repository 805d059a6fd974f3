"""What loading a log did to its files."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """One thing that loading did to a file, or found and left as it is: a hole.

    Attributes:
        kind: "cut", "rebuilt", "deleted", "swapped", "split", "created", "epochs", "hole".
        path: Of the file; of a hole, the log that ends in front of it.
        text: What, in words.
        bytes_cut: Of a log that was cut, or a file that was deleted.
    """

    kind: str
    path: str
    text: str
    bytes_cut: int = 0

    @property
    def is_change(self) -> bool:
        return self.kind != "hole"


@dataclass(slots=True)
class RecoveryReport:
    """The changes that loading made to a log's files, and the holes that it found, in order.

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
