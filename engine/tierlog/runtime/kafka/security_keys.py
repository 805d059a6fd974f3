"""Our identity for a Kafka cluster, and the certificates we trust: Java's ``security.*``, ``ssl.*`` and ``sasl.*`` as
librdkafka's.

Key and trust stores are PEM (KIP-651), or PKCS#12 for the key; a JVM's own store (JKS, which is what Kafka takes where
no type is given) can be read by a JVM alone, and is refused with what to do. No value is ever shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from tierlog.errors import ConfigError

Values = dict[str, str | int | bool]

SECURITY_KEYS: Final = frozenset({
    "security.protocol", "security.providers",
    "sasl.mechanism", "sasl.jaas.config", "sasl.username", "sasl.password", "sasl.kerberos.service.name",
    "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
    "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.scope",
    "sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.certificate.chain",
    "ssl.keystore.key", "ssl.key.password", "ssl.endpoint.identification.algorithm", "ssl.protocol",
    "ssl.enabled.protocols", "ssl.cipher.suites", "ssl.provider", "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm", "ssl.secure.random.implementation", "ssl.engine.factory.class",
})  # fmt: skip
#: Obeyed by a JVM alone.
_JVM_ONLY: Final = frozenset({
    "security.providers", "sasl.client.callback.handler.class", "sasl.login.class", "ssl.cipher.suites", "ssl.provider",
    "ssl.keymanager.algorithm", "ssl.trustmanager.algorithm", "ssl.secure.random.implementation",
    "ssl.engine.factory.class",
})  # fmt: skip
_PASSED_ON: Final = (
    *("sasl.username", "sasl.password"),
    *("sasl.kerberos.service.name", "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin"),
)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
#: What librdkafka negotiates anyway.
_TLS_VERSIONS: Final = frozenset({"TLS", "TLSv1.2", "TLSv1.3"})
_OAUTH_LOGIN: Final = "OAuthBearerLoginCallbackHandler"

_JAAS: Final = re.compile(
    r"""\s*(?P<module>[\w.$]+)\s+(?:required|requisite|sufficient|optional)\s*(?P<options>(?:[^;"']|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')*);\s*""",
    re.DOTALL | re.IGNORECASE,
)
_JAAS_OPTION: Final = re.compile(r"""([\w.]+)\s*=\s*("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s"']+)\s*""", re.DOTALL)


def security_settings(keys: Mapping[str, str]) -> Values:
    """Return the keys of librdkafka for Java's of ``SECURITY_KEYS``.

    Raises:
        ConfigError: a value that is malformed, that only a JVM can obey, or that contradicts another one.
    """
    unchecked = not keys.get("ssl.endpoint.identification.algorithm", "https").strip()  # "" is Java's word for none
    keys = {name: value.strip() for name, value in keys.items() if value.strip()}
    for name in keys.keys() & _JVM_ONLY:
        raise ConfigError(f"{name} can be obeyed by a JVM alone: leave it out for Tierlog")
    values: Values = {name: keys[name] for name in _PASSED_ON if name in keys}
    protocol = keys.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise ConfigError(f"security.protocol: {protocol!r} is none of {', '.join(_PROTOCOLS)}")
    values["security.protocol"] = protocol.lower()
    if protocol.startswith("SASL"):
        mechanism = keys.get("sasl.mechanism", "GSSAPI")
        values["sasl.mechanism"] = mechanism
        values |= _login(mechanism, keys)
    if protocol.endswith("SSL"):
        values |= _trust(keys) | _own_key(keys) | _tls(keys)
        if unchecked:
            values["ssl.endpoint.identification.algorithm"] = "none"
    return values


def _trust(keys: Mapping[str, str]) -> Values:
    kind = keys.get("ssl.truststore.type", "JKS").upper()
    if "ssl.truststore.certificates" in keys:
        _require_pem("ssl.truststore", kind)
        if "ssl.truststore.location" in keys:
            raise ConfigError("ssl.truststore.certificates and ssl.truststore.location exclude each other")
        return {"ssl.ca.pem": keys["ssl.truststore.certificates"]}
    if "ssl.truststore.location" in keys:
        _require_pem("ssl.truststore", kind)
        return {"ssl.ca.location": keys["ssl.truststore.location"]}
    return {}  # the certificates that the system trusts


def _own_key(keys: Mapping[str, str]) -> Values:
    kind = keys.get("ssl.keystore.type", "JKS").upper()
    password: Values = {"ssl.key.password": keys["ssl.key.password"]} if "ssl.key.password" in keys else {}
    inline = [name for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain") if name in keys]
    location = keys.get("ssl.keystore.location")
    if inline:
        _require_pem("ssl.keystore", kind)
        if len(inline) == 1 or location is not None:
            text = "ssl.keystore.key and ssl.keystore.certificate.chain are given together, without a location"
            raise ConfigError(text)
        chain, key = keys["ssl.keystore.certificate.chain"], keys["ssl.keystore.key"]
        return {"ssl.certificate.pem": chain, "ssl.key.pem": key, **password}
    if location is None:
        return {}
    if kind == "PKCS12":
        return {
            "ssl.keystore.location": location,
            "ssl.keystore.password": keys.get("ssl.keystore.password", ""),
            **password,
        }
    _require_pem("ssl.keystore", kind)
    return {"ssl.certificate.location": location, "ssl.key.location": location, **password}


def _require_pem(store: str, kind: str) -> None:
    if kind != "PEM":
        other = " (or PKCS12)" if store == "ssl.keystore" else ""
        raise ConfigError(
            f"{store}.type is {kind}, which only a JVM can read: export it as PEM (keytool -exportcert -rfc, openssl "
            f"pkcs12 -nodes) and set {store}.type=PEM{other}"
        )


def _tls(keys: Mapping[str, str]) -> Values:
    for name in ("ssl.protocol", "ssl.enabled.protocols"):
        wanted = {part.strip() for part in keys.get(name, "").split(",") if part.strip()}
        if not wanted <= _TLS_VERSIONS:
            raise ConfigError(f"{name}: TLS 1.2 and 1.3 are spoken here, and nothing else")
    algorithm = keys.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none"):
        raise ConfigError("ssl.endpoint.identification.algorithm is https or none")
    return {"ssl.endpoint.identification.algorithm": algorithm}


def _login(mechanism: str, keys: Mapping[str, str]) -> Values:
    module, options = _jaas(keys["sasl.jaas.config"]) if "sasl.jaas.config" in keys else ("", {})
    maker = _LOGINS.get(mechanism.upper())
    if maker is None:
        raise ConfigError(f"sasl.mechanism: {mechanism!r} is none of {', '.join(sorted(_LOGINS))}")
    expected, make = maker
    if module and module.rpartition(".")[2] != expected:
        raise ConfigError(f"sasl.jaas.config: {mechanism} goes with {expected}, not {module}")
    return make(options, keys)


def _by_password(options: Mapping[str, str], keys: Mapping[str, str]) -> Values:
    made: Values = {f"sasl.{name}": options[name] for name in ("username", "password") if name in options}
    for name in ("sasl.username", "sasl.password"):
        if name not in made and name not in keys:
            raise ConfigError(f"sasl.jaas.config: no {name.removeprefix('sasl.')}")
    return made


def _by_ticket(options: Mapping[str, str], keys: Mapping[str, str]) -> Values:
    names = {"keyTab": "sasl.kerberos.keytab", "principal": "sasl.kerberos.principal", "serviceName": ""}
    made: Values = {names[name]: value for name, value in options.items() if names.get(name)}
    if "serviceName" in options and "sasl.kerberos.service.name" not in keys:
        made["sasl.kerberos.service.name"] = options["serviceName"]
    return made


def _by_token(options: Mapping[str, str], keys: Mapping[str, str]) -> Values:
    handler = keys.get("sasl.login.callback.handler.class", _OAUTH_LOGIN)
    url = keys.get("sasl.oauthbearer.token.endpoint.url")
    credentials = "sasl.oauthbearer.client.credentials.client"
    client_id = keys.get(f"{credentials}.id", options.get("clientId"))
    secret = keys.get(f"{credentials}.secret", options.get("clientSecret"))
    if not handler.endswith(_OAUTH_LOGIN) or url is None or client_id is None or secret is None:
        raise ConfigError(
            "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url and a client's id and secret (Kafka's "
            f"{_OAUTH_LOGIN}); another login class can be obeyed by a JVM alone"
        )
    made: Values = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": url,
        "sasl.oauthbearer.client.id": client_id,
        "sasl.oauthbearer.client.secret": secret,
    }
    scope = keys.get("sasl.oauthbearer.scope", options.get("scope"))
    return made | ({"sasl.oauthbearer.scope": scope} if scope else {})


_LOGINS: Final[dict[str, tuple[str, Callable[[Mapping[str, str], Mapping[str, str]], Values]]]] = {
    "PLAIN": ("PlainLoginModule", _by_password),
    "SCRAM-SHA-256": ("ScramLoginModule", _by_password),
    "SCRAM-SHA-512": ("ScramLoginModule", _by_password),
    "GSSAPI": ("Krb5LoginModule", _by_ticket),
    "OAUTHBEARER": ("OAuthBearerLoginModule", _by_token),
}


def _jaas(text: str) -> tuple[str, dict[str, str]]:
    """Login module and options. Raises ConfigError, which does not quote the text: it holds secrets."""
    match = _JAAS.fullmatch(text)
    if match is None:
        raise ConfigError('sasl.jaas.config is malformed: <login module> required username="…" password="…";')
    options: dict[str, str] = {}
    at, body = 0, match["options"].strip()
    while at < len(body):
        option = _JAAS_OPTION.match(body, at)
        if option is None:
            raise ConfigError("sasl.jaas.config: an option is not of the form name=value")
        value = option[2]
        options[option[1]] = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if value[0] in "\"'" else value
        at = option.end()
    return match["module"], options
