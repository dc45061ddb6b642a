"""The arithmetic of Kafka's quotas. tests/quotas/test_kafka_classes.py makes the job."""

from __future__ import annotations

from typing import Any

from tests.java.process import do_job


def config(java: Any, case: dict[str, Any], quota: float | None) -> Any:
    metrics = java.org.apache.kafka.common.metrics
    made = metrics.MetricConfig().samples(case["num_samples"])
    made.timeWindow(case["window_ms"], java.java.util.concurrent.TimeUnit.MILLISECONDS)
    return made if quota is None else made.quota(metrics.Quota.upperBound(float(quota)))


def replayed(java: Any, case: dict[str, Any]) -> list[list[float]]:
    """What is read at each step: a rate, its window and throttle times (ms); or the tokens of a bucket."""
    statistic = getattr(java.org.apache.kafka.common.metrics.stats, case["stat"])()
    settings, quota, found = config(java, case, case["quota"]), case["quota"], []
    for step in case["steps"]:
        now_ms = case["t0_ms"] + step["t"]
        if step["op"] == "set_quota":
            settings, quota = config(java, case, step["v"]), step["v"]
            continue
        if step["v"] is not None:
            statistic.record(settings, float(step["v"]), now_ms)
        if step["reads"]:
            read = [statistic.measure(settings, now_ms)]
            if case["stat"] != "TokenBucket":
                read.append(statistic.windowSize(settings, now_ms))
                read += throttles(java, (statistic, settings), read[0], quota, case["window_ms"], now_ms)
            found.append(read)
    return found


def throttles(
    java: Any, measured: tuple[Any, Any], rate: float, quota: float | None, window_ms: int, now_ms: int
) -> list[int]:
    """The throttle time, and the one that is capped at a window."""
    if quota is None or rate <= quota:
        return [0, 0]
    common, empty = java.org.apache.kafka.common, java.java.util.HashMap()
    name = common.MetricName("rate", "quota", "", empty)
    metric = common.metrics.KafkaMetric(name, name, *measured, None)
    violation = common.metrics.QuotaViolationException(metric, rate, float(quota))
    utils = java.org.apache.kafka.server.quota.QuotaUtils
    return [utils.throttleTime(violation, now_ms), utils.boundedThrottleTime(violation, window_ms, now_ms)]


def work(java: Any, job: dict[str, Any]) -> list[list[list[float]]]:
    return [replayed(java, case) for case in job["cases"]]


if __name__ == "__main__":
    do_job(work)
