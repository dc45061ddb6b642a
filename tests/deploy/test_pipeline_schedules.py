"""The systemd units, CronJobs and image of deploy/ that run the pipeline's jobs agree with the program."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, Final

import click
import pytest
import yaml

from tests.deploy.exposition import ROOT
from weir.cli.pipeline.command import pipeline
from weir.cli.pipeline.metrics import METRICS

DEPLOY: Final = ROOT / "deploy"
NAMES: Final = ("hourly", "daily")
STATE: Final = "/var/lib/weir-pipeline"
DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text("utf-8")
PAGE: Final = (ROOT / "docs/how-to/pipeline/schedule.md").read_text("utf-8")
ALERTS: Final = (DEPLOY / "alerts.yml").read_text("utf-8")


def unit(name: str) -> dict[str, dict[str, list[str]]]:
    """Return the values of each option of each section of a systemd unit."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in (DEPLOY / name).read_text("utf-8").replace("\\\n", " ").splitlines():
        if line.startswith("["):
            options = sections.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            options.setdefault(key, []).append(value)
    return sections


def cron_jobs() -> dict[str, dict[str, Any]]:
    documents = yaml.safe_load_all((DEPLOY / "pipeline-cronjobs.yaml").read_text("utf-8"))
    return {each["metadata"]["name"]: each for each in documents if each["kind"] == "CronJob"}


def container(cron_job: dict[str, Any]) -> dict[str, Any]:
    (found,) = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    return dict(found)


def jobs_of(words: list[str]) -> list[list[str]]:
    """Return the jobs of `weir pipeline JOB… then JOB…`, each with its options."""
    assert words[0] == "pipeline"
    return [job.split() for job in " ".join(words[1:]).split(" then ")]


def parsed(arguments: list[str]) -> click.Context:
    """Return the context of `weir pipeline JOB OPTION…`. Raises click.ClickException."""
    job, *options = arguments
    command = pipeline.get_command(click.Context(pipeline), job)
    assert command is not None, job
    return command.make_context(job, options)


def jobs_of_unit(name: str) -> list[list[str]]:
    (line,) = unit(f"weir-pipeline-{name}.service")["Service"]["ExecStart"]
    program, *words = shlex.split(line)
    assert program == "/opt/weir/bin/weir"
    return jobs_of(words)


@pytest.mark.parametrize("name", NAMES)
def test_the_pipelines_systemd_units_run_existing_jobs_with_a_metrics_file_each(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_LAKE", f"{tmp_path}/lake")
    (tmp_path / "metrics").mkdir()
    jobs = jobs_of_unit(name)
    for job in jobs:
        assert parsed([word.replace(STATE, str(tmp_path)) for word in job]).params["root"]
    files = [job[job.index("--metrics-file") + 1] for job in jobs]
    assert files == [f"{STATE}/metrics/{job[0]}.prom" for job in jobs]


@pytest.mark.parametrize("name", NAMES)
def test_the_pipelines_systemd_units_may_write_where_their_jobs_do(name: str) -> None:
    service = unit(f"weir-pipeline-{name}.service")["Service"]
    assert service["StateDirectory"] == ["weir-pipeline weir-pipeline/lake weir-pipeline/metrics"]
    assert service["Environment"] == [f"WEIR_LAKE={STATE}/lake WEIR_CACHE=/var/cache/weir-pipeline"]
    assert service["CacheDirectory"] == ["weir-pipeline"]
    assert service["User"] == ["weir-pipeline"], "the jobs share a lake"
    assert "MemoryDenyWriteExecute" not in service, "Java compiles while it runs"
    assert service["KillMode"] == ["mixed"], "else Java ends before the batch in progress"


@pytest.mark.parametrize("name", NAMES)
def test_each_timer_of_the_pipeline_starts_the_service_of_its_name(name: str) -> None:
    assert unit(f"weir-pipeline-{name}.timer")["Install"]["WantedBy"] == ["timers.target"]
    assert (DEPLOY / f"weir-pipeline-{name}.service").exists()


@pytest.mark.parametrize("name", NAMES)
def test_the_pipelines_cron_jobs_run_existing_jobs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIR_LAKE", "s3a://bucket/lake")
    for job in jobs_of(container(cron_jobs()[f"weir-pipeline-{name}"])["args"]):
        assert parsed(job).params["root"] == "s3a://bucket/lake"


def test_every_scheduled_job_runs_in_systemd_and_in_kubernetes() -> None:
    systemd = {job[0] for name in NAMES for job in jobs_of_unit(name)}
    kubernetes = {job[0] for cron_job in cron_jobs().values() for job in jobs_of(container(cron_job)["args"])}
    assert systemd == kubernetes | {"report"}, "the page would be lost with the pod"
    assert kubernetes == {"ingest", "rollup", "recommend", "maintain"}


def hours(schedule: str) -> set[int]:
    """Return the hours of a schedule such as `7 0-2,5 * * *`."""
    minute, of_day, *rest = schedule.split()
    assert (minute, rest) == ("7", ["*", "*", "*"])
    found = set[int]()
    for part in of_day.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def test_no_two_runs_of_the_cron_jobs_overlap_because_s3_permits_one_writer() -> None:
    specs = [each["spec"] for each in cron_jobs().values()]
    times = [hours(spec["schedule"]) for spec in specs]
    assert sum(map(len, times)) == len(set.union(*times)) == 24
    for spec in specs:
        job = spec["jobTemplate"]["spec"]
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["startingDeadlineSeconds"] + job["activeDeadlineSeconds"] < 3600
        assert job["backoffLimit"] == 0


def test_the_cron_jobs_containers_have_the_images_user_and_a_scratch_directory() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    for cron_job in cron_jobs().values():
        pod = cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == int(user)
        assert container(cron_job)["securityContext"]["readOnlyRootFilesystem"]
        assert container(cron_job)["volumeMounts"] == [{"name": "scratch", "mountPath": "/tmp"}]  # noqa: S108


def test_the_images_user_has_a_name_which_hadoop_asks_for() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", DOCKERFILE, re.MULTILINE)
    assert re.search(rf"^RUN echo 'weir:x:{user}:{user}:.*' >> /etc/passwd$", DOCKERFILE, re.MULTILINE)


def test_the_extras_in_documented_builds_of_the_image_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    texts = [
        path.read_text("utf-8") for path in [*DEPLOY.iterdir(), *ROOT.glob("docs/**/*.md")] if path.is_file()
    ]
    named = {
        name for text in texts for given in re.findall(r"EXTRAS=([\w,]+)", text) for name in given.split(",")
    }
    assert named == {"topic", "conformance", "pipeline"}
    assert named <= set(project["optional-dependencies"])
    assert '".[$EXTRAS]"' in DOCKERFILE


def test_the_page_on_schedules_lists_every_metric_of_the_jobs_with_its_labels() -> None:
    rows = re.findall(r"^\| `(weir_\w+)` \| ([\w, ]+) \|", PAGE, re.MULTILINE)
    assert {name: tuple(labels.split(", ")) for name, labels in rows} == {
        name: labels for name, (_text, labels) in METRICS.items()
    }


def test_the_pipelines_alerts_cover_lag_failures_and_runs_that_do_not_happen() -> None:
    alerts = set(re.findall(r"- alert: (WeirPipeline\w+)", ALERTS))
    assert alerts == {"WeirPipelineFailed", "WeirPipelineStopped", "WeirPipelineBehind"}
    assert all(alert in PAGE for alert in alerts)
