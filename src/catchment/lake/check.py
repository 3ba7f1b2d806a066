"""`catchment check`: is everything that the configuration names there, and can it do what is needed of it?

Each part is looked at on its own and within seconds; one that fails hides no other.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from catchment.bucket.contract import Support
from catchment.bucket.open import open_bucket
from catchment.bucket.probe import probe
from catchment.config import Config, Storage, Topic
from catchment.config.decode import Decode
from catchment.errors import CatchmentError, Denied

log = logging.getLogger(__name__)
_BROKER_TIMEOUT = 5.0  # seconds


class Verdict(StrEnum):
    """How a part was found."""

    OK = "ok"
    LIMITED = "limited"  # works, but not for everything
    FAILED = "failed"
    UNUSED = "unused"  # not needed by this configuration


@dataclass(frozen=True)
class Finding:
    """What was found of one part."""

    part: str  # config, workspace, object storage, decoder, spark, kafka
    name: str
    verdict: Verdict
    detail: str
    hint: str = ""  # what to do about it


def check(config: Config, workspace: Path, *, spark: bool = True) -> list[Finding]:
    """All findings, in the order of the configuration. Raises nothing that a part could raise."""
    found = [_declared(config), _workspace(workspace)]
    found += [_storage(storage, config) for storage in config.object_storage]
    found += decoder_findings(config)
    found += [_spark(config)] if spark else []
    found += _kafka(config)
    return found


def _declared(config: Config) -> Finding:
    counts = {
        "feed": len(config.feeds),
        "topic": len(config.topics),
        "table": len(config.tables.items),
        "pipeline": len(config.pipelines),
    }
    words = [_count(count, noun) for noun, count in counts.items() if count]
    return Finding("config", "", Verdict.OK, ", ".join(words) or "nothing declared yet")


def _workspace(folder: Path) -> Finding:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial = folder / f".trial-{secrets.token_hex(4)}"
        trial.write_bytes(b"")
        trial.unlink()
        room = os.statvfs(folder)
    except OSError as error:
        hint = "choose another with --workspace, or change its owner"
        return Finding("workspace", str(folder), Verdict.FAILED, f"cannot be written: {error.strerror}", hint)
    return Finding("workspace", str(folder), Verdict.OK, f"writable, {room.f_bavail * room.f_frsize / 1e9:.1f} GB free")


def _storage(storage: Storage, config: Config) -> Finding:
    def look() -> Finding:
        with closing(open_bucket(storage, retry=False)) as bucket:
            bucket.check()
            try:
                support = probe(bucket)
            except Denied as error:
                return judge_read_only(storage, config, error.hint)
        return judge(storage, config, support)

    return _told("object storage", storage.id, look)


def judge(storage: Storage, config: Config, support: Support) -> Finding:
    """What a store's abilities mean for this configuration. Pure."""
    can = {"conditional writes": support.compare_and_set, "tags": support.tags, "versions": support.versions}
    detail = "reachable; " + ", ".join(f"{'' if yes else 'no '}{what}" for what, yes in can.items())
    if support.compare_and_set:
        return Finding("object storage", storage.id, Verdict.OK, detail)
    if needs := _needs_compare_and_set(storage, config):
        hint = f"{needs} cannot work here: use a store with conditional writes, or 'hashed' for feeds alone"
        return Finding("object storage", storage.id, Verdict.FAILED, detail, hint)
    return Finding("object storage", storage.id, Verdict.LIMITED, detail, "feeds with 'hashed' work; nothing else can")


def judge_read_only(storage: Storage, config: Config, hint: str) -> Finding:
    """A store that can only be read serves whoever only reads."""
    writes = config.feeds or _needs_compare_and_set(storage, config)
    verdict = Verdict.FAILED if writes else Verdict.LIMITED
    return Finding("object storage", storage.id, verdict, "can be read, but not written", hint)


def _needs_compare_and_set(storage: Storage, config: Config) -> str:
    if storage.reconciliation_algorithm == "primary":
        return "reconciliation_algorithm: primary"
    rooms = [name for name in ("topics", "pipelines") if getattr(config, name)]
    rooms += ["tables"] if config.tables.items else []
    return " and ".join(rooms) if storage is config.state_storage else ""


def decoder_findings(config: Config) -> list[Finding]:
    """Whether each export that decodes can have its decoder."""
    exports = ((topic.match, one.group, one.decode) for topic in config.topics for one in topic.exports)
    return [_decoder(f"{group}/{match}", decode) for match, group, decode in exports if decode is not None]


def _decoder(name: str, decode: Decode) -> Finding:
    def look() -> Finding:
        from catchment.topics.decode.decoder import check_decoder

        check_decoder(decode)
        return Finding("decoder", name, Verdict.OK, decode.name)

    return _told("decoder", name, look)


def _spark(config: Config) -> Finding:
    needed = bool(config.topics or config.tables.items or config.pipelines)
    master = config.spark.master

    def look() -> Finding:
        from catchment.spark.session import session
        from catchment.spark.settings import S3Access

        spark = session(master, config.spark.conf, S3Access.of(config.object_storage), app="catchment-check")
        try:
            counted = spark.range(1000).count()
            return Finding(
                "spark", master, Verdict.OK if counted == 1000 else Verdict.FAILED, f"Spark {spark.version} ran a job"
            )
        finally:
            spark.stop()

    found = _told("spark", master, look)
    if found.verdict is Verdict.FAILED and not needed:
        return Finding("spark", master, Verdict.UNUSED, f"not needed by this config ({found.detail})", found.hint)
    return found


def _kafka(config: Config) -> list[Finding]:
    # Topics of one cluster with the same settings are one question.
    clusters = {(str(topic.brokers), tuple(sorted(topic.settings().items()))): topic for topic in config.topics}
    return [_brokers(topic) for topic in clusters.values()]


def _brokers(topic: Topic) -> Finding:
    def look() -> Finding:
        from catchment.topics.brokers import ask

        answer = ask(str(topic.brokers), topic.kafka, _BROKER_TIMEOUT)
        detail = f"{_count(len(answer.brokers), 'broker')}, {_count(len(answer.topics), 'topic')}"
        return Finding("kafka", str(topic.brokers), Verdict.OK, detail)

    return _told("kafka", str(topic.brokers), look)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _told(part: str, name: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except CatchmentError as error:
        return Finding(part, name, Verdict.FAILED, error.message, error.hint)
    except Exception as error:  # one part's surprise must not hide what is known of the others
        log.debug("%s %s", part, name, exc_info=True)
        said = str(error).strip().splitlines()[:1]
        hint = "run it again with -vv to see where this comes from"
        return Finding(part, name, Verdict.FAILED, f"{type(error).__name__}: {''.join(said)[:300]}", hint)
