"""deploy/helm and deploy/kubernetes: Helm renders them, Kubernetes' schemas accept them, parts agree."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import msgspec
import pytest
import yaml

from weir.proxy.config.settings import Settings
from weir.quotas import parse

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "deploy/helm/weir"
HELM: Final = Path(sys.executable).parent / "helm"
UPSTREAM: Final = ("--set", "upstream=kafka-0:9092\\,kafka-1:9092")
OPERATOR: Final = ("ServiceMonitor", "PrometheusRule")
"""Kinds of Prometheus Operator, for which Kubernetes itself has no schemas."""
VARIANTS: Final = {
    "defaults": (),
    "three Weirs": ("--set", "replicas=3"),
    "a load balancer": (
        *("--set", "service.type=LoadBalancer"),
        *("--set", "advertisedHost=POD.kafka.example.com"),
    ),
    "monitoring": ("--set", "serviceMonitor.enabled=true", "--set", "prometheusRule.enabled=true"),
    "secrets of one's own": ("--set", "admin.existingSecret=mine", "--set", "secretName=certificates"),
    "no disruption budget": ("--set", "podDisruptionBudget.enabled=false"),
    "quotas in a topic": ("--set-string", 'config=quotas = "topic"'),
}


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HELM, *arguments], capture_output=True, text=True, check=False)


def rendered(*options: str) -> list[dict[str, Any]]:
    """Return the manifests that Helm renders for a release called `prod`."""
    done = helm("template", "prod", str(CHART), "--namespace", "kafka", *UPSTREAM, *options)
    assert done.returncode == 0, done.stderr
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == kind}


def test_helm_finds_no_fault_in_the_chart() -> None:
    done = helm("lint", "--strict", str(CHART), *UPSTREAM)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chart_without_brokers_says_how_to_name_them() -> None:
    done = helm("template", "prod", str(CHART))
    assert done.returncode != 0
    assert "--set upstream=" in done.stderr


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_kubernetes_accepts_what_the_chart_renders(options: tuple[str, ...]) -> None:
    manifests = rendered(*options)
    assert {m["kind"] for m in manifests} >= {"StatefulSet", "Service", "ConfigMap"}
    for manifest in manifests:
        if manifest["kind"] not in OPERATOR:
            kubernetes_validate.validate(manifest, "1.31", strict=True)


def test_kubernetes_accepts_the_sidecar_and_weir_its_configuration() -> None:
    text = (ROOT / "deploy/kubernetes/sidecar.yaml").read_text("utf-8")
    config, deployment = list(yaml.safe_load_all(text))
    for manifest in (config, deployment):
        kubernetes_validate.validate(manifest, "1.31", strict=True)
    settings = msgspec.convert(tomllib.loads(config["data"]["weir.toml"]), Settings)
    assert settings.listen.startswith("127.0.0.1:")
    assert parse(config["data"]["quotas.toml"]).values


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_weir_accepts_the_configuration_that_the_chart_renders(options: tuple[str, ...]) -> None:
    (config,) = of_kind(rendered(*options), "ConfigMap").values()
    settings = msgspec.convert(tomllib.loads(config["data"]["weir.toml"]), Settings)
    assert settings.upstream == "kafka-0:9092,kafka-1:9092"
    (pods,) = of_kind(rendered(*options), "StatefulSet").values()
    variables = {each["name"] for each in pods["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert variables - {"POD", "WEIR_CONFIG"} <= {f"WEIR_{key.upper()}" for key in Settings.__struct_fields__}
    assert settings.quotas in {"topic", "/etc/weir/config/quotas.toml"}
    assert parse(config["data"]["quotas.toml"]).values


@pytest.mark.parametrize("replicas", [1, 3])
def test_each_pod_has_a_service_that_maps_all_its_ports(replicas: int) -> None:
    manifests = rendered("--set", f"replicas={replicas}", "--set", "brokers.count=4")
    (config,) = of_kind(manifests, "ConfigMap").values()
    settings = tomllib.loads(config["data"]["weir.toml"])
    first, last = map(int, settings["broker_ports"].removesuffix("@0").split("-"))
    ports = {int(settings["listen"].removeprefix(":")), *range(first, last + 1)}
    (pods,) = of_kind(manifests, "StatefulSet").values()
    services = of_kind(manifests, "Service")
    assert pods["spec"]["serviceName"] in services
    for number in range(replicas):
        service = services[f"{pods['metadata']['name']}-{number}"]
        assert {port["port"] for port in service["spec"]["ports"]} == ports
        assert all(port["port"] == port["targetPort"] for port in service["spec"]["ports"])
        labels = pods["spec"]["template"]["metadata"]["labels"]
        pod_name = {"statefulset.kubernetes.io/pod-name": service["metadata"]["name"]}
        assert (labels | pod_name).items() >= service["spec"]["selector"].items()


def test_a_pods_advertised_host_is_the_name_of_its_own_service() -> None:
    assert _advertised() == "$(POD).kafka.svc"
    assert _advertised("--set", "advertisedHost=POD.kafka.example.com") == "$(POD).kafka.example.com"


def _advertised(*options: str) -> str:
    (pods,) = of_kind(rendered(*options), "StatefulSet").values()
    environment = pods["spec"]["template"]["spec"]["containers"][0]["env"]
    names = [variable["name"] for variable in environment]
    assert names.index("POD") < names.index("WEIR_ADVERTISED_HOST")  # else Kubernetes does not replace it
    return str(environment[names.index("WEIR_ADVERTISED_HOST")]["value"])


def test_pods_have_the_secrets_that_they_mount_and_time_to_drain() -> None:
    manifests = rendered()
    (pods,) = of_kind(manifests, "StatefulSet").values()
    spec = pods["spec"]["template"]["spec"]
    mounted = {v["secret"]["secretName"] for v in spec["volumes"] if "secret" in v}
    assert mounted == set(of_kind(manifests, "Secret"))
    (config,) = of_kind(manifests, "ConfigMap").values()
    drain_s = tomllib.loads(config["data"]["weir.toml"])["drain_timeout_s"]
    (pause,) = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][1:]
    assert spec["terminationGracePeriodSeconds"] > drain_s + float(pause)


def test_the_chart_brings_the_alerts_of_deploy_and_their_job_name() -> None:
    manifests = rendered(*VARIANTS["monitoring"])
    (rule,) = of_kind(manifests, "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((ROOT / "deploy/alerts.yml").read_text("utf-8"))
    (monitor,) = of_kind(manifests, "ServiceMonitor").values()
    scraped = [
        service
        for service in of_kind(manifests, "Service").values()
        if service["metadata"]["labels"].items() >= monitor["spec"]["selector"]["matchLabels"].items()
    ]
    assert [s["metadata"]["labels"][monitor["spec"]["jobLabel"]] for s in scraped] == ["weir"]
    assert monitor["spec"]["endpoints"][0]["port"] in {p["name"] for p in scraped[0]["spec"]["ports"]}


def test_changed_settings_replace_pods_and_changed_quotas_do_not() -> None:
    def annotations(*options: str) -> object:
        (pods,) = of_kind(rendered(*options), "StatefulSet").values()
        return pods["spec"]["template"]["metadata"]["annotations"]

    assert annotations("--set-string", "config=connections_max = 9") != annotations()
    assert annotations("--set-string", "quotas=") == annotations()
