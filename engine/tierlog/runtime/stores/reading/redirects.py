"""Settings with which obstore cannot follow a redirect to another host.

Its HTTP client follows up to ten and has no switch for it. With such a request goes AWS's session token, and another
host's answer would pass for the object. But the client takes a proxy, and hosts that are reached without it: with a
proxy that nothing can listen at, and the store's own hosts excepted, all others are out of reach. No request passes a
proxy then, and none is slower. Where a proxy is really used there is no room for this one.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from typing import Final

from tierlog.errors import StoreError
from tierlog.runtime.machine.files import Files
from tierlog.runtime.stores.credentials.aws import S3Options
from tierlog.runtime.stores.settings.options import find_ambient_proxy

#: Port 0: connecting to it is refused at once, and nothing can listen there.
_NOWHERE: Final = "127.0.0.1:0"
#: How the debug form of obstore 0.12 names a server that was not reached.
_TRIED_NOWHERE: Final = re.compile(rf'"tcp connect error",\s+{re.escape(_NOWHERE)},')
_HOST: Final = re.compile(r"(https?)://(?:\[([0-9A-Fa-f:.]+)\]|([^\s/:?#\"'\\]+))", re.IGNORECASE)
#: Prefixes of the environment's variables about a store, its accounts and its sources of credentials.
_AMBIENT: Final = {"s3": ("AWS_",), "gs": ("GOOGLE_",), "az": ("AZURE_", "AZURITE_", "IDENTITY_", "MSI_")}
#: Where obstore asks by itself for what options leave open: the store, tokens, the machine's identity.
_USUAL: Final[dict[str, frozenset[str]]] = {
    "s3": frozenset(),
    "gs": frozenset(("googleapis.com", "metadata.google.internal", "metadata", "169.254.169.254")),
    "az": frozenset(
        (
            "blob.core.windows.net",
            "fabric.microsoft.com",
            "login.microsoftonline.com",
            "169.254.169.254",
            "127.0.0.1",  # Azurite's, which `use_emulator` means
        )
    ),
}
#: The default host of a store, and its host of tokens.
_STORE_HOSTS: Final = {"gs": "storage.googleapis.com", "az": "blob.core.windows.net"}
_TOKEN_HOSTS: Final = {"gs": "oauth2.googleapis.com", "az": "login.microsoftonline.com"}
#: Credentials with which obstore asks no host for a token.
_FIXED: Final = {
    "gs": frozenset(("bearer_token", "skip_signature")),
    "az": frozenset(
        (
            "account_key",
            "access_key",
            "sas_key",
            "sas_token",
            "token",
            "bearer_token",
            "skip_signature",
            "use_emulator",
        )
    ),
}
_BRAND: Final = re.compile(r"google_|azure_storage_|azure_")
_DIRECTORY_BUCKET: Final = re.compile(r".+--([^-]+(?:-[^-]+)*)--xa?-s3")
_KEY_FILES: Final = tuple(
    f"{prefix}{name}"
    for prefix in ("", "google_")
    for name in ("service_account", "service_account_path", "application_credentials")
)
_KEY_FILE_BYTES_MAX: Final = 1 << 20


def own_hosts_only(
    scheme: str, bucket: str, config: Mapping[str, str], client: Mapping[str, str], files: Files
) -> dict[str, str]:
    """Return options of obstore's HTTP client by which it reaches the store's hosts alone; none where a proxy is used.

    Args:
        scheme: s3, gs or az.
        bucket: Its name.
        config: What obstore's store is given.
        client: What its HTTP client is given.
        files: Where a key of Google's may lie, which may name hosts.
    """
    if "proxy_url" in client or any(find_ambient_proxy(*each) for each in _asked(scheme, bucket, config)):
        return {}
    hosts = {host for _, host in _named(scheme, config)} | _USUAL[scheme]
    if scheme == "s3":
        hosts |= _s3_hosts(bucket, config)
    if scheme == "gs":
        hosts |= _google_hosts(config, files)
    return {"proxy_url": f"http://{_NOWHERE}", "proxy_excludes": ",".join(sorted(hosts))}


def is_refused_redirect(debug_text: str) -> bool:
    """Whether obstore's long form of an error names another host, of a redirect."""
    return _TRIED_NOWHERE.search(debug_text) is not None


def _named(scheme: str, config: Mapping[str, str]) -> set[tuple[str, str]]:
    """(scheme, host) of all URLs that options and environment name."""
    texts = [*config.values(), *(text for name, text in os.environ.items() if name.startswith(_AMBIENT[scheme]))]
    return {(found[1].lower(), found[2] or found[3]) for text in texts for found in _HOST.finditer(text)}


def _asked(scheme: str, bucket: str, config: Mapping[str, str]) -> set[tuple[str, str]]:
    """(scheme, host) of the servers that obstore sends requests to: where one goes by a proxy, none may be put in
    its place. The machine's own identity is never behind one, and S3's credentials are not obstore's to fetch.
    """
    if scheme == "s3":
        endpoint = _HOST.match(S3Options(config).endpoint())
        if endpoint is not None:
            return {(endpoint[1].lower(), endpoint[2] or endpoint[3])}
        return {("https", host) for host in _s3_hosts(bucket, config)}
    ambient = [(name, text) for name, text in os.environ.items() if name.startswith(_AMBIENT[scheme])]
    said = {_BRAND.sub("", name.lower(), count=1) for name, text in (*ambient, *config.items()) if text != "false"}
    found = _named(scheme, config) or {("https", _STORE_HOSTS[scheme])}
    return found if said & _FIXED[scheme] else {*found, ("https", _TOKEN_HOSTS[scheme])}


def _s3_hosts(bucket: str, config: Mapping[str, str]) -> set[str]:
    """Amazon's hosts of the region and of a directory bucket; names below them, as a bucket has one, count too."""
    region = S3Options(config).find("region", "default_region") or "us-east-1"
    found = {f"s3.{region}.amazonaws.com"}
    if zone := _DIRECTORY_BUCKET.fullmatch(bucket):
        found.add(f"s3express-{zone[1]}.{region}.amazonaws.com")
    return found


def _google_hosts(config: Mapping[str, str], files: Files) -> set[str]:
    """Return the hosts of the machine's identity, and those that a key file names (an emulator's, say)."""
    found = {text.partition(":")[0] for name, text in os.environ.items() if name.startswith("GCE_METADATA_")}
    ambient = {name.lower(): text for name, text in os.environ.items()}
    for name in _KEY_FILES:
        path = config.get(name) or ambient.get(name)
        if path is not None:
            with contextlib.suppress(StoreError):  # obstore reports the fault
                text = files.read_whole(path, limit_bytes=_KEY_FILE_BYTES_MAX).decode("utf-8", "replace")
                found |= {host[2] or host[3] for host in _HOST.finditer(text)}
    return found
