"""The parts that are measured with TLS and with SASL."""

from __future__ import annotations

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from bench import certificate, sasl, tls
from bench.rows import ROWS
from bench.targets import TARGETS
from weir.quotas import parse


def test_tls_and_sasl_measure_the_chosen_loads() -> None:
    assert [row.name for row in tls.rows(ROWS)] == list(tls.ROW_NAMES)
    assert [row.name for row in sasl.rows(ROWS)] == list(sasl.ROW_NAMES)
    assert [row.name for row in tls.rows(ROWS[:2])] == ["metadata-1"]


def test_tls_targets_are_named_as_the_plain_targets() -> None:
    assert {target.name for target in tls.TARGETS} < {target.name for target in TARGETS}


def test_tls_targets_are_the_chosen_ones_and_other_checkouts() -> None:
    chosen = [target for target in TARGETS if target.name in ("direct", "weir")]
    assert [target.name for target in tls.targets(chosen, [Path("/before")])] == ["weir", "weir@before"]


def test_the_user_and_the_client_have_quotas() -> None:
    entities = {(entity.user, entity.client_id) for entity, _key in parse(sasl.QUOTAS).values}
    assert entities == {("alice", None), (None, "weir-bench-000000")}


def test_the_benchmarks_certificate_names_this_host_and_has_an_ec_key(tmp_path: Path) -> None:
    made = certificate.make(tmp_path / "tls")
    leaf = x509.load_pem_x509_certificate(made.chain.read_bytes())
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(name) for name in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    key = leaf.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert made.key.read_text().startswith("-----BEGIN PRIVATE KEY-----\n")
    assert made.both.read_bytes() == made.chain.read_bytes() + made.key.read_bytes()
