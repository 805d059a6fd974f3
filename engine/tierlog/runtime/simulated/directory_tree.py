"""The names of a disk in memory: directories, their entries as programs see them, and the entries that a crash leaves.

A directory is an object of its own, as on a real disk: its rename changes entries of the directories above alone, so
that the changes in it and that rename survive a crash or not each on its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from tierlog.runtime.machine.files import FileInfo, Files
from tierlog.runtime.machine.randomness import Rng
from tierlog.runtime.simulated.page_cache import BaseContent, Content


class Directory:
    """The entries of a directory.

    Attributes:
        entries: As programs see them.
        durable: As they are on the disk for certain.
        place: The directory above, and the name in it; None for the root.
    """

    __slots__ = ("durable", "entries", "place")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.place: Place | None = None

    def find(self, name: str) -> Node | None:
        """Find an entry; None if there is none."""
        return self.entries.get(name)

    def list_names(self) -> list[str]:
        """Return the names of all entries, in order."""
        return sorted(self.entries)

    def set(self, name: str, node: Node | None) -> None:
        """Set an entry as programs see it; None removes it."""
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node
            if isinstance(node, Directory):
                node.place = (self, name)

    def set_durable(self, name: str, node: Node | None) -> None:
        """Set an entry on the disk; None removes it."""
        if node is None:
            self.durable.pop(name, None)
        else:
            self.durable[name] = node

    def has(self, other: Directory) -> bool:
        """Whether another directory is this one, or lies in it or below."""
        return other is self or (other.place is not None and self.has(other.place[0]))

    def info(self, path: str) -> FileInfo:
        """Return what is known of the directory, under a path."""
        return FileInfo(path, 0, 0, is_directory=True)


class BaseDirectory(Directory):
    """A directory of a file system below: a name is looked for there when it is first asked for, or all of them are
    when the directory is first listed. From then on they are this disk's.
    """

    __slots__ = ("_files", "_is_listed", "_path", "_sought")

    def __init__(self, files: Files, path: str) -> None:
        super().__init__()
        self._files, self._path = files, path.rstrip("/")
        self._sought: set[str] = set()
        self._is_listed = False

    def find(self, name: str) -> Node | None:
        if name not in self._sought:
            self._sought.add(name)
            found = self._files.find(f"{self._path}/{name}")
            if found is not None and found.is_directory:
                super().set(name, BaseDirectory(self._files, found.path))
            elif found is not None:
                super().set(name, BaseContent(found))
        return self.entries.get(name)

    def list_names(self) -> list[str]:
        if not self._is_listed:
            self._is_listed = True
            for entry in self._files.iter_directory(self._path or "/"):
                self.find(entry.name)
        return super().list_names()

    def set(self, name: str, node: Node | None) -> None:
        self._sought.add(name)
        super().set(name, node)

    def info(self, path: str) -> FileInfo:
        found = self._files.find(self._path or "/")
        return super().info(path) if found is None else found._replace(path=path)


Node = Content | Directory
#: A directory, and a name in it.
Place = tuple[Directory, str]


@dataclass(frozen=True, slots=True)
class NameChange:
    """The entries that some places get in one step.

    Attributes:
        entries: None removes one.
        needs: Places whose earlier changes this one follows from, besides its own: of a directory that is moved, those
            on the way to its new name.
    """

    entries: dict[Place, Node | None]
    needs: frozenset[Place]

    def is_of(self, places: set[Place]) -> bool:
        """Return whether the change is one of a name at these places."""
        return not places.isdisjoint(self.entries)

    def follows_from(self, places: set[Place]) -> bool:
        """Whether it follows from earlier changes of some places."""
        return not (places.isdisjoint(self.entries) and places.isdisjoint(self.needs))

    def apply(self) -> None:
        """Make it durable."""
        for (directory, name), node in self.entries.items():
            directory.set_durable(name, node)


class DirectoryTree:
    """All directories of a disk, and the changes of names that are not durable yet.

    Attributes:
        used_bytes: Of all files that have a name.
    """

    def __init__(self, root: Directory | None = None) -> None:
        self.root = Directory() if root is None else root
        self.used_bytes = 0
        self._changes: list[NameChange] = []

    def find(self, name: str) -> Node | None:
        """Find what a name without "/" in front and behind stands for; None if it stands for nothing. "" is the
        root.
        """
        node: Node | None = self.root
        for part in name.split("/") if name else ():
            if not isinstance(node, Directory):
                return None
            node = node.find(part)
        return node

    def change(self, entries: dict[Place, Node | None]) -> None:
        """Change names in one step; a crash may undo this until one of the directories is fsynced."""
        moved = any(isinstance(node, Directory) for node in entries.values())
        needs = {place for directory, _ in entries for place in _way_to(directory)} if moved else ()
        self._changes.append(NameChange(entries, frozenset(needs)))
        for (directory, name), node in entries.items():
            self._set(directory, name, node)

    def _set(self, directory: Directory, name: str, node: Node | None) -> None:
        old = directory.find(name)
        if isinstance(old, Content):
            old.names -= 1
            self.used_bytes -= 0 if old.names else len(old.data)
        directory.set(name, node)
        if isinstance(node, Content):
            self.used_bytes += 0 if node.names else len(node.data)
            node.names += 1

    def add_directory(self, directory: Directory, name: str) -> Directory:
        """Add an empty directory to another, durable at once."""
        made = Directory()
        self.change({(directory, name): made})
        self.make_durable(directory, name)
        return made

    def make_durable(self, directory: Directory, name: str | None = None) -> None:
        """Make the names in a directory, or one of them, survive a crash; of a rename both names. The directory's own
        name survives too, and those above.
        """
        wanted = _way_to(directory)
        if name is not None:
            wanted.add((directory, name))
        left: list[NameChange] = []
        made: list[NameChange] = []
        for change in reversed(self._changes):
            if change.is_of(wanted) or (name is None and any(place[0] is directory for place in change.entries)):
                made.append(change)
                wanted.update(change.entries, change.needs)
            else:
                left.append(change)
        for change in reversed(made):
            change.apply()
        self._changes = left[::-1]

    def after_crash(self, rng: Rng | None) -> DirectoryTree:
        """Return the tree that a crash leaves; this one is not used any more. ``rng`` decides which changes survive,
        None: none.
        """
        lost: set[Place] = set()
        for change in self._changes:
            if rng is None or change.follows_from(lost) or rng.integer_below(2):
                lost.update(change.entries)
            else:
                change.apply()
        left = DirectoryTree()
        left._add_survivors(self.root, left.root, rng)
        return left

    def _add_survivors(self, source: Directory, target: Directory, rng: Rng | None) -> None:
        for name, node in source.durable.items():
            left: Node
            if isinstance(node, Directory):
                left = Directory()
                self._add_survivors(node, left, rng)
            else:
                left = Content(node.modified_ms, node.durable if rng is None else node.after_power_cut(rng))
            self._set(target, name, left)
            target.set_durable(name, left)

    def clear(self, directory: Directory) -> None:
        """Remove all that is in a directory, for good; no change of names may be pending."""
        for name in directory.list_names():
            node = directory.find(name)
            if isinstance(node, Directory):
                self.clear(node)
            self._set(directory, name, None)
        directory.durable.clear()


def _way_to(directory: Directory) -> set[Place]:
    """The places of a directory and of those above it."""
    found: set[Place] = set()
    while directory.place is not None:
        found.add(directory.place)
        directory = directory.place[0]
    return found
