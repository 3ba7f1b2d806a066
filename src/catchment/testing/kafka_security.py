"""The guarded ways into a test broker: passwords, certificates, both. Everything is made anew for each broker."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from catchment.errors import SetupError
from catchment.testing.process import HOST, free_port

USER = "alice"
PASSWORD = "a\"b\\c; d='e'#ß"  # whatever quotes and escapes it on its way has to do it right
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class Door:
    """One way in: what a client takes as its brokers, and the settings it needs, in librdkafka's words."""

    bootstrap: str
    settings: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True)
class Guard:
    """The guarded listeners of one broker, and the files of those who use them."""

    home: Path  # ca.pem, client.pem, client.key and the broker's own server.pem
    sasl: int
    ssl: int
    sasl_ssl: int

    @classmethod
    def made(cls, home: Path) -> Guard:
        """Ports that are free now, and certificates by an authority that signs nothing else. SetupError without it."""
        _certificates(home)
        return cls(home, free_port(), free_port(), free_port())

    def doors(self) -> dict[str, Door]:
        """By name: plain and scram (no encryption), ssl (with a certificate of the client's), sasl_ssl (SCRAM)."""
        login = {"sasl.username": USER, "sasl.password": PASSWORD}
        scram = {"sasl.mechanism": "SCRAM-SHA-512", **login}
        trust = {"ssl.ca.location": str(self.home / "ca.pem")}
        own = {
            "ssl.certificate.location": str(self.home / "client.pem"),
            "ssl.key.location": str(self.home / "client.key"),
        }
        sasl, ssl, both = (f"{HOST}:{port}" for port in (self.sasl, self.ssl, self.sasl_ssl))
        return {
            "plain": Door(sasl, {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **login}),
            "scram": Door(sasl, {"security.protocol": "SASL_PLAINTEXT", **scram}),
            "ssl": Door(ssl, {"security.protocol": "SSL", **trust, **own}),
            "sasl_ssl": Door(both, {"security.protocol": "SASL_SSL", **scram, **trust}),
        }

    def properties(self, plain: int, controller: int) -> dict[str, str]:
        """What the broker needs for it, its open listeners included, ready for a properties file."""
        ports = {"PLAINTEXT": plain, "SASL_PLAINTEXT": self.sasl, "SSL": self.ssl, "SASL_SSL": self.sasl_ssl}
        listeners = ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())
        users = f"user_{USER}={_quoted(PASSWORD)}"
        found = {
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in ports) + ",CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.home / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.home / "ca.pem"),
            "listener.name.ssl.ssl.client.auth": "required",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            found[f"listener.name.{listener}.plain.sasl.jaas.config"] = f"{_PLAIN} required {users};"
            found[f"listener.name.{listener}.scram-sha-512.sasl.jaas.config"] = f"{_SCRAM} required;"
        return {name: _in_properties(value) for name, value in found.items()}


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _in_properties(value: str) -> str:
    """Java reads these files as Latin-1, and a backslash as the start of an escape."""
    return "".join(char if char.isascii() else f"\\u{ord(char):04x}" for char in value.replace("\\", "\\\\"))


def _certificates(home: Path) -> None:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError:
        raise SetupError("certificates need cryptography", hint="run: pip install 'catchment[testing]'") from None

    now = datetime.datetime.now(datetime.UTC)

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
        return key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    authority = ec.generate_private_key(ec.SECP256R1())

    def signed(name: str, key: ec.EllipticCurvePrivateKey, *, ca: bool = False) -> bytes:
        hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")])
        made = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("catchment test authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(hosts, critical=False)
            .sign(authority, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    server, client = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    home.mkdir(parents=True, exist_ok=True)
    (home / "ca.pem").write_bytes(signed("catchment test authority", authority, ca=True))
    (home / "server.pem").write_bytes(pem(server) + signed(HOST, server))
    (home / "client.pem").write_bytes(signed(USER, client))
    (home / "client.key").write_bytes(pem(client))
