-- Views over the pipeline's tables, for dashboards. They need the tables rollup, recommendation and rejected in the
-- current schema (docs/how-to/pipeline/sql.md). Times are the beginning of an hour, in ms since 1970 (UTC).

-- Load of each broker in each hour. Rates are averages over the whole hour.
CREATE OR REPLACE VIEW broker_hours AS
SELECT cluster, broker, day, start_ms,
       sum(bytes_in) AS bytes_in,
       sum(bytes_out) AS bytes_out,
       sum(produced_bytes) / 3600e0 AS producer_byte_rate,
       sum(fetched_bytes) / 3600e0 AS consumer_byte_rate,
       sum(request_time_us) / 3600e4 AS request_percentage,
       sum(requests) AS requests,
       sum(errors) AS errors
FROM rollup
WHERE seconds = 3600 AND level = 'user-client-id' AND broker >= 0
GROUP BY cluster, broker, day, start_ms;

-- Use of each user and client-id in each hour. Rates are those at the broker where they are highest, because brokers
-- enforce quotas each for itself: the 99th percentile and the maximum of windows of 10 s.
CREATE OR REPLACE VIEW client_hours AS
SELECT cluster, user AS principal, client_id, day, start_ms,
       sum(bytes_in) AS bytes_in,
       sum(bytes_out) AS bytes_out,
       sum(requests) AS requests,
       max(producer_byte_rate.p99) AS producer_byte_rate_p99,
       max(producer_byte_rate.max) AS producer_byte_rate_max,
       max(consumer_byte_rate.p99) AS consumer_byte_rate_p99,
       max(consumer_byte_rate.max) AS consumer_byte_rate_max,
       max(request_percentage.p99) AS request_percentage_p99,
       max(controller_mutation_rate.p99) AS controller_mutation_rate_p99,
       sum(coalesce(throttle_ms.producer_byte_rate, 0) + coalesce(throttle_ms.consumer_byte_rate, 0)
           + coalesce(throttle_ms.request_percentage, 0)
           + coalesce(throttle_ms.controller_mutation_rate, 0)) / 1e3 AS throttle_s
FROM rollup
WHERE seconds = 3600 AND level = 'user-client-id'
GROUP BY cluster, user, client_id, day, start_ms;

-- Proposals of the latest recommendation that change a limit.
CREATE OR REPLACE VIEW proposed_changes AS
SELECT user AS principal, client_id, client_id_prefix, quota, used, current AS current_limit, proposed, reason
FROM recommendation
WHERE NOT in_default AND (current IS NULL OR proposed <> current);

-- Lines that are no records, by reason.
CREATE OR REPLACE VIEW rejected_lines AS
SELECT kind, cluster, reason, count(*) AS line_count, max(taken_ms) AS latest_ms
FROM rejected
GROUP BY kind, cluster, reason;
