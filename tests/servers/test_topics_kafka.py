"""What Catchment asks of Kafka, asked of a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from catchment.errors import BrokerError, SetupError
from catchment.testing.kafka import COMPACTED, KafkaBroker, Message, kafka_broker
from catchment.testing.kafka_messages import wait
from catchment.testing.kafka_security import PASSWORD
from catchment.topics.kafka import Cluster, Ends, Peek
from catchment.topics.work import Reading


@pytest.fixture
def cluster(kafka: KafkaBroker) -> Iterator[Cluster]:
    found = Cluster(kafka.bootstrap, {}, timeout=20)
    yield found
    found.close()


@pytest.fixture(scope="module")
def secure() -> Iterator[KafkaBroker]:
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "true",
    }
    with kafka_broker(security=True, properties=rights) as broker:
        yield broker


def offsets(found: list[Peek]) -> list[int]:
    return [one.offset for one in found]


# Topics


def test_topics_are_those_wanted_with_their_kafka_partitions(kafka: KafkaBroker, cluster: Cluster) -> None:
    one, many, other = kafka.fresh_topic(), kafka.fresh_topic(partitions=3), kafka.fresh_topic()
    found = cluster.topics({one, many}.__contains__)
    assert {name: info.partitions for name, info in found.items()} == {one: (0,), many: (0, 1, 2)}
    assert [info.name for info in found.values()] == list(found)
    assert len({info.id for info in found.values()}) == 2
    assert other in cluster.topics(lambda _: True)
    kafka.add_partitions(one, 4)
    assert cluster.topics({one}.__contains__)[one].partitions == (0, 1, 2, 3)
    assert cluster.topics(lambda _: False) == {}


def test_topics_of_kafka_itself_are_never_there(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    commit(kafka, topic, 0, 0)  # makes __consumer_offsets
    assert "__consumer_offsets" in kafka.admin().list_topics(timeout=20).topics
    assert not [name for name in cluster.topics(lambda _: True) if name.startswith("__")]


def test_a_topic_made_again_has_another_id(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    first = cluster.topics({topic}.__contains__)[topic]
    assert cluster.topics({topic}.__contains__)[topic] == first
    kafka.delete_topic(topic)
    assert cluster.topics({topic}.__contains__) == {}
    kafka.create_topic(topic)
    assert cluster.topics({topic}.__contains__)[topic].id != first.id


def test_an_id_is_written_as_kafka_s_tools_write_it(kafka: KafkaBroker, cluster: Cluster) -> None:
    for topic in [kafka.fresh_topic() for _ in range(20)]:  # one in two has a sign in it that is written in two ways
        noted = (kafka.home / "data" / f"{topic}-0" / "partition.metadata").read_text()
        assert f"topic_id: {cluster.topics({topic}.__contains__)[topic].id}\n" in noted + "\n"


def test_a_topic_that_vanishes_between_the_two_questions_is_left_out(kafka: KafkaBroker, cluster: Cluster) -> None:
    stays, goes = kafka.fresh_topic(), kafka.fresh_topic()

    def wanted(name: str) -> bool:
        if name == goes:
            kafka.delete_topic(goes)
        return name in (stays, goes)

    assert list(cluster.topics(wanted)) == [stays]


# Ends


def test_ends_move_with_what_is_produced_and_what_retention_takes(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic(partitions=2)
    assert cluster.ends([(topic, 0), (topic, 1)]) == {(topic, 0): Ends(0, 0), (topic, 1): Ends(0, 0)}
    kafka.produce(topic, [b"a", b"b", b"c"], partition=1)
    assert cluster.ends([(topic, 1)]) == {(topic, 1): Ends(0, 3)}
    kafka.delete_records(topic, 1, before=2)
    assert cluster.ends([(topic, 1)]) == {(topic, 1): Ends(2, 3)}
    assert cluster.ends([]) == {}


def test_the_end_stops_before_an_open_transaction(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"before"], partition=0)
    with kafka.transaction() as first:
        first.produce(topic, [b"a", b"b"])
        kafka.produce(topic, [b"behind"], partition=0)
        assert cluster.ends([(topic, 0)]) == {(topic, 0): Ends(0, 1)}
        assert kafka.end(topic, committed=False) == 4
        first.abort()
    assert cluster.ends([(topic, 0)]) == {(topic, 0): Ends(0, 5)}  # and the mark of the transaction's end
    with kafka.transaction() as second:
        second.produce(topic, [b"c"])
        assert cluster.ends([(topic, 0)]) == {(topic, 0): Ends(0, 5)}
    assert cluster.ends([(topic, 0)]) == {(topic, 0): Ends(0, 7)}


def test_what_is_gone_is_left_out_and_the_rest_is_told(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic, gone = kafka.fresh_topic(), kafka.fresh_topic()
    cluster.ends([(gone, 0)])
    kafka.delete_topic(gone)
    assert cluster.ends([(topic, 0), (gone, 0), (topic, 7), ("never-made", 0)]) == {(topic, 0): Ends(0, 0)}
    assert cluster.ends([(gone, 0)]) == {}
    assert cluster.offsets_at([(gone, 0)], datetime.now(UTC)) == {}
    assert cluster.group_offsets("some", [(gone, 0)]) == {}
    assert cluster.peek((gone, 0), 0) == []


def test_a_topic_made_again_is_found_though_it_was_gone_a_moment_ago(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    kafka.delete_topic(topic)
    assert cluster.ends([(topic, 0)]) == {}
    kafka.create_topic(topic)
    assert cluster.ends([(topic, 0)]) == {(topic, 0): Ends(0, 0)}


def test_two_hundred_kafka_partitions_are_one_question(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic(partitions=200)
    kafka.produce(topic, [b"x"], partition=123)
    found = cluster.ends([(topic, number) for number in range(200)])
    assert found == {(topic, number): Ends(0, 1 if number == 123 else 0) for number in range(200)}


def test_a_kafka_partition_without_a_leader_is_listed_and_cannot_be_asked() -> None:
    with kafka_broker() as broker, broker.joined() as other:
        cluster = Cluster(broker.bootstrap, {}, timeout=20)
        topic = NewTopic("halved", num_partitions=2, replica_assignment=[[1], [2]])
        admin = broker.admin()
        admin.create_topics([topic])["halved"].result(30)
        wait(lambda: len(cluster.topics(lambda _: True)) == 1, "the topic is not there")
        wait(lambda: len(cluster.ends([("halved", 0), ("halved", 1)])) == 2, "the topic cannot be read")
        other.stop(kill=True)
        wait(lambda: admin.list_topics(timeout=20).topics["halved"].partitions[1].leader < 0, "it still has a leader")
        assert cluster.topics(lambda _: True)["halved"].partitions == (0, 1)
        assert cluster.ends([("halved", 0)]) == {("halved", 0): Ends(0, 0)}
        for parts in ([("halved", 0), ("halved", 1)], [("halved", 1)]):
            with pytest.raises(BrokerError, match="Kafka partition 1 of halved has no leader"):
                cluster.ends(parts)
        cluster.close()


# Times and groups


def test_offsets_at_a_moment(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic(partitions=2)
    start = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    stamps = [int((start + timedelta(seconds=second)).timestamp() * 1000) for second in range(10)]
    kafka.produce(topic, [Message(b"x", timestamp=stamp) for stamp in stamps], partition=0)
    part = (topic, 0)

    def at(seconds: float) -> int:
        return cluster.offsets_at([part], start + timedelta(seconds=seconds))[part]

    assert [at(second) for second in (-3600, 0, 4, 9)] == [0, 0, 4, 9]
    assert [at(second) for second in (0.001, 3.5, 4.0000001, 4.000001, 8.9999)] == [1, 4, 4, 5, 9]
    assert [at(second) for second in (9.001, 7200)] == [10, 10]
    kafka.delete_records(topic, 0, before=3)
    assert at(0) == 3
    assert cluster.offsets_at([part, (topic, 1)], datetime(1969, 1, 1, tzinfo=UTC)) == {part: 3, (topic, 1): 0}


def test_a_moment_inside_an_open_transaction_is_the_end(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    now = int(time.time() * 1000)
    kafka.produce(topic, [Message(b"old", timestamp=now - 60_000)], partition=0)
    with kafka.transaction() as one:
        one.produce(topic, [Message(b"new", timestamp=now)])
        assert cluster.offsets_at([(topic, 0)], datetime.fromtimestamp(now / 1000 - 1, UTC)) == {(topic, 0): 1}


def commit(kafka: KafkaBroker, topic: str, partition: int, offset: int) -> str:
    """Commit for a group of its own, named like the topic."""
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "log_level": 0})
    try:
        reader.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    finally:
        reader.close()
    return topic


def test_group_offsets_are_those_committed_and_no_others(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic(partitions=3)
    group = commit(kafka, topic, 1, 42)
    commit(kafka, topic, 2, 0)
    parts = [(topic, number) for number in range(3)]
    assert cluster.group_offsets(group, parts) == {(topic, 1): 42, (topic, 2): 0}
    assert cluster.group_offsets(group, [(topic, 0), ("never-made", 0)]) == {}
    assert cluster.group_offsets("never-seen", parts) == {}
    assert cluster.group_offsets(group, []) == {}


# A look at messages


def test_peek_shows_the_first_messages_from_an_offset(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    stamp = int(time.time() * 1000) - 5000
    kafka.produce(topic, [Message(b"v" * n, key=b"key", timestamp=stamp + n) for n in range(10)], partition=0)
    part = (topic, 0)
    assert cluster.peek(part, 2, 3) == [Peek(n, stamp + n, n + 3) for n in (2, 3, 4)]
    assert offsets(cluster.peek(part, 0)) == list(range(10))
    assert offsets(cluster.peek(part, 7)) == [7, 8, 9]
    assert offsets(cluster.peek(part, 7, until=9)) == [7, 8]
    assert offsets(cluster.peek(part, 7, until=900)) == [7, 8, 9]
    assert [cluster.peek(part, at) for at in (10, 11, 900)] == [[], [], []]
    assert [cluster.peek(part, 5, until=5), cluster.peek(part, 5, 0)] == [[], []]
    kafka.delete_records(topic, 0, before=4)
    assert offsets(cluster.peek(part, 0, 2)) == [4, 5]
    assert cluster.peek(part, 0, until=4) == []


def test_a_message_with_nothing_in_it_has_no_size(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [Message(None), Message(None, key=b"k")], partition=0)
    assert [one.size for one in cluster.peek((topic, 0), 0)] == [0, 1]


def test_peek_goes_over_what_was_aborted(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    part = (topic, 0)
    with kafka.transaction() as dropped:
        dropped.produce(topic, [b"x"] * 5)
        dropped.abort()
    assert cluster.ends([part])[part].end == 6
    assert cluster.peek(part, 0) == []  # nothing up to the end
    with kafka.transaction() as kept:
        kept.produce(topic, [b"y", b"z"])
        assert cluster.peek(part, 0) == []  # nothing up to the open transaction
        assert cluster.peek(part, 6) == []
    assert offsets(cluster.peek(part, 0)) == [6, 7]
    assert offsets(cluster.peek(part, 2, 1)) == [6]
    assert cluster.peek(part, 0, until=6) == []


def test_peek_goes_over_what_was_compacted(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic(config=COMPACTED)
    kafka.produce(topic, [Message(b"%d" % n, key=b"ab"[n % 2 : n % 2 + 1]) for n in range(10)], partition=0)
    kafka.compact(topic)
    assert offsets(cluster.peek((topic, 0), 0)) == [8, 9, 10]
    assert cluster.peek((topic, 0), 0, until=8) == []


def test_peek_takes_about_a_megabyte(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [bytes(300_000)] * 8, partition=0)
    assert offsets(cluster.peek((topic, 0), 0)) == [0, 1, 2, 3]


def test_many_threads_look_at_once(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic(partitions=8)
    for number in range(8):
        kafka.produce(topic, [b"x" * (number + 1)] * 10, partition=number)

    def look(turn: int) -> bool:
        part = (topic, turn % 8)
        found = cluster.peek(part, turn % 10, 3)
        same = offsets(found) == list(range(10))[turn % 10 :][:3] and {one.size for one in found} == {turn % 8 + 1}
        return same and cluster.ends([part]) == {part: Ends(0, 10)}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(look, range(80)))


# Trouble


def questions(cluster: Cluster, topic: str) -> list[Callable[[], object]]:
    parts = [(topic, 0)]
    return [
        lambda: cluster.topics({topic}.__contains__),
        lambda: cluster.ends(parts),
        lambda: cluster.offsets_at(parts, datetime.now(UTC)),
        lambda: cluster.group_offsets("some", parts),
        lambda: cluster.peek((topic, 0), 0),
    ]


def answered(ask: Callable[[], object], into: list[object]) -> bool:
    try:
        into.append(ask())
    except BrokerError:
        return False
    return True


def test_a_broker_that_is_frozen_is_an_error_and_all_is_well_when_it_goes_on(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"x"], partition=0)
    patient = Cluster(kafka.bootstrap, {}, timeout=30)
    cluster = Cluster(kafka.bootstrap, {}, timeout=2)
    asked = questions(cluster, topic)
    before: list[object] = []
    for ask in questions(patient, topic):
        wait(partial(answered, ask, before), "the broker does not answer")  # it may not know its groups yet
    kafka.pause()
    try:
        for ask in asked:
            with pytest.raises(BrokerError, match=kafka.bootstrap):
                ask()
    finally:
        kafka.resume()
    wait(lambda: patient.ends([(topic, 0)]) == {(topic, 0): Ends(0, 1)}, "the broker is not back")

    def back(ask: Callable[[], object], was: object) -> bool:
        try:
            return ask() == was
        except BrokerError:
            return False

    for ask, was in zip(asked, before, strict=True):
        wait(partial(back, ask, was), "the same client does not work again")
    for one in (cluster, patient):
        one.close()


def test_a_broker_that_was_restarted_is_asked_as_before(kafka: KafkaBroker, cluster: Cluster) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"x"], partition=0)
    asked = questions(cluster, topic)
    before = [ask() for ask in asked]
    kafka.restart()

    def same() -> bool:
        try:
            return [ask() for ask in asked] == before
        except BrokerError:  # it may not lead all of its Kafka partitions yet
            return False

    wait(same, "the answers are others")


def test_nobody_there_says_why_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster("127.0.0.1:1", {}, timeout=0.5)
    for ask in questions(cluster, "any"):
        with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1 .*refused.*tried again"):
            ask()
    cluster.close()
    assert capfd.readouterr() == ("", "")


def test_a_closed_cluster_answers_nothing(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"x"], partition=0)
    cluster = Cluster(kafka.bootstrap, {})
    assert len(cluster.peek((topic, 0), 0)) == 1
    cluster.close()
    cluster.close()
    for ask in questions(cluster, topic):
        with pytest.raises(BrokerError, match="closed"):
            ask()


@pytest.mark.parametrize("name", ["no.such.setting", "security.protocol"])
def test_a_setting_that_the_client_does_not_take_is_named_without_its_value(name: str) -> None:
    with pytest.raises(SetupError) as caught:
        Cluster("127.0.0.1:1", {name: "hunter2"})
    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_what_catchment_decides_cannot_be_set_and_reading_in_bulk_is_not_its_matter(kafka: KafkaBroker) -> None:
    topic = kafka.fresh_topic()
    kafka.produce(topic, [b"x"], partition=0)
    with kafka.transaction() as one:
        one.produce(topic, [b"y"])
        settings = {
            "isolation.level": "read_uncommitted",
            "auto.offset.reset": "latest",
            "fetch.max.bytes": "1",  # librdkafka would refuse it
            "max.poll.records": "5",
            "client.rack": "r1",
        }
        cluster = Cluster(kafka.bootstrap, settings)
        assert cluster.ends([(topic, 0)]) == {(topic, 0): Ends(0, 1)}
        assert offsets(cluster.peek((topic, 0), 0)) == [0]
        cluster.close()


# Passwords and certificates


DOORS = ["plain", "scram", "ssl", "sasl_ssl"]


@pytest.mark.parametrize("door", DOORS)
def test_every_way_in(secure: KafkaBroker, door: str) -> None:
    topic = secure.fresh_topic()
    secure.produce(topic, [b"x"], partition=0)
    way = getattr(secure, door)
    cluster = Cluster(way.bootstrap, way.settings)
    assert cluster.topics({topic}.__contains__)[topic].partitions == (0,)
    assert offsets(cluster.peek((topic, 0), 0)) == [0]
    cluster.close()


@pytest.mark.parametrize("door", ["plain", "scram", "sasl_ssl"])
def test_a_wrong_password_is_an_error_that_does_not_show_it(secure: KafkaBroker, door: str) -> None:
    way = getattr(secure, door)
    cluster = Cluster(way.bootstrap, {**way.settings, "sasl.password": "hunter2"}, timeout=2)
    for _ in range(2):  # the reason is known the second time too, though the client saw it only once
        with pytest.raises(BrokerError, match=r"[Aa]uthentication") as caught:
            cluster.ends([("any", 0)])
        assert "hunter2" not in str(caught.value)
    cluster.close()


@pytest.mark.parametrize("without", ["ssl.ca.location", "ssl.certificate.location"])
def test_a_certificate_that_is_missing_is_an_error(secure: KafkaBroker, without: str) -> None:
    way = secure.ssl
    own = ("ssl.certificate.location", "ssl.key.location")
    out = own if without in own else (without,)
    cluster = Cluster(way.bootstrap, {name: held for name, held in way.settings.items() if name not in out}, timeout=2)
    with pytest.raises(BrokerError, match="certificate"):
        cluster.topics(lambda _: True)
    cluster.close()


def test_a_file_that_is_missing_is_named_with_its_setting(secure: KafkaBroker) -> None:
    way = secure.ssl
    with pytest.raises(SetupError, match=r"ssl\.key\.location \(/not/there\)"):
        Cluster(way.bootstrap, {**way.settings, "ssl.key.location": "/not/there"})


def reserve(broker: KafkaBroker, kind: ResourceType, name: str) -> None:
    """Give the rights to somebody else, and so take them from everybody who is not named."""
    admin = broker.admin()
    right = AclBinding(
        kind, name, ResourcePatternType.LITERAL, "User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW
    )
    admin.create_acls([right])[right].result(30)


def test_a_topic_that_may_not_be_seen_is_not_taken_for_one_that_is_gone(secure: KafkaBroker) -> None:
    open_topic, shut = secure.fresh_topic(), secure.fresh_topic()
    cluster = Cluster(secure.scram.bootstrap, secure.scram.settings, timeout=20)
    assert len(cluster.ends([(open_topic, 0), (shut, 0)])) == 2
    reserve(secure, ResourceType.TOPIC, shut)
    wait(lambda: shut not in cluster.topics(lambda _: True), "it can still be seen")
    for parts in ([(shut, 0)], [(open_topic, 0), (shut, 0)]):
        with pytest.raises(BrokerError, match="authorization failed"):
            cluster.ends(parts)
    with pytest.raises(BrokerError, match="authorization failed"):
        cluster.peek((shut, 0), 0)
    assert len(cluster.ends([(open_topic, 0), ("never-made", 0)])) == 1
    cluster.close()


def test_rights_to_a_group_are_needed_for_its_offsets_only(secure: KafkaBroker) -> None:
    topic = secure.fresh_topic()
    secure.produce(topic, [b"x"], partition=0)
    for group in ("catchment", "theirs"):
        reserve(secure, ResourceType.GROUP, group)
    cluster = Cluster(secure.scram.bootstrap, secure.scram.settings, timeout=3)
    for _ in range(3):
        assert offsets(cluster.peek((topic, 0), 0)) == [0]

    def refused() -> bool:
        try:
            cluster.group_offsets("theirs", [(topic, 0)])
        except BrokerError as error:
            return "authorization failed" in str(error)
        return False

    wait(refused, "the group can still be asked for")
    cluster.close()


def test_settings_are_in_no_text(secure: KafkaBroker) -> None:
    way = secure.plain
    cluster = Cluster(way.bootstrap, way.settings)
    reading = Reading(way.bootstrap, dict(way.settings))
    for text in (repr(cluster), str(cluster), repr(reading), str(reading), repr(way)):
        assert "sasl" not in text
        assert PASSWORD not in text
    cluster.close()
