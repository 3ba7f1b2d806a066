"""Apicurio, a schema registry that others run in earnest, for tests: one Java process that keeps all in memory.

    with apicurio() as registry:
        number = registry.register("orders-value", '{"type": "record", …}')
        Registry(registry.url).schema(number)

    python -m catchment.testing.apicurio          fetches it if need be and prints its folder

It is fetched once from Maven Central (110 MB), as jars are, and then lies in the cache. Seen on 3.0.9: of Protobuf it
gives the text alone, though asked for the serialized form.
"""

from __future__ import annotations

import os
import secrets
import shutil
import ssl
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from catchment.cache import alone, cache_folder
from catchment.errors import CatchmentError, SetupError
from catchment.spark.jars import MIRROR, sha256
from catchment.spark.java import find_java
from catchment.testing.process import HOST, ServerProcess, private_folder, remove, started

VERSION = "3.0.9"  # the last for Java 17
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
CENTRAL = "https://repo1.maven.org/maven2"
PLACE = f"io/apicurio/apicurio-registry-app/{VERSION}/apicurio-registry-app-{VERSION}-all.tar.gz"
PROGRAM = f"apicurio-registry-app-{VERSION}-runner.jar"
API = "apis/ccompat/v7"  # where it speaks as Confluent's registry does


@dataclass(frozen=True)
class Apicurio:
    """A running registry."""

    url: str  # for clients of Confluent's API
    process: ServerProcess = field(repr=False)

    def register(
        self, subject: str, text: str, kind: str = "AVRO", references: Sequence[tuple[str, str, int]] = ()
    ) -> int:
        """The number of the schema, which is now the newest of its subject."""
        body = {
            "schema": text,
            "schemaType": kind,
            "references": [dict(zip(("name", "subject", "version"), one, strict=True)) for one in references],
        }
        answer = httpx.post(f"{self.url}/subjects/{subject}/versions", json=body, timeout=30)
        answer.raise_for_status()
        return int(answer.json()["id"])


@contextmanager
def apicurio() -> Iterator[Apicurio]:
    """A registry on loopback and a port of its own. SetupError if it cannot be had, or does not start."""
    program = _fetched() / PROGRAM
    home = private_folder("apicurio")
    name = f"test-{secrets.token_hex(8)}"  # by which it is told from a stranger on the same port

    def make(port: int) -> ServerProcess:
        options = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
        options += [f"-Dquarkus.http.host={HOST}", f"-Dquarkus.http.port={port}", f"-Dapicurio.app.name={name}"]
        return ServerProcess("apicurio", [str(find_java().program), *options, "-jar", str(program)], home)

    def ready(port: int) -> bool:
        try:
            answer = httpx.get(f"http://{HOST}:{port}/apis/registry/v3/system/info", timeout=5)
            return answer.status_code == 200 and answer.json().get("name") == name
        except (httpx.TransportError, ValueError):
            return False

    try:
        process, port = started(make, ready, patience=120)
        try:
            yield Apicurio(f"http://{HOST}:{port}/{API}", process)
        finally:
            process.stop()
    finally:
        remove(home)


def _fetched() -> Path:
    """Its folder in the cache: there whole or not at all."""
    folder = cache_folder() / f"apicurio-{VERSION}"
    if not folder.is_dir():
        with alone("apicurio"):
            if not folder.is_dir():  # else another process fetched it while we waited
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    """Fetch aside, check every byte, unpack, rename."""
    url = f"{(os.environ.get(MIRROR) or CENTRAL).rstrip('/')}/{PLACE}"
    for stale in folder.parent.glob(f".{folder.name}-*"):  # we hold the lock, so its maker was killed
        shutil.rmtree(stale, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
        packed, whole = Path(name) / "all.tar.gz", Path(name) / "whole"
        try:
            # The machine's own certificates, as Java and pip use them, and not those that come with httpx.
            machine = ssl.create_default_context()
            with (
                httpx.stream("GET", url, timeout=60, follow_redirects=True, verify=machine) as answer,
                packed.open("wb") as file,
            ):
                answer.raise_for_status()
                for piece in answer.iter_bytes():
                    file.write(piece)
        except httpx.HTTPError as error:
            raise SetupError(
                f"cannot fetch Apicurio {VERSION} from Maven Central ({type(error).__name__})",
                hint=f"connect to the network once, or set {MIRROR} to the URL of a mirror you can reach",
            ) from None
        if sha256(packed) != SHA256:
            raise SetupError(
                f"Apicurio {VERSION} was fetched, but its bytes are not the ones that are known", hint="try again"
            )
        with tarfile.open(packed) as archive:
            archive.extractall(whole, filter="data")
        whole.rename(folder)


if __name__ == "__main__":
    try:
        print(_fetched())
    except CatchmentError as problem:
        sys.exit(str(problem))
