"""A real Kafka of one node, which is its own controller."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tests.kit.servers import free_port
from tests.ship.programs import Program, certificate, installed
from tests.tools.tools import tool

TOPIC: Final = "requests"
USER: Final = "shipper"
PASSWORD: Final = "the-password-of-the-shipper"
_CLUSTER: Final = "c2hpcHBpbmctaW4tdGVzdA"
"""An id of 16 bytes, as base64 for URLs has it."""


class Kafka(Program):
    """A broker with its data in ``directory``. ``secured``: over TLS, and for those who know the password."""

    def __init__(self, directory: Path, *, secured: bool = False) -> None:
        directory.mkdir()
        self.port = free_port()
        self.certificate = directory / "certificate.pem" if secured else None
        security = _security(directory) if secured else {}
        self._settings: dict[str, Any] = {"bootstrap.servers": self.address, "log_level": 0}
        if self.certificate is not None:
            self._settings |= client_properties(PASSWORD) | {"ssl.ca.location": str(self.certificate)}
        security |= {"transaction.state.log.replication.factor": 1, "transaction.state.log.min.isr": 1}
        protocol = "SASL_SSL" if secured else "PLAINTEXT"
        command = node(directory, self.address, [f"127.0.0.1:{free_port()}"], protocol=protocol, more=security)
        super().__init__(command, directory / "log", self._answers)

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"127.0.0.1:{self.port}"

    def _answers(self) -> bool:
        return self._client("make").returncode == 0

    def values(self) -> list[bytes]:
        """Return what is in the topic."""
        return self._read("read")

    def values_by_resource(self) -> list[tuple[bytes, bytes]]:
        """Return the same, each with its header ``resource``."""
        pairs = [line.partition(b"\t") for line in self._read("resources")]
        return [(resource, value) for resource, _, value in pairs]

    def _read(self, what: str) -> list[bytes]:
        read = self._client(what)
        assert read.returncode == 0, read.stderr
        return read.stdout.splitlines()

    def _client(self, what: str) -> subprocess.CompletedProcess[bytes]:
        script = Path(__file__).with_name("kafka_client.py")
        command: list[str | Path] = [sys.executable, script, json.dumps(self._settings), TOPIC, what]
        return subprocess.run(command, check=False, capture_output=True, timeout=120)


def node(
    directory: Path,
    address: str,
    controllers: Sequence[str],
    number: int = 1,
    *,
    protocol: str = "PLAINTEXT",
    more: Mapping[str, Any] = MappingProxyType({}),
) -> list[str | Path]:
    """Format the storage of a node that is broker and controller, one of ``controllers``; return what runs it."""
    properties = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": ",".join(f"{at}@{place}" for at, place in enumerate(controllers, 1)),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "listeners": f"{protocol}://{address},CONTROLLER://{controllers[number - 1]}",
        "advertised.listeners": f"{protocol}://{address}",
        "inter.broker.listener.name": protocol,
        "log.dirs": directory / "data",
        "offsets.topic.replication.factor": len(controllers),
        **more,
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()), encoding="utf-8")
    command: list[str | Path] = [installed("java", "default-jre-headless"), "-Xmx400m", "-XX:+UseSerialGC"]
    command += ["-XX:TieredStopAtLevel=1", "-cp", f"{tool('kafka')}/*"]
    formatting = [*command, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", file]
    subprocess.run(formatting, check=True, capture_output=True, timeout=120)
    return [*command, "kafka.Kafka", file]


def client_properties(password: str) -> dict[str, str]:
    """Return what a client needs beside the certificate to be let in."""
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": password,
    }


def _security(directory: Path) -> dict[str, Any]:
    key, made = certificate(directory)
    store = directory / "store.pem"
    store.write_bytes(key.read_bytes() + made.read_bytes())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = f'username="broker" password="its-own" user_broker="its-own" user_{USER}="{PASSWORD}"'
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{module} {users};",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": store,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": made,
    }
