"""The reference page of all keys, made from the model: ``docs/configuration.md``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tierlog.remote.config.class_names import BACKENDS, CHUNK_CACHES, CREDENTIALS_PROVIDERS, STORAGE_MANAGERS
from tierlog.remote.config.model import KEY_GROUPS
from tierlog.remote.config.older_names import NEVER_READ, OLDER_PREFIXES
from tierlog.remote.config.segment_keys import PAIRS, PRIVATE_KEY_FILE, PUBLIC_KEY_FILE
from tierlog.remote.config.values import INT32_MAX, INT64_MAX, KeyFacts, KeyGroup
from tierlog.runtime.stores.settings.keys import CLIENT_KEYS, KEYS_BY_SCHEME, OWN_KEYS

_HEAD: Final = """# Configuration of the storage manager

Every key, whoever reads it: a broker's storage manager, `tierlog copy`, or a reader of the bucket, which needs few of
them ([reaching-a-bucket.md](reaching-a-bucket.md)). The keys, units, ranges and defaults are those of the Aiven plugin,
so that the `rsm.config.*` part of a broker's configuration works as it stands; keys marked **ours** are Tierlog's, and
the plugin does not know them. Keys marked **live** can be changed while a storage manager runs.

In a broker's file each key carries `remote.log.storage.manager.impl.prefix`, by default `rsm.config.`; elsewhere `rsm.`
alone or nothing may stand in front. Keys match without case. An unknown key is an error that names the nearest known
one, values that contradict each other are an error, and no message quotes a secret.
"""
_SCHEMES: Final = {"s3": "S3", "gs": "Google", "az": "Azure"}
_KINDS: Final = {"tuple": "list", "SecretStr": "secret", "bool": "boolean", "int": "number", "str": "text"}


def configuration_page() -> str:
    """The text of the page."""
    lines = [_HEAD]
    for title, group in KEY_GROUPS.items():
        lines += [f"## {title}\n", *key_table(group)]
        if PAIRS in (group.model_fields[field].alias for field in group.model_fields):
            lines += _pair_rows()
        lines.append("")
    lines += list(_store_keys())
    lines += list(_others())
    return "\n".join(lines).rstrip() + "\n"


def key_table(group: type[KeyGroup]) -> list[str]:
    """The lines of a table of a group's keys; fields that are none are left out."""
    rows = [_row(group, field) for field in group.model_fields if group.model_fields[field].alias]
    return ["| key | kind | default | allowed | meaning |", "| --- | --- | --- | --- | --- |", *rows]


def _row(group: type[KeyGroup], field: str) -> str:
    info, facts = group.model_fields[field], group.facts(field)
    marks = "".join(f" **{mark}**" for mark, there in (("ours", facts.own), ("live", facts.live)) if there)
    kind = next(shown for name, shown in _KINDS.items() if name in str(info.annotation))
    allowed = _allowed(facts)
    return f"| `{info.alias}`{marks} | {kind} | {_default(info.default)} | {allowed} | {info.description} |"


def _default(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else f"`{value}`" if value else "empty"


def _allowed(facts: KeyFacts) -> str:
    if facts.choices:
        return ", ".join(f"`{choice}`" for choice in facts.choices)
    if facts.url:
        return "http, https"
    if facts.minimum is None:
        return "not empty" if facts.not_empty else ""
    maximum = facts.maximum
    shown = f"{facts.minimum} …" if maximum in (None, INT64_MAX) else f"{facts.minimum} … {_number(maximum)}"
    return f"{shown}, multiple of {facts.multiple_of}" if facts.multiple_of else shown


def _number(value: int | None) -> str:
    return "2^31-1" if value == INT32_MAX else str(value)


def _pair_rows() -> list[str]:
    needed = "PEM or DER, unencrypted, at least 1296 bits"
    return [
        f"| `{PAIRS}.<id>.{PRIVATE_KEY_FILE}` | text | – | path | Private key of an id: {needed}. Every id needs it. |",
        f"| `{PAIRS}.<id>.{PUBLIC_KEY_FILE}` | text | – | path | Public key of an id. Every id needs it to write. |",
    ]


def _store_keys() -> Iterator[str]:
    yield "## The object store's client\n"
    yield "All **ours**, and over `storage.*` of the same meaning. Most are those of"
    yield "[obstore](https://developmentseed.org/obstore/), which also takes a store's own keys with its brand in front"
    yield "(`store.aws_region`) and finds what is not given in its environment variables (`AWS_REGION`). How they are"
    yield "used is on [reaching-a-bucket.md](reaching-a-bucket.md).\n"
    groups = {"Every store": (*OWN_KEYS, *CLIENT_KEYS)} | {
        _SCHEMES[name]: keys for name, keys in KEYS_BY_SCHEME.items()
    }
    yield "| key | of | default | allowed | meaning |\n| --- | --- | --- | --- | --- |"
    for of, keys in groups.items():
        for each in keys:
            default = f"`{each.default}`" if each.default else "–"
            yield f"| `store.{each.name}` | {of} | {default} | {each.allowed} | {each.meaning} |"
    yield ""


def _others() -> Iterator[str]:
    yield "## Beside these\n"
    yield "| key | meaning |\n| --- | --- |"
    yield "| `rsm.config.file` | A file with more keys (`.properties`, JSON, TOML), over which the given ones win. |"
    stores = "[third-party-stores.md](third-party-stores.md)"
    yield f"| `storage.<key>` | With a store of a third party's, its own keys: {stores}. |"
    yield "| `iceberg.catalog.*`, `structure.provider.serde.*`, `remote.log.*` | Accepted, without effect here. |"
    yield "\n## Older spellings\n"
    yield "Accepted, with a warning that names today's.\n"
    yield "| spelling | today's |\n| --- | --- |"
    for older, todays in OLDER_PREFIXES.items():
        yield f"| `{older}*` | `{todays}*` |"
    yield f"| `{NEVER_READ}` | `key.prefix`; the older one is not used, as no release of the plugin ever read it |"
    yield "\n## Java classes\n"
    yield "A class that is not listed is an error, not another store, cache or source of credentials.\n"
    yield "| class | here |\n| --- | --- |"
    for names in (STORAGE_MANAGERS, BACKENDS, CHUNK_CACHES, CREDENTIALS_PROVIDERS):
        for java, ours in names.items():
            yield f"| `{java}` | `{ours}` |"
