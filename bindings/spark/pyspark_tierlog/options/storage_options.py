"""``rsm.*`` and ``store.*``: the keys that open the bucket, restored from what Spark makes of option names.

A broker's ``rsm.config.storage.s3.region`` may be given as ``rsm.config.…`` or ``rsm.…``. Spark hands option names over
in lower case; the keys of Aiven's plugin are lower case but for the ids inside ``encryption.key.pairs.<id>.…``, which
are put right by the list in ``encryption.key.pairs``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tierlog.errors import ConfigError

_KEY_PAIRS = "encryption.key.pairs"


def storage_config(options: Mapping[str, str]) -> dict[str, str]:
    """Return the storage keys as a broker's file would have them.

    Args:
        options: Values by name; the names start with ``rsm.`` or ``store.`` in any case.

    Returns:
        Values by ``rsm.config.<key>`` and ``store.<key>``; ids of key pairs are spelled as in ``encryption.key.pairs``.

    Raises:
        ConfigError: a key is given twice, in two forms, or two key pair ids differ only in case. Names keys, no values.
    """
    found: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith("rsm."):
            lower = "rsm.config." + lower.removeprefix("rsm.").removeprefix("config.")
        if lower in found:
            raise ConfigError(f"option {lower!r} is given twice, as rsm.config.… and as rsm.…")
        found[lower] = value
    return _with_key_pair_ids(found)


def _with_key_pair_ids(config: Mapping[str, str]) -> dict[str, str]:
    prefix = f"rsm.config.{_KEY_PAIRS}."
    ids = [name.strip() for name in config.get(f"rsm.config.{_KEY_PAIRS}", "").split(",") if name.strip()]
    by_lower = {name.lower(): name for name in ids}
    if len(by_lower) < len(set(ids)):
        raise ConfigError(
            f"{_KEY_PAIRS} lists ids that differ only in case ({', '.join(ids)}), and Spark lower-cases option names: "
            "give these keys in a file with rsm.config.file"
        )
    restored: dict[str, str] = {}
    for key, value in config.items():
        if key.startswith(prefix):
            pair, _, part = _split_pair(key.removeprefix(prefix))
            key = f"{prefix}{by_lower.get(pair, pair)}.{part}"
        restored[key] = value
    return restored


def _split_pair(text: str) -> tuple[str, str, str]:
    """``k1.public.key.file`` is the pair ``k1``; an id may hold dots itself."""
    for part in ("public.key.file", "private.key.file"):
        if text.endswith("." + part):
            return text.removesuffix("." + part), ".", part
    return text.rpartition(".")
