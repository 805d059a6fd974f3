"""``CREATE TABLE … USING tierlog OPTIONS (…)``: how a table of Spark's catalog remembers its options.

Spark calls a Python data source for the schema when the table is created, with the options mixed into the table's
properties, and then for every query over the table with no options at all. The catalog stores the schema, metadata of
its fields included, and passes it to ``reader``: so the options are stored there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from tierlog.errors import ConfigError

METADATA_KEY = "tierlog.options"
_FAMILY = "option."
#: Passwords and keys of Kafka's clients, which no file can hold for them.
_KAFKA_SECRET: Final = re.compile(
    r"kafka\.(?:sasl|ssl)\.(?:.*\.)?(?:password|passphrase|secret|jaas\.config|keystore\.key)"
)


def table_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the user's options among the properties of a table that is being created; None if no table is being
    created.

    Raises:
        ConfigError: keys of the storage, or secrets of Kafka's clients, are among them: the catalog would store them,
            readable by every user of it.
    """
    if "provider" not in options:
        return None
    own = {key.removeprefix(_FAMILY): value for key, value in options.items() if key.startswith(_FAMILY)}
    if "path" in options and "paths" not in own:
        own["path"] = options["path"]
    storage = sorted(key for key in own if key.startswith(("store.", "rsm.")) and key != "rsm.config.file")
    if storage:
        raise ConfigError(
            f"the catalog would keep {', '.join(storage)} of a table for all its users: put them into a file and give "
            "its path as rsm.config.file, or use CREATE TEMPORARY VIEW"
        )
    if secrets := sorted(key for key in own if _KAFKA_SECRET.fullmatch(key.lower())):
        raise ConfigError(
            f"the catalog would keep {', '.join(secrets)} of a table for all its users: use CREATE TEMPORARY VIEW"
        )
    return own


def remember(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with the options in the metadata of its first field."""
    first, *others = schema.fields
    metadata = {METADATA_KEY: json.dumps(dict(options))}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def recalled(schema: StructType, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table, under those of the query (``SELECT … WITH (…)``).

    Raises:
        ConfigError: the schema carries none.
    """
    for field in schema.fields:
        if METADATA_KEY in field.metadata:
            return dict(json.loads(field.metadata[METADATA_KEY])) | dict(options)
    raise ConfigError(
        "option path is missing. Spark hands the OPTIONS of a table to no Python data source when it is read; they are "
        "kept in the columns that CREATE TABLE finds out by itself: leave its list of columns out, or use CREATE "
        "TEMPORARY VIEW"
    )
