"""One set of settings, written in either client's words, for both of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catchment.errors import UsageError
from catchment.topics import jaas
from catchment.topics.security import JAVA_ONLY, LIBRDKAFKA_ONLY, OWN, for_java, for_librdkafka

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
OTHER = "-----BEGIN CERTIFICATE-----\nBBBB\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nCCCC\n-----END PRIVATE KEY-----"
LOCKED = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nDDDD\n-----END ENCRYPTED PRIVATE KEY-----"
FILES = {
    "/ca.pem": f"subject=somebody\n{CERTIFICATE}\n\n{OTHER}\n",
    "/client.pem": f"{CERTIFICATE}\n{OTHER}\n",
    "/client.key": f"{KEY}\n",
    "/locked.key": LOCKED,
    "/both.pem": f"{KEY}\n{CERTIFICATE}\n",
    "/old.key": "-----BEGIN RSA PRIVATE KEY-----\nEEEE\n-----END RSA PRIVATE KEY-----",
    "/empty.pem": "",
}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def read(path: str) -> str:
    if path == "/binary.jks":
        return b"\xfe\xed\xfe\xed".decode()
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory", path)
    return FILES[path]


def java(settings: Mapping[str, str]) -> dict[str, str]:
    return for_java(settings, read)


def no_file(path: str) -> str:
    raise AssertionError(f"{path} was read")


# Logins


@pytest.mark.parametrize("mechanism, module", [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_name_and_password_reach_both(mechanism: str, module: str, name: str) -> None:
    settings = {
        "security.protocol": "sasl_plaintext",
        name: mechanism,
        "sasl.username": "alice",
        "sasl.password": 'a"b\\c',
    }
    assert java(settings) == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="alice" password="a\\"b\\\\c";',
    }
    assert for_librdkafka(settings) == {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": mechanism,
        "sasl.username": "alice",
        "sasl.password": 'a"b\\c',
    }


@pytest.mark.parametrize(
    "line",
    [
        f'{PLAIN} required username="alice" password="a\\"b\\\\c";',
        f"{PLAIN} REQUIRED\n  username=alice // who\n  password='a\"b\\\\c'  /* what */ ;\n",
        f'{PLAIN} required serviceName="x=y;z" password="a\\42b\\134c" username = "al\\151ce" ;',
    ],
)
def test_a_jaas_line_reaches_both(line: str) -> None:
    settings = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": line}
    assert java(settings) == settings
    assert for_librdkafka(settings) == {
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": 'a"b\\c',
    }


@given(st.text(), st.text(), st.sampled_from(jaas.MECHANISMS))
def test_any_name_and_password_survive_the_line(username: str, password: str, mechanism: str) -> None:
    line = jaas.jaas(mechanism, username, password)
    assert "\n" not in line and "\r" not in line  # a line break ends a text in quotes
    assert jaas.options(line) == {"username": username, "password": password}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hunter2",
        f"{PLAIN} required",
        f'{PLAIN} required username="alice" password="hunter2"',  # no semicolon
        f'{PLAIN} required username="alice" password="hunter2',
        f'{PLAIN} required username="alice" password;',
        f'{PLAIN} required username="alice";',
        f'{PLAIN} maybe username="alice" password="hunter2";',
        f'{PLAIN} required username="alice" password="hunter2"; {PLAIN} required username="b" password="hunter2";',
        f'{SCRAM} required username="alice" password="hunter2" tokenauth="true";',
    ],
)
def test_a_jaas_line_that_cannot_be_understood_is_an_error_that_does_not_show_it(line: str) -> None:
    with pytest.raises(UsageError, match=r"sasl\.jaas\.config .*sasl\.username and sasl\.password") as caught:
        for_librdkafka({"sasl.mechanism": "PLAIN", "sasl.jaas.config": line})
    assert "hunter2" not in str(caught.value)


def test_each_takes_its_own_login_when_both_are_given() -> None:
    settings = {
        "sasl.mechanism": "AWS_MSK_IAM",
        "sasl.mechanisms": "OAUTHBEARER",
        "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
        "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.secret": "hunter2",
    }
    assert java(settings) == {
        name: settings[name] for name in ("sasl.mechanism", "sasl.jaas.config", "sasl.client.callback.handler.class")
    }
    assert for_librdkafka(settings) == {
        name: settings[name]
        for name in ("sasl.mechanisms", "sasl.oauthbearer.method", "sasl.oauthbearer.client.secret")
    }


def test_kerberos_and_tokens_pass_where_the_names_agree() -> None:
    settings = {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
        "sasl.oauthbearer.scope": "read",
    }
    assert java(settings) == settings
    assert for_librdkafka(settings) == {
        "sasl.mechanisms": "GSSAPI",
        **{name: settings[name] for name in settings if name != "sasl.mechanism"},
    }


def test_a_login_needs_its_mechanism() -> None:
    with pytest.raises(UsageError, match=r"without sasl\.mechanism.*PLAIN, SCRAM-SHA-256") as caught:
        java({"sasl.username": "alice", "sasl.password": "hunter2"})
    assert "hunter2" not in str(caught.value)


# Whom to trust


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.ca.location": "/ca.pem"},
        {"ssl.ca.pem": FILES["/ca.pem"]},
        {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"},
        {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": f"{CERTIFICATE}\n{OTHER}"},
    ],
)
def test_java_gets_trusted_certificates_as_text(settings: dict[str, str]) -> None:
    assert java(settings) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": f"{CERTIFICATE}\n{OTHER}",
    }


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"ssl.ca.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        ({"ssl.ca.pem": CERTIFICATE}, {"ssl.ca.pem": CERTIFICATE}),
        ({"ssl.truststore.type": "pem", "ssl.truststore.location": "/ca.pem"}, {"ssl.ca.location": "/ca.pem"}),
        ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": CERTIFICATE}, {"ssl.ca.pem": CERTIFICATE}),
        ({}, {}),
    ],
)
def test_librdkafka_gets_trusted_certificates_in_its_words(settings: dict[str, str], expected: dict[str, str]) -> None:
    assert for_librdkafka(settings) == expected


@pytest.mark.parametrize("kind", [{}, {"ssl.truststore.type": "JKS"}, {"ssl.truststore.type": "PKCS12"}])
def test_a_java_trust_store_needs_pem_beside_it(kind: dict[str, str]) -> None:
    store = {"ssl.truststore.location": "/trust.jks", "ssl.truststore.password": "hunter2", **kind}
    with pytest.raises(UsageError, match=r"ssl\.truststore\.location .*add ssl\.ca\.location") as caught:
        for_librdkafka(store)
    assert "hunter2" not in str(caught.value)
    both = {**store, "ssl.ca.location": "/ca.pem"}
    assert for_librdkafka(both) == {"ssl.ca.location": "/ca.pem"}
    assert for_java(both, no_file) == store


def test_what_the_machine_trusts_needs_no_file() -> None:
    assert for_java({"security.protocol": "SSL", "ssl.ca.location": "probe"}, no_file) == {"security.protocol": "SSL"}


def test_java_cannot_be_told_to_trust_everybody() -> None:
    careless = {"enable.ssl.certificate.verification": "false"}
    with pytest.raises(UsageError, match=r"enable\.ssl\.certificate\.verification.*add ssl\.ca\.location"):
        java(careless)
    assert for_librdkafka(careless) == careless
    assert "ssl.truststore.certificates" in java({**careless, "ssl.ca.location": "/ca.pem"})
    assert java({"enable.ssl.certificate.verification": "true"}) == {}


@pytest.mark.parametrize("said, rdkafka, jvm", [("none", "none", ""), ("", "none", ""), ("https", "https", "https")])
def test_the_check_of_the_broker_s_name_is_said_differently(said: str, rdkafka: str, jvm: str) -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert for_librdkafka({name: said}) == {name: rdkafka}
    assert java({name: said}) == {name: jvm}


# Who we are


@pytest.mark.parametrize(
    "settings",
    [
        {"ssl.certificate.location": "/client.pem", "ssl.key.location": "/client.key"},
        {"ssl.certificate.pem": FILES["/client.pem"], "ssl.key.pem": KEY},
        {"ssl.certificate.location": "/client.pem", "ssl.key.pem": KEY, "ssl.key.password": "not needed"},
    ],
)
def test_java_gets_a_certificate_and_its_key_as_text(settings: dict[str, str]) -> None:
    assert java(settings) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": f"{CERTIFICATE}\n{OTHER}",
        "ssl.keystore.key": KEY,
    }
    assert for_librdkafka(settings) == settings


def test_the_password_of_a_key_goes_with_it() -> None:
    settings = {
        "ssl.certificate.location": "/client.pem",
        "ssl.key.location": "/locked.key",
        "ssl.key.password": "hunter2",
    }
    found = java(settings)
    assert (found["ssl.keystore.key"], found["ssl.key.password"]) == (LOCKED, "hunter2")
    assert for_librdkafka(settings) == settings


def test_a_pem_key_store_reaches_both() -> None:
    by_file = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/both.pem"}
    assert for_librdkafka(by_file) == {"ssl.certificate.location": "/both.pem", "ssl.key.location": "/both.pem"}
    inline = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": CERTIFICATE, "ssl.keystore.key": KEY}
    assert java(by_file) == inline
    assert for_java(inline, no_file) == inline
    assert for_librdkafka(inline) == {"ssl.certificate.pem": CERTIFICATE, "ssl.key.pem": KEY}


@pytest.mark.parametrize("more", [{"ssl.keystore.type": "PKCS12"}, {}])
def test_a_pkcs12_key_store_is_read_by_both(more: dict[str, str]) -> None:
    store = {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "hunter2"}
    assert for_librdkafka(store | more) == store
    assert for_java(store | more, no_file) == store | more


@pytest.mark.parametrize("store", [{"ssl.keystore.location": "/me.jks"}, {"ssl.keystore.type": "JKS"}])
def test_a_java_key_store_needs_pem_beside_it(store: dict[str, str]) -> None:
    store = {"ssl.keystore.location": "/me", "ssl.keystore.password": "hunter2", **store}
    with pytest.raises(UsageError, match=r"ssl\.keystore\.location .*ssl\.certificate\.location") as caught:
        for_librdkafka(store)
    assert "hunter2" not in str(caught.value)
    pair = {"ssl.certificate.location": "/client.pem", "ssl.key.location": "/client.key"}
    assert for_librdkafka(store | pair) == pair
    assert for_java(store | pair, no_file) == store


def test_a_key_that_java_cannot_read_is_named_with_the_command_that_converts_it() -> None:
    with pytest.raises(UsageError, match=r"ssl\.key\.location: .*RSA PRIVATE KEY.*openssl pkcs8"):
        java({"ssl.certificate.location": "/client.pem", "ssl.key.location": "/old.key"})


@pytest.mark.parametrize("one, other", [("ssl.key", "ssl.certificate"), ("ssl.certificate", "ssl.key")])
def test_a_certificate_needs_its_key_and_a_key_its_certificate(one: str, other: str) -> None:
    with pytest.raises(UsageError, match=rf"add {other}\.location"):
        java({f"{one}.location": "/both.pem"})


@pytest.mark.parametrize(
    "settings, expected",
    [
        ({"ssl.ca.location": "/gone.pem"}, r"ssl\.ca\.location: /gone\.pem cannot be read \(No such file"),
        ({"ssl.ca.location": "/binary.jks"}, r"ssl\.ca\.location: /binary\.jks cannot be read \(it is not text"),
        ({"ssl.ca.location": "/empty.pem"}, r"ssl\.ca\.location holds no certificate"),
        (
            {"ssl.certificate.location": "/client.pem", "ssl.key.location": "/client.pem"},
            r"ssl\.key\.location holds no private key",
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/gone.pem"},
            r"ssl\.keystore\.location: /gone\.pem cannot be read",
        ),
    ],
)
def test_a_file_that_is_missing_or_wrong_is_named_with_its_setting(settings: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        java(settings)


# Everything else


def test_what_catchment_sets_by_itself_reaches_nobody() -> None:
    settings = {name: "x" for name in OWN}
    assert (java(settings), for_librdkafka(settings)) == ({}, {})
    assert {"isolation.level", "auto.offset.reset", "group.id", "enable.auto.commit"} <= OWN


def test_what_only_one_knows_goes_to_that_one_and_the_rest_to_both() -> None:
    both = {"client.id": "c", "client.rack": "r", "metadata.max.age.ms": "1", "no.such.setting": "x"}
    only_java = {"request.timeout.ms": "1", "max.poll.records": "2", "fetch.max.bytes": "3"}
    only_c = {"socket.timeout.ms": "1", "statistics.interval.ms": "2", "socket.keepalive.enable": "true"}
    settings = both | only_java | only_c
    assert java(settings) == both | only_java
    assert for_librdkafka(settings) == both | only_c


def test_reading_in_bulk_is_java_s_matter_in_whatever_words() -> None:
    settings = {"fetch.message.max.bytes": "16000000", "fetch.wait.max.ms": "10"}
    assert java(settings) == {"max.partition.fetch.bytes": "16000000", "fetch.max.wait.ms": "10"}
    assert for_librdkafka(settings) == {}
    assert java({**settings, "fetch.max.wait.ms": "7"})["fetch.max.wait.ms"] == "7"


@pytest.mark.parametrize(
    "ciphers, mine", [("TLS_AES_256_GCM_SHA384", java), ("ECDHE-RSA-AES256-GCM-SHA384", for_librdkafka)]
)
def test_ciphers_go_to_the_one_whose_names_they_are(ciphers: str, mine: object) -> None:
    found = [make({"ssl.cipher.suites": ciphers}) for make in (java, for_librdkafka)]
    assert sorted(map(len, found)) == [0, 1]
    assert found[mine is for_librdkafka] == {"ssl.cipher.suites": ciphers}


def test_the_lists_are_true_of_librdkafka() -> None:
    """What is kept from it as unknown is unknown to it, save for how messages are read in bulk."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    bulk = {
        *("fetch.max.bytes", "fetch.min.bytes", "max.partition.fetch.bytes", "check.crcs", "max.poll.interval.ms"),
        *("max.poll.records", "session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"),
        "request.timeout.ms",
    }
    for name in JAVA_ONLY - bulk:
        assert not LIBRDKAFKA_ONLY.match(name), name
        with pytest.raises(KafkaException, match="No such configuration property"):
            AdminClient({name: "1", "log_level": 0})
