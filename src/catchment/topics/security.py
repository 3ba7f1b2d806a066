"""One set of client settings for two clients: librdkafka asks the cluster, Java's client reads the messages.

The user writes settings once, under `kafka:`, in the words of either client. Each client gets what it needs:

- **Its own words win.** Where a matter is settled in a client's own words (`ssl.ca.location` for librdkafka,
  `ssl.truststore.location` for Java), it gets exactly those, and the other one's are not looked at.
- **Otherwise they are translated**: the mechanism, name and password (PLAIN and SCRAM), certificates and keys in PEM,
  the check of the broker's name. PEM files are read here and handed on as text, so executors need no files. A Java
  store by its location (JKS; for trust also PKCS12) cannot be translated: that is an error that says what to add.
- **What only one of them knows goes to that one**: the lists below. How messages are fetched in bulk is Java's matter.
- **Any other name goes to both.** Java's client ignores what it does not know; librdkafka refuses it by name, so a
  misspelled setting shows at the start.
- What Catchment sets by itself is taken out: where to begin, what to see, which group.

OAUTHBEARER and GSSAPI: settings with the same name in both reach both; the rest is written once in each one's words.
Nothing here reads a file by itself, and no value but a file's path is in any error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from catchment.errors import UsageError
from catchment.topics import jaas

OWN = frozenset(
    {
        *("bootstrap.servers", "group.id", "group.instance.id", "isolation.level", "auto.offset.reset"),
        *("enable.auto.commit", "auto.commit.interval.ms", "enable.auto.offset.store", "enable.partition.eof"),
        *("allow.auto.create.topics", "key.deserializer", "value.deserializer", "interceptor.classes"),
    }
)
# Java's names that librdkafka does not take, or that only matter to who reads in bulk.
JAVA_ONLY = frozenset(
    {
        *("default.api.timeout.ms", "request.timeout.ms", "metadata.max.idle.ms", "exclude.internal.topics"),
        *("fetch.max.bytes", "fetch.min.bytes", "fetch.max.wait.ms", "max.partition.fetch.bytes", "check.crcs"),
        *("max.poll.records", "max.poll.interval.ms", "session.timeout.ms", "heartbeat.interval.ms"),
        *("partition.assignment.strategy", "receive.buffer.bytes", "send.buffer.bytes"),
        *("socket.connection.setup.timeout.max.ms", "config.providers", "security.providers"),
        *("metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class"),
        *("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds"),
        *("sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor"),
        *("sasl.login.refresh.window.jitter", "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms"),
        *("sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor"),
        *("sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience"),
        *("sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.header.urlencode"),
        *("sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        *("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url"),
        *("sasl.oauthbearer.jwt.retriever.class", "sasl.oauthbearer.jwt.validator.class"),
        *("sasl.oauthbearer.scope.claim.name"),
        *("ssl.enabled.protocols", "ssl.engine.factory.class", "ssl.keymanager.algorithm", "ssl.protocol"),
        *("ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm"),
    }
)
# librdkafka's names that Java's client would ignore with a warning. Whatever else begins like this is librdkafka's too.
LIBRDKAFKA_ONLY = re.compile(
    r"(api\.version\.|broker\.|debug$|log|statistics\.|queued\.|topic\.|message\.|receive\.message\.|max\.in\.flight"
    r"|socket\.(timeout|blocking|send|receive|keepalive|nagle|max)|enable\.(ssl|sasl|random|sparse|gapless)\.?"
    r"|fetch\.(error|queue)\.|consume\.|offset\.store\.|plugin\.|resolve_cb|open_cb|builtin\."
    r"|ssl\.(ca|certificate|crl|curves|sigalgs|engine\.location|engine\.id|providers)\b|ssl\.key\.(location|pem)$"
    r"|sasl\.(username|password|mechanisms)$|sasl\.kerberos\.(keytab|principal)$"
    r"|sasl\.oauthbearer\.(method|config|client\.(id|secret)|extensions|metadata\.)|https\.ca\.)"
)
# The same thing under two names: librdkafka's, Java's. Only for reading, so only Java gets it.
_RENAMED = {"fetch.wait.max.ms": "fetch.max.wait.ms", "fetch.message.max.bytes": "max.partition.fetch.bytes"}
# What is translated below, in either one's words.
_PROTOCOL = ("security.protocol", "sasl.mechanism", "sasl.mechanisms")
_LOGIN = ("sasl.username", "sasl.password")
_JAAS = "sasl.jaas.config"
_CA = ("ssl.ca.location", "ssl.ca.pem", "ssl.ca.certificate.stores")
_TRUST = ("ssl.truststore.location", "ssl.truststore.certificates")
_TRUST_ALL = (*_TRUST, "ssl.truststore.type", "ssl.truststore.password")
_PAIR = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem")
_STORE = ("ssl.keystore.location", "ssl.keystore.key", "ssl.keystore.certificate.chain")
_STORE_ALL = (*_STORE, "ssl.keystore.type", "ssl.keystore.password", "ssl.key.password")
_NAMES_CHECK = "ssl.endpoint.identification.algorithm"
_CIPHERS = "ssl.cipher.suites"
_VERIFY = "enable.ssl.certificate.verification"
_TRANSLATED = frozenset(
    {*_PROTOCOL, *_LOGIN, _JAAS, *_CA, *_TRUST_ALL, *_PAIR, *_STORE_ALL, _NAMES_CHECK, _CIPHERS, *_RENAMED}
)
_KEY = re.compile(r"-+BEGIN [^-]*PRIVATE KEY-+.*?-+END [^-]*PRIVATE KEY-+", re.DOTALL)
_CERTIFICATE = re.compile(r"-+BEGIN [^-]*CERTIFICATE-+.*?-+END [^-]*CERTIFICATE-+", re.DOTALL)

Settings = Mapping[str, str]
Read = Callable[[str], str]


def for_librdkafka(settings: Settings) -> dict[str, str]:
    """What librdkafka gets of the user's settings. UsageError, by the setting's name, for what it cannot be given."""
    found = {name: settings[name] for name in settings if name not in OWN | JAVA_ONLY | _TRANSLATED}
    if protocol := settings.get("security.protocol"):
        found["security.protocol"] = protocol
    if mechanism := settings.get("sasl.mechanisms") or settings.get("sasl.mechanism"):
        found["sasl.mechanisms"] = mechanism
    found |= _login(settings, mechanism)
    found |= _own(settings, _CA) or _trusted_pem(settings)
    found |= _own(settings, (*_PAIR, "ssl.key.password") if _own(settings, _PAIR) else ()) or _identity_pem(settings)
    if _NAMES_CHECK in settings:
        found[_NAMES_CHECK] = settings[_NAMES_CHECK] or "none"
    if _CIPHERS in settings and not _java_ciphers(settings):
        found[_CIPHERS] = settings[_CIPHERS]
    return found


def for_java(settings: Settings, read: Read) -> dict[str, str]:
    """What Java's client gets of the user's settings, without Spark's prefix. `read` gives the text of a file.

    UsageError, by the setting's name, for what it cannot be given, and for a file that cannot be read.
    """
    found = {
        name: value
        for name, value in settings.items()
        if name not in OWN | _TRANSLATED and (name in JAVA_ONLY or not LIBRDKAFKA_ONLY.match(name))
    }
    found |= {java: settings[name] for name, java in _RENAMED.items() if name in settings and java not in settings}
    if protocol := settings.get("security.protocol"):
        found["security.protocol"] = protocol.upper()
    if mechanism := settings.get("sasl.mechanism") or settings.get("sasl.mechanisms"):
        found["sasl.mechanism"] = mechanism
    found |= _own(settings, (_JAAS,)) or _jaas(settings, mechanism)
    found |= _trust(settings, read)
    found |= _identity(settings, read)
    if _NAMES_CHECK in settings:
        found[_NAMES_CHECK] = "" if settings[_NAMES_CHECK].lower() == "none" else settings[_NAMES_CHECK]
    if _CIPHERS in settings and _java_ciphers(settings):
        found[_CIPHERS] = settings[_CIPHERS]
    return found


def _own(settings: Settings, names: tuple[str, ...]) -> dict[str, str]:
    return {name: settings[name] for name in names if name in settings}


def _java_ciphers(settings: Settings) -> bool:
    """The two spell ciphers differently: TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 is ECDHE-RSA-AES256-GCM-SHA384."""
    return settings[_CIPHERS].startswith(("TLS_", "SSL_"))


# Name and password


def _login(settings: Settings, mechanism: str | None) -> dict[str, str]:
    if own := _own(settings, _LOGIN):
        return own
    if _JAAS not in settings or mechanism not in jaas.MECHANISMS:
        return {}
    try:
        held = jaas.options(settings[_JAAS])
        if held.get("tokenauth", "false").lower() == "true":
            raise ValueError("it logs in with a delegation token, which librdkafka cannot")
        return {"sasl.username": held["username"], "sasl.password": held["password"]}
    except KeyError as error:
        why = f"it has no {error.args[0]}"
    except ValueError as error:
        why = str(error)
    raise UsageError(
        f"{_JAAS} holds no name and password for {mechanism} ({why})",
        hint="write sasl.username and sasl.password under 'kafka:' instead; both clients then get them",
    )


def _jaas(settings: Settings, mechanism: str | None) -> dict[str, str]:
    if not all(name in settings for name in _LOGIN) or (mechanism and mechanism not in jaas.MECHANISMS):
        return {}
    if mechanism is None:
        raise UsageError(
            "sasl.username and sasl.password are given without sasl.mechanism",
            hint=f"add sasl.mechanism under 'kafka:': {', '.join(jaas.MECHANISMS)}",
        )
    return {_JAAS: jaas.jaas(mechanism, settings["sasl.username"], settings["sasl.password"])}


# Whom to trust


def _trusted_pem(settings: Settings) -> dict[str, str]:
    if "ssl.truststore.certificates" in settings:
        return {"ssl.ca.pem": settings["ssl.truststore.certificates"]}
    if "ssl.truststore.location" not in settings:
        return {}
    if settings.get("ssl.truststore.type", "").upper() != "PEM":
        raise UsageError(
            "ssl.truststore.location names a store that only Java can read",
            hint="add ssl.ca.location under 'kafka:', a file with the same certificates as PEM"
            " (keytool -exportcert -rfc writes one)",
        )
    return {"ssl.ca.location": settings["ssl.truststore.location"]}


def _trust(settings: Settings, read: Read) -> dict[str, str]:
    if _own(settings, _TRUST):
        if settings.get("ssl.truststore.type", "").upper() != "PEM" or "ssl.truststore.certificates" in settings:
            return _own(settings, _TRUST_ALL)
        return _pem_trust(_text(settings, "ssl.truststore.location", read), "ssl.truststore.location")
    if "ssl.ca.pem" in settings:
        return _pem_trust(settings["ssl.ca.pem"], "ssl.ca.pem")
    if settings.get("ssl.ca.location", "probe") != "probe":
        return _pem_trust(_text(settings, "ssl.ca.location", read), "ssl.ca.location")
    if settings.get(_VERIFY, "true").lower() == "false":
        raise UsageError(
            f"{_VERIFY}: Java's client, which reads the messages, always checks certificates",
            hint="add ssl.ca.location under 'kafka:', a PEM file with the certificate that signed the broker's",
        )
    return {}  # what the machine trusts


def _pem_trust(pem: str, name: str) -> dict[str, str]:
    return {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "\n".join(_blocks(_CERTIFICATE, pem, name, "certificate")),
    }


# Who we are


def _identity_pem(settings: Settings) -> dict[str, str]:
    kind = settings.get("ssl.keystore.type", "").upper()
    password = _own(settings, ("ssl.key.password",))
    if "ssl.keystore.key" in settings:
        names = {"ssl.keystore.key": "ssl.key.pem", "ssl.keystore.certificate.chain": "ssl.certificate.pem"}
        return {names[name]: value for name, value in settings.items() if name in names} | password
    if "ssl.keystore.location" not in settings:
        return {}
    location = settings["ssl.keystore.location"]
    if kind == "PEM":
        return {"ssl.certificate.location": location, "ssl.key.location": location} | password
    if kind == "JKS" or (not kind and location.lower().endswith(".jks")):
        raise UsageError(
            "ssl.keystore.location names a store that only Java can read",
            hint="add ssl.certificate.location and ssl.key.location under 'kafka:', the same two as PEM",
        )
    return _own(settings, ("ssl.keystore.location", "ssl.keystore.password"))  # PKCS12, which both can read


def _identity(settings: Settings, read: Read) -> dict[str, str]:
    if _own(settings, _STORE):
        if settings.get("ssl.keystore.type", "").upper() != "PEM" or "ssl.keystore.location" not in settings:
            return _own(settings, _STORE_ALL)
        name = "ssl.keystore.location"
        text = _text(settings, name, read)
        return _pem_identity(settings, (text, name), (text, name))
    if not _own(settings, _PAIR):
        return {}
    held = []
    for what in ("ssl.certificate", "ssl.key"):
        if f"{what}.pem" in settings:
            held.append((settings[f"{what}.pem"], f"{what}.pem"))
        elif f"{what}.location" in settings:
            held.append((_text(settings, f"{what}.location", read), f"{what}.location"))
        else:
            raise UsageError(
                "a certificate of our own needs its key, and a key its certificate",
                hint=f"add {what}.location under 'kafka:'",
            )
    return _pem_identity(settings, *held)


def _pem_identity(settings: Settings, chain: tuple[str, str], key: tuple[str, str]) -> dict[str, str]:
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "\n".join(_blocks(_CERTIFICATE, *chain, "certificate")),
        "ssl.keystore.key": _blocks(_KEY, *key, "private key")[0],
    }
    kind = found["ssl.keystore.key"].split("-----")[1].removeprefix("BEGIN ")
    if kind not in ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"):
        raise UsageError(
            f"{key[1]}: Java cannot read a key of the form '{kind}'",
            hint="convert it: openssl pkcs8 -topk8 -in KEY -out NEW (with -nocrypt for a key without a password)",
        )
    if kind.startswith("ENCRYPTED") and "ssl.key.password" in settings:  # Java fails on a password that is not needed
        found["ssl.key.password"] = settings["ssl.key.password"]
    return found


def _blocks(pattern: re.Pattern[str], pem: str, name: str, what: str) -> list[str]:
    if not (found := pattern.findall(pem)):
        raise UsageError(f"{name} holds no {what} in PEM", hint=f"PEM begins with -----BEGIN {what.upper()}-----")
    return found


def _text(settings: Settings, name: str, read: Read) -> str:
    path = settings[name]
    try:
        return read(path)
    except OSError as error:
        why = error.strerror or type(error).__name__
    except UnicodeDecodeError:
        why = "it is not text, so it is not PEM"
    raise UsageError(
        f"{name}: {path} cannot be read ({why})",
        hint="correct it under 'kafka:' in the config; it is a file on the machine that runs Catchment",
    )
