"""A broker with a listener of each security protocol, and certificates for it, for Weir and for clients."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from cryptography.hazmat.primitives import serialization

from tests.kafka import sasl
from tests.kafka.cluster import Cluster
from tests.kafka.ports import free_range
from tests.proxy.certificates import HOST, write_ca, write_client, write_pair

VERSION: Final = "3.9.1"
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "CONTROLLER")


class SaslListener(NamedTuple):
    """See `with_sasl.WithSasl`."""

    sasl_bootstrap: str


class Place:
    """The broker, a context manager, and the files of everybody's certificates.

    Its SSL listener wants clients' certificates, SASL_SSL asks for none. SCRAM knows `sasl.USERS`.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        port = free_range(len(PROTOCOLS))
        at = {protocol: f"{HOST}:{port + index}" for index, protocol in enumerate(PROTOCOLS)}
        self.plain, self.tls = at["PLAINTEXT"], at["SSL"]
        self.sasl, self.sasl_tls = SaslListener(at["SASL_PLAINTEXT"]), SaslListener(at["SASL_SSL"])
        self.ca = str(write_ca(directory, "brokers"))
        self.clients_ca = str(write_ca(directory, "clients"))
        self.weirs_ca = str(write_ca(directory))
        settings = {
            "listeners": ",".join(f"{protocol}://{address}" for protocol, address in at.items()),
            "controller.quorum.voters": f"0@{at['CONTROLLER']}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.clients_ca,
            "ssl.client.auth": "required",
        }
        login = sasl.server_settings(VERSION, kraft=True)
        settings |= login | {key.replace("sasl_plaintext", "sasl_ssl"): login[key] for key in login}
        self._cluster = Cluster(VERSION, port=port, settings=settings)

    def __enter__(self) -> Self:
        self._cluster.start()
        try:
            self._cluster.set_scram_credentials(self.plain)
        except BaseException:
            self._cluster.stop(keep_logs=True)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.__exit__(kind, error, trace)

    def _keystore(self) -> Path:
        """Kafka wants PKCS 8."""
        cert, key = write_pair(self._sub("broker"), HOST, ca="brokers")
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        store = self._directory / "keystore.pem"
        store.write_bytes(pem + cert.read_bytes())
        return store

    def _sub(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=name, dir=self._directory))

    # Weir's options.

    def listener(self) -> tuple[str, ...]:
        cert, key = write_pair(self._sub("listener"), HOST)
        return ("--set", f"tls_cert={cert},{key}")

    def mutual(self) -> tuple[str, ...]:
        rule = "RULE:^CN=([^,]+),OU=Apps$/$1/L"
        return (
            *("--set", "tls_client_auth=required", "--set", f"tls_client_ca={self.clients_ca}"),
            *("--set", f"ssl_principal_mapping_rules={rule}"),
        )

    def trusting(self) -> tuple[str, ...]:
        return ("--set", f"upstream_tls={self.ca}")

    def upstream(self) -> tuple[str, ...]:
        file = str(write_client(self._sub("weir"), "clients", "weir"))
        return (*self.trusting(), "--set", f"upstream_cert={file}")

    # Options of clients for a TLS listener of Weir's, with a certificate of this name, or none. Those of SASL
    # are to be added, and change the protocol.

    def client(self, name: str | None = None) -> dict[str, str]:
        options = {"security.protocol": "SSL", "ssl.ca.location": self.weirs_ca}
        if name is not None:
            file = self._certificate(name)
            options |= {"ssl.certificate.location": file, "ssl.key.location": file}
        return options

    def java(self, name: str | None = None) -> dict[str, str]:
        options = java_trusting(self.weirs_ca)
        if name is not None:
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": self._certificate(name)}
        return options

    def python(self, name: str | None = None) -> dict[str, str]:
        options = python_trusting(self.weirs_ca)
        if name is not None:
            file = self._certificate(name)
            options |= {"ssl_certfile": file, "ssl_keyfile": file}
        return options

    def _certificate(self, name: str) -> str:
        return str(write_client(self._sub(f"client-{name}"), "clients", name, "Apps"))


def java_trusting(ca: str) -> dict[str, str]:
    """Options of Java's clients, from 2.7 on, for servers of an authority."""
    return {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": ca}


def python_trusting(ca: str) -> dict[str, str]:
    return {"security_protocol": "SSL", "ssl_cafile": ca}
