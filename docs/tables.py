"""Tables of the reference pages: a module's keys, with their limits, and its series."""

from __future__ import annotations

import sys

from tierlog.config_keys import Key, rows
from tierlog.remote.storage.storage_metrics import Series

KINDS = {
    "tuple[str, ...]": "list",
    "Password": "secret",
    "bool": "boolean",
    "int": "number",
    "float": "number",
    "str": "text",
}


def key_table(*groups: type[object]) -> list[str]:
    """The lines of a table of groups' keys."""
    lines = ["| key | kind | default | allowed | meaning |", "| --- | --- | --- | --- | --- |"]
    for key in (row for group in groups for row in rows(group).values()):
        marks = "".join(f" **{mark}**" for mark, there in (("ours", key.own), ("live", key.live)) if there)
        allowed = "" if key.kind == "bool" else shown_limits(key)
        default = _shown_default(key.default)
        lines.append(f"| `{key.name}`{marks} | {KINDS[key.kind]} | {default} | {allowed} | {key.meaning} |")
    return lines


def _shown_default(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return "no limit" if value == sys.float_info.max else str(value)
    if isinstance(value, int):
        return "2^63-1" if value == 2**63 - 1 else str(value)
    return f"`{value}`" if value else "empty"


def shown_limits(key: Key) -> str:
    """The values that a key allows, for its page."""
    if key.choices:
        return ", ".join(f"`{choice}`" for choice in key.choices)
    if key.kind == "bool":
        return "`true`, `false`"
    if key.pattern:
        return "`*`, or `<partition>:<broker>` by comma"
    if key.kind == "Duration":
        return "as `30s`, `500ms`"
    if key.url:
        return "http, https"
    if key.kind not in ("int", "float"):
        return "not empty" if key.not_empty else ""
    if key.minimum == -(2**63):
        return "any number"
    maximum = {2**63 - 1: "", 2**31 - 1: " 2^31-1"}.get(key.maximum, f" {key.maximum}")
    also = "" if key.also is None else f", or {key.also}"
    multiple = "" if key.multiple_of is None else f", multiple of {key.multiple_of}"
    return f"{key.minimum} …{maximum}{also}{multiple}"


def metric_labels(series: Series) -> str:
    if not series.label:
        return "–"
    return f"`{series.label}`" + (f": {', '.join(series.values)}" if series.values else "")


def cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")
