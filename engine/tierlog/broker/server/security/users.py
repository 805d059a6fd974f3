"""The users of a server, from a file: names and credentials.

One user a line, ``name:password`` or ``name:`` and a salted form, which does not reveal the password:

- ``alice:SCRAM-SHA-256$8192:<salt>$<stored key>:<server key>``, as RFC 5803 and PostgreSQL write it, in base 64;
- ``alice:SCRAM-SHA-256=salt=<…>,stored_key=<…>,server_key=<…>,iterations=8192``, as Kafka stores it.

A user may have one line for each mechanism. Empty lines and those that begin with ``#`` are ignored. A file without
users is refused: it may be a file that is just being written, and no client could log in.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files, read_secret_file
from tierlog.serving.reloaded_files import ReloadedFiles

_FILE_BYTES_MAX: Final = 16 << 20
#: Kafka's ScramMechanism demands no fewer.
ITERATIONS_MIN: Final = 4096
#: Kafka allows 16,384; more are accepted from other systems, up to half a second of a core for one login.
ITERATIONS_MAX: Final = 1_000_000
_SALT_BYTES_MIN: Final = 12
_SALT_BYTES: Final = 24
_SECRET_BYTES: Final = 32

#: The mechanisms with salted credentials, and their hashes.
HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}

_RFC_5803: Final = re.compile(r"\$([0-9]{1,9}):([A-Za-z0-9+/=]+)\$([A-Za-z0-9+/=]+):([A-Za-z0-9+/=]+)")
_SALTED: Final = re.compile(r"(SCRAM-SHA-[0-9]+)([$=].*)")


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The credential that RFC 5802 lets a server store for a password: enough to check it, not enough to log in.

    Args:
        salt, iterations: Of PBKDF2; sent to clients.
        stored_key, server_key: As the RFC calls them.
    """

    salt: bytes
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """Make the credential of a password. Takes a millisecond for 4,096 iterations.

    The password is used as it is, in UTF-8, as Kafka does: not prepared by RFC 4013.
    """
    name = HASHES[mechanism]
    salted_password = hashlib.pbkdf2_hmac(name, password.encode("utf-8", "surrogatepass"), salt, iterations)
    client_key = hmac.digest(salted_password, b"Client Key", name)
    server_key = hmac.digest(salted_password, b"Server Key", name)
    return ScramCredential(salt, iterations, hashlib.new(name, client_key).digest(), server_key)


class Users:
    """Names and salted credentials. No password is stored. Immutable.

    An unknown name gets a credential too, the same at each call, that no password fits: its salt and iterations look
    like those of the others, so that no client learns the names.

    Args:
        credentials: By name, and by mechanism.
        secret: The seed of made-up salts. With the same one a file that is read again changes no salt, neither a user's
            nor that of an unknown name.
    """

    def __init__(self, credentials: Mapping[str, Mapping[str, ScramCredential]], secret: bytes) -> None:
        self._credentials = credentials
        self._secret = secret
        self._models = {
            mechanism: tuple(found[mechanism] for _, found in sorted(credentials.items()) if mechanism in found)
            for mechanism in HASHES
        }

        #: The mechanism whose credential checks each user's password.
        self._mechanisms = tuple(_first_mechanism(found) for _, found in sorted(credentials.items()))

    def __len__(self) -> int:
        return len(self._credentials)

    def credential(self, name: str, mechanism: str) -> ScramCredential:
        """Return the credential of a user, or a made-up one that no password fits."""
        found = self._credentials.get(name, {}).get(mechanism)
        made_up = self._made_up(name, mechanism)
        return made_up if found is None else found

    def is_password(self, name: str, password: str) -> bool:
        """Whether a user has a password. Takes milliseconds, for an unknown name as for others."""
        found = self._credentials.get(name, {})
        made_up = self._draw("password", name)
        mechanism = "SCRAM-SHA-256"
        if found:
            mechanism = _first_mechanism(found)
        elif self._mechanisms:
            mechanism = self._mechanisms[int.from_bytes(made_up[:4]) % len(self._mechanisms)]
        expected = self.credential(name, mechanism)
        given = salted(mechanism, password, expected.salt, expected.iterations)
        return hmac.compare_digest(given.stored_key, expected.stored_key) and bool(found)

    def _draw(self, purpose: str, name: str) -> bytes:
        """64 bytes, the same each time."""
        return _draw(self._secret, purpose, name)

    def _made_up(self, name: str, mechanism: str) -> ScramCredential:
        drawn = self._draw(mechanism, name)
        models = self._models[mechanism]
        iterations, salt_bytes = ITERATIONS_MIN, _SALT_BYTES
        if models:
            model = models[int.from_bytes(drawn[:4]) % len(models)]
            iterations, salt_bytes = model.iterations, len(model.salt)
        salt = _drawn_salt(drawn, salt_bytes)
        key_bytes = hashlib.new(HASHES[mechanism]).digest_size
        keys = hashlib.shake_256(drawn + b"keys").digest(2 * key_bytes)
        return ScramCredential(salt, iterations, keys[:key_bytes], keys[key_bytes:])


def _draw(secret: bytes, purpose: str, name: str) -> bytes:
    """64 bytes, the same each time."""
    return hmac.digest(secret, f"{purpose}:{name}".encode("utf-8", "surrogatepass"), "sha512")


def _drawn_salt(drawn: bytes, salt_bytes: int) -> bytes:
    return hashlib.shake_256(drawn).digest(salt_bytes)


def _first_mechanism(credentials: Mapping[str, ScramCredential]) -> str:
    return next(mechanism for mechanism in HASHES if mechanism in credentials)


def open_users(path: str, machine: Machine) -> ReloadedFiles[Users]:
    """Open the file of users. A password in it takes a few milliseconds, as its credentials are made as it is read.

    Raises:
        ConfigError: a line is malformed; no line is quoted. StoreError and its kinds: the file cannot be read.
    """
    secret = machine.rng.secret_bytes(_SECRET_BYTES)
    return ReloadedFiles("users", (path,), lambda: _load_users(path, machine.files, secret), machine.files)


def _load_users(path: str, files: Files, secret: bytes) -> Users:
    key = "sasl_users_location"
    data = read_secret_file(key, path, files, limit_bytes=_FILE_BYTES_MAX)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{key}: {path} is not UTF-8") from None
    users = parse_users(text, path, secret)
    if not len(users):
        raise ConfigError(f"{key}: {path} names no user")
    return users


def parse_users(text: str, where: str, secret: bytes) -> Users:
    """Parse the users of a file's text. Raises ConfigError, with ``where`` and the line's number in it."""
    credentials: dict[str, dict[str, ScramCredential]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.removesuffix("\r")
        if not content.strip() or content.startswith("#"):
            continue
        name, separator, proof = content.partition(":")
        if not separator or not name or not proof:
            raise ConfigError(f"{where}:{number}: name:password is expected, or name: and a salted form")
        found = _credentials_of(name, proof, f"{where}:{number}", secret)
        known = credentials.setdefault(name, {})
        if known.keys() & found.keys():
            raise ConfigError(f"{where}:{number}: the user has a line for this mechanism already")
        known.update(found)
    return Users(credentials, secret)


def _credentials_of(name: str, proof: str, where: str, secret: bytes) -> dict[str, ScramCredential]:
    given = _SALTED.fullmatch(proof)
    if given is None:
        # The salt that the name had as an unknown one: a client that watches a reload learns nothing from salts.
        return {
            mechanism: salted(
                mechanism, proof, _drawn_salt(_draw(secret, mechanism, name), _SALT_BYTES), ITERATIONS_MIN
            )
            for mechanism in HASHES
        }
    mechanism, form = given.groups()
    if mechanism not in HASHES:
        raise ConfigError(f"{where}: the mechanism is none of {', '.join(HASHES)}")
    if form.startswith("$"):
        matched = _RFC_5803.fullmatch(form)
        if matched is None:
            raise ConfigError(f"{where}: {mechanism}$<iterations>:<salt>$<stored key>:<server key> is expected")
        iterations, salt, stored_key, server_key = matched.groups()
    else:
        values = _kafka_values(form[1:], where, mechanism)
        iterations, salt, stored_key, server_key = values
    return {mechanism: _checked(mechanism, iterations, (salt, stored_key, server_key), where)}


def _kafka_values(form: str, where: str, mechanism: str) -> tuple[str, ...]:
    pairs = dict(part.strip().split("=", 1) for part in form.strip("[]").split(",") if "=" in part)
    names = ("iterations", "salt", "stored_key", "server_key")
    if pairs.keys() != set(names):
        raise ConfigError(f"{where}: {mechanism}=salt=…,stored_key=…,server_key=…,iterations=… is expected")
    return tuple(pairs[name] for name in names)


def _checked(mechanism: str, iterations: str, encoded: tuple[str, ...], where: str) -> ScramCredential:
    if not re.fullmatch("[0-9]{1,9}", iterations) or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ConfigError(f"{where}: the iterations are not between {ITERATIONS_MIN} and {ITERATIONS_MAX}")
    try:
        salt, stored_key, server_key = (base64.b64decode(value, validate=True) for value in encoded)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{where}: a value is not base 64") from None
    key_bytes = hashlib.new(HASHES[mechanism]).digest_size
    if len(salt) < _SALT_BYTES_MIN or len(stored_key) != key_bytes or len(server_key) != key_bytes:
        raise ConfigError(f"{where}: the salt is shorter than {_SALT_BYTES_MIN} bytes, or a key is not {key_bytes}")
    return ScramCredential(salt, int(iterations), stored_key, server_key)
