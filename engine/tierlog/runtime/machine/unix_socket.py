"""A listening Unix-domain socket, who may connect to it, and what systemd hands a service."""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
import struct
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError

#: How an address of this kind begins.
UNIX: Final = "unix:"
_PATH_BYTES_MAX: Final = 107
_CREDENTIALS: Final = struct.Struct("3i")
#: Linux: the supplementary groups of the peer.
_SO_PEERGROUPS: Final = 59
#: As many groups of a peer are looked at: Python asks for no more bytes.
_GROUPS_BYTES_MAX: Final = 1024
#: The first descriptor that systemd passes.
_FIRST_PASSED: Final = 3


#: How the folder is called that a broker's plugin makes for the socket of its child.
_PRIVATE_FOLDER: Final = "tierlog"


@dataclass(frozen=True, slots=True)
class UnixListener:
    """Where a server listens on this machine, and who may connect: root, this process's user, and a group's members.

    Args:
        path: Of the socket, absolute; at most 107 bytes.
        group: Its name or number; "" for none.

    Raises:
        ConfigError: the path is too long, or not absolute.
    """

    path: str
    group: str = ""

    def __post_init__(self) -> None:
        if not self.path.startswith("/") or len(os.fsencode(self.path)) > _PATH_BYTES_MAX:
            raise ConfigError(f"{UNIX}{self.path}: an absolute path of at most {_PATH_BYTES_MAX} bytes is expected")

    def listen(self, *, backlog: int) -> socket.socket:
        """Begin to listen; a socket that nobody listens on any more is replaced. Mode 0600, with a group 0660.

        Raises:
            OSError: EADDRINUSE: a server listens there, or something else than a socket has the name; or as the system
                says. ConfigError: there is no such group.
        """
        gid = None if not self.group else _gid_of(self.group)
        passed = _passed_by_systemd()
        if passed is not None:
            return passed
        self._remove_stale()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            os.fchmod(listener.fileno(), 0o600)  # bind makes the name with the socket's own mode
            listener.bind(self.path)
            if gid is not None:
                os.chown(self.path, -1, gid)
                os.chmod(self.path, 0o660)
            listener.listen(backlog)
            listener.settimeout(0)
        except BaseException:
            listener.close()
            raise
        return listener

    def remove(self, listener: socket.socket) -> None:
        """Remove the name of a socket that is about to be closed, if it is still the socket's."""
        if listener.fileno() < 0 or listener.getsockname() != self.path or _was_passed():
            return
        try:
            os.unlink(self.path)
        except FileNotFoundError:
            return

    def remove_private_folder(self) -> None:
        """Remove the folder of the name if it was made for it by who started this process, who cannot do it any more:
        empty, this user's alone, and called as the plugin calls it.
        """
        folder = os.path.dirname(self.path)
        if not os.path.basename(folder).startswith(_PRIVATE_FOLDER):
            return
        try:
            found = os.lstat(folder)
            if found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o700:
                os.rmdir(folder)
        except OSError:
            return  # somebody else has removed it, or uses it

    def refusal(self, accepted: socket.socket) -> str:
        """Why a peer may not connect; "" if it may."""
        _, uid, gid = _CREDENTIALS.unpack(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if uid in (0, os.geteuid()):
            return ""
        if self.group and _gid_of(self.group) in (gid, *_groups_of(accepted)):
            return ""
        return f"user {uid} is neither root nor the user of this server" + (
            f" nor in group {self.group}" if self.group else ""
        )

    def _remove_stale(self) -> None:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(found.st_mode):
            raise OSError(errno.EADDRINUSE, "something else than a socket has the name", self.path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(0)
            try:
                probe.connect(self.path)
            except ConnectionRefusedError:
                os.unlink(self.path)
                return
            except BlockingIOError:
                pass  # its queue is full: somebody listens
        raise OSError(errno.EADDRINUSE, "another server listens there", self.path)


def peer_name(accepted: socket.socket) -> str:
    """Return the process that connected, for logs, and for turns among the processes."""
    pid, uid, _ = _CREDENTIALS.unpack(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return f"pid-{pid}-uid-{uid}"


def _groups_of(accepted: socket.socket) -> tuple[int, ...]:
    """The supplementary groups of a peer; none of a peer that is in more than 256."""
    try:
        data = accepted.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES_MAX)
    except OSError:
        return ()
    return struct.unpack(f"{len(data) // 4}I", data)


def notify_systemd(state: str) -> None:
    """Tell systemd of a service's state (``READY=1``, ``STOPPING=1``), where it runs this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(address)
        sender.send(state.encode())


def _was_passed() -> bool:
    return os.environ.get("LISTEN_PID") == str(os.getpid()) and os.environ.get("LISTEN_FDS", "0") != "0"


def _passed_by_systemd() -> socket.socket | None:
    """The socket that systemd listens on for this process; None: it has none."""
    if not _was_passed():
        return None
    passed = socket.socket(fileno=_FIRST_PASSED)
    if passed.family != socket.AF_UNIX:
        raise ConfigError("systemd passed a socket that is none of a path: ListenStream= has to name one")
    passed.set_inheritable(False)
    passed.settimeout(0)
    return passed


def _gid_of(group: str) -> int:
    if group.isascii() and group.isdecimal():
        return int(group)
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise ConfigError(f"there is no group {group!r}") from None
