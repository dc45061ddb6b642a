// Lists: for each, the request, the columns, and the details of one record.

import { h, name } from "./dom.js";
import { clock, duration, moment, plain, rate, share } from "./format.js";
import { UNITS } from "./quota_kinds.js";
import { spark } from "./spark.js";

const NAMES = [["user", "user"], ["client_id", "client-id"], ["client_id_prefix", "client-id prefix"], ["topic", "topic"], ["ip", "ip"], ["group", "group"], ["topic_prefix", "topic prefix"]];

// "user=alice, client-id=etl": the names of a record as a phrase.
export function who(record) {
  const parts = NAMES.filter(([key]) => record[key] !== null && record[key] !== undefined)
    .map(([key, label]) => `${label}=${record[key]}`);
  return parts.join(", ") || "all clients";
}

const where = (r) => (r.parts ? `${r.parts} brokers` : r.broker === null ? "unknown" : r.broker === "cluster" ? "all brokers" : `broker ${r.broker}`);

function throttling(record, now) {
  const parts = [record.throttled_since_ms !== null && `for ${duration(now - record.throttled_since_ms)}`, record.throttled && `${duration(record.throttle_ms)} left`];
  return parts.filter(Boolean).join(", ") || (record.throttles ? `${record.throttles} ×, not now` : "never");
}

const level = (usage) => (usage === null ? "" : usage >= 1 ? "bad" : usage >= 0.8 ? "near" : "");

// A column: [heading, function(record, now) → text or {text, exact, kind, node}, class]
const ENTITY = [
  ["entity", (r) => ({ open: who(r) })],
  ["quota", (r) => r.quota, "half"],
  ["where", where],
  ["usage", (r) => ({ text: share(r.usage), exact: r.usage, kind: level(r.usage) }), "number"],
  ["rate", (r) => ({ text: rate(r.rate, r.unit), exact: r.rate }), "number"],
  ["limit", (r) => ({ text: `${rate(r.limit, r.unit)}${r.parts ? " each" : ""}`, exact: r.limit }), "number"],
  ["last 10 min", (r) => ({ node: () => spark(r.history, r.parts ? null : r.limit, r.unit), same: String([r.history, r.limit]) }), "chart"],
  ["waits", (r, now) => ({ text: throttling(r, now), kind: r.throttled_since_ms !== null ? "bad" : "" }), "half"],
  ["connections", (r) => ({ text: String(r.connections), exact: r.connections }), "number"],
];

// Columns of an entity's card, which names the entity and its connections above them.
export const CARD = ENTITY.slice(1, -1);

// Cards of throttled entities: all records of one entity as one, in the order of their first records.
export function cards(records) {
  const found = Map.groupBy(records, (r) => JSON.stringify(NAMES.map(([key]) => r[key])));
  return [...found].map(([id, its]) => ({ id, title: who(its[0]), records: its, rows: [...Map.groupBy(its, (r) => r.quota).values()].flatMap(rowsOf) }));
}

// Rows of one quota: the sum over brokers if there are several, and each broker, the worst first.
function rowsOf(its) {
  if (its.length === 1) return its;
  const rates = its.map((r) => r.rate).reduce((a, b) => a + b);
  const since = its.map((r) => r.throttled_since_ms).filter((ms) => ms !== null);
  const longest = its.reduce((a, b) => (a.throttle_ms >= b.throttle_ms ? a : b));
  const sum = { ...longest, id: `sum of ${its[0].quota}`, parts: its.length, rate: rates, usage: null,
    throttled_since_ms: since.length ? Math.min(...since) : null, history: its[0].history.map((_, i) => summed(its.map((r) => r.history[i]))) };
  return [sum, ...its.map((r) => ({ ...r, quota: "" }))];
}

const summed = (rates) => (rates.every((each) => each === null) ? null : rates.reduce((a, b) => a + (b ?? 0), 0));

// "4 connections from 10.0.0.7 (librdkafka 2.5.0), client-ids etl, web": of all records of one entity.
export function connectionsOf(records) {
  const all = (field) => [...new Set(records.flatMap((r) => r[field]))];
  const [peers, software, ids] = ["peers", "software", "client_ids"].map((field) => all(field).slice(0, 5).join(", "));
  const counts = [...Map.groupBy(records, (r) => r.quota).values()].map((its) => its.reduce((sum, r) => sum + r.connections, 0));
  const count = Math.max(...counts);
  const parts = [`${count} connection${count === 1 ? "" : "s"}${peers && ` from ${peers}`}${software && ` (${software})`}`];
  if (ids && ids !== records[0].client_id) parts.push(`client-ids ${ids}`);
  return parts.join(", ");
}

const CONNECTION = [
  ["client", (r) => ({ open: r.user || r.client_id ? who({ ...r, client_id: r.client_id }) : "not known yet" })],
  ["from", (r) => r.peer, "half"],
  ["to", (r) => r.listener],
  ["state", (r) => ({ text: r.state, kind: r.state === "THROTTLED" ? "bad" : "" })],
  ["waits for", (r, now) => ({ text: waits(r, now), kind: r.waits_for ? "near" : "" }), "wide"],
  ["in flight", (r) => ({ text: String(r.in_flight), exact: r.in_flight }), "number"],
  ["in", (r) => ({ text: rate(r.in_bytes_per_s, "bytes/s"), exact: r.in_bytes_per_s }), "number"],
  ["out", (r) => ({ text: rate(r.out_bytes_per_s, "bytes/s"), exact: r.out_bytes_per_s }), "number"],
  ["open for", (r, now) => duration(now - r.opened_ms), "number"],
  ["library", (r) => r.software ?? "–", "text half"],
];

function waits(record, now) {
  if (!record.waits_for) return "–";
  return record.waits_until_ms === null ? record.waits_for : `${record.waits_for}, ${duration(record.waits_until_ms - now)} more`;
}

const BROKER = [
  ["broker", (r) => ({ open: `${r.node_id}` })],
  ["state", (r) => ({ text: condition(r), kind: r.up ? "good" : "bad" })],
  ["since", (r, now) => (r.since_ms === null ? "the start" : duration(now - r.since_ms)), "number"],
  ["address", (r) => r.address, "text half"],
  ["Weir's port", (r) => (r.port === null ? { text: "none", kind: "bad" } : String(r.port)), "number"],
  ["connections", (r) => ({ text: String(r.connections), exact: r.connections }), "number"],
  ["waiting", (r) => ({ text: String(r.throttled_entities), exact: r.throttled_entities, kind: r.throttled_entities ? "near" : "" }), "number"],
  ["in", (r) => ({ text: rate(r.in_bytes_per_s, "bytes/s"), exact: r.in_bytes_per_s }), "number"],
  ["out", (r) => ({ text: rate(r.out_bytes_per_s, "bytes/s"), exact: r.out_bytes_per_s }), "number"],
  ["error", (r) => r.error ?? "–", "wide"],
];

const condition = (r) => (r.up ? "up" : "down");

const entityOf = (r) =>
  Object.entries(r.entity).map(([type, its]) => `${type}=${its === null ? "<default>" : its}`).join(", ") || "all clients";

const optionsOf = (options) =>
  Object.entries(options ?? {}).filter(([, value]) => value !== null).map(([key, value]) => `${key} ${value}`).join(", ") || "–";

const QUOTA = [
  ["entity", (r) => ({ open: entityOf(r) })],
  ["quotas", (r) => Object.entries(r.quotas).map(([key, value]) => `${key} ${rate(value, unitOf(key))}`).join(", "), "wide"],
  ["options", (r) => optionsOf(r.options)],
];

const GROUP = [
  ["group", (r) => ({ open: r.name })],
  ["users", (r) => r.users.join(", ") || "–", "wide"],
  ["client-ids", (r) => r.client_ids.join(", ") || "–", "wide"],
  ["part of", (r) => r.parent || "–"],
];

export const unitOf = (key) => UNITS[key] ?? "";

const EVENT = [
  ["at", (r) => ({ open: moment(r.at_ms) })],
  ["event", (r) => ({ text: r.kind.replaceAll("_", " "), kind: /over|ended|recovered|up$/.test(r.kind) ? "good" : /changed|usage/.test(r.kind) ? "" : "bad" })],
  ["about", (r) => about(r), "wide"],
];

function about(event) {
  const unit = unitOf(event.quota ?? "");
  const parts = [
    event.quota && `${who(event)}: ${event.quota}${event.shadow ? " (shadow)" : ""}`,
    event.level && `${event.level} %`,
    event.rate !== undefined && event.rate !== null && `${rate(event.rate, unit)}${event.limit ? ` of ${rate(event.limit, unit)}` : ""}`,
    event.node_id !== undefined && `broker ${event.node_id}`,
    event.store && `store ${event.store}`,
    event.what, event.reason, event.error, event.remedy,
    event.changes?.map((c) => `${c.entity} ${c.quota}: ${c.before ?? "none"} → ${c.after ?? (c.until_ms && c.until_ms <= event.at_ms ? "ended" : "none")}`).join("; "),
    event.lasted_ms !== undefined && `lasted ${duration(event.lasted_ms)}`,
  ];
  return parts.filter(Boolean).join(", ");
}

const WEIR = [
  ["part", (r) => ({ open: r.part })],
  ["state", (r) => ({ text: r.state, kind: r.kind })],
  ["details", (r) => r.details, "wide"],
];

// Stores, workers, usage records and certificates of /api/status as one list.
export function parts(status) {
  const now = status.now_ms;
  return [
    { part: "Weir", kind: status.ready ? "good" : "bad", state: status.ready ? "ready" : "not ready",
      details: `${status.version}, ${status.compiled ? "compiled, " : ""}Python ${status.python}, runs for ${duration(now - status.started_ms)}` },
    ...status.others.map((name) => ({ part: `Weir ${name}`, kind: "good", state: "heard", details: "shares quotas with this Weir" })),
    ...status.stores.map((s) => ({
      part: `quota store: ${s.name}`, kind: s.failing_since_ms === null ? "good" : "bad",
      state: s.failing_since_ms === null ? "works" : `fails for ${duration(now - s.failing_since_ms)}`,
      details: [`${s.quotas} quotas`, s.updated_ms !== null && `read ${duration(now - s.updated_ms)} ago`, s.error].filter(Boolean).join(", "),
    })),
    ...status.workers.map((w) => ({
      part: `worker ${w.id}`, kind: now - w.beat_ms > 5000 ? "bad" : "good",
      state: now - w.beat_ms > 5000 ? `silent for ${duration(now - w.beat_ms)}` : "works",
      details: `pid ${w.pid}, ${w.connections} connections`,
    })),
    {
      part: "usage records", kind: status.usage.error ? "bad" : status.usage.dropped ? "near" : status.usage.enabled ? "good" : "",
      state: status.usage.error ? "fail" : status.usage.enabled ? "written" : "off",
      details: [status.usage.error, `${status.usage.dropped} not written`].filter(Boolean).join(", "),
    },
    ...status.certificates.map((c) => ({
      part: `certificate ${c.name}`, kind: c.expires_ms < now ? "bad" : c.expires_ms - now < 14 * 86_400_000 ? "near" : "good",
      state: c.expires_ms < now ? `expired ${duration(now - c.expires_ms)} ago` : `valid for ${duration(c.expires_ms - now)}`,
      details: moment(c.expires_ms),
    })),
  ];
}

const USE_SORTS = { usage: "usage", rate: "rate", name: "name", throttled: "throttle time" };
const CONNECTION_SORTS = { waits: "waiting", opened: "age", in_bytes_per_s: "rate in", out_bytes_per_s: "rate out", in_bytes: "bytes in", out_bytes: "bytes out", in_flight: "in flight" };
const byId = (r) => r.id;

// path: of the request, or null for records that the page has. records: field of the answer.
export const LISTS = {
  used: { title: "Most used", path: "api/entities", records: "entities", columns: ENTITY, key: byId, sorts: USE_SORTS,
    none: "No client has used an enforced quota yet." },
  brokers: { title: "Brokers", path: "api/brokers", records: "brokers", columns: BROKER, key: (r) => r.node_id, none: "No broker is known." },
  connections: { title: "Connections", path: "api/connections", records: "connections", columns: CONNECTION, key: byId,
    sorts: CONNECTION_SORTS, none: "No connection is open." },
  shadow: { title: "Shadow quotas", path: "api/entities", query: { shadow: "true" }, records: "entities", columns: ENTITY, key: byId,
    sorts: USE_SORTS, none: "No client has a shadow quota. A shadow quota counts and throttles nobody." },
  quotas: { title: "Quotas", path: "api/quotas", records: "quotas", columns: QUOTA, key: (r) => JSON.stringify(r.entity), none: "No quota is set." },
  groups: { title: "Groups", path: "api/groups", records: "groups", columns: GROUP, key: (r) => r.name, none: "No group is configured." },
  events: { title: "Events", path: null, columns: EVENT, key: byId, none: "Nothing has happened since Weir started." },
  weir: { title: "Weir itself", path: null, columns: WEIR, key: (r) => r.part, none: "" },
};

// One table cell; called at each answer, changes only what differs.
export function fill(cell, shown, open) {
  const { text, exact, kind, node, same, open: title } = typeof shown === "string" ? { text: shown } : shown;
  if (title !== undefined) {
    if (!cell.firstChild) cell.append(h("button", { type: "button", class: "open", click: open }, name("")));
    const bdi = cell.firstChild.firstChild;
    if (bdi.textContent !== title) bdi.textContent = title;
  } else if (node) {
    if (cell.dataset.same !== same) cell.replaceChildren(node());
    cell.dataset.same = same;
  } else if (cell.textContent !== text) cell.textContent = text;
  if (exact !== undefined && exact !== null) cell.dataset.exact = exact;
  else delete cell.dataset.exact;
  for (const each of ["bad", "near", "good"]) cell.classList.toggle(each, kind === each);
}

// Fields that the dialog says in other words, or not at all.
const LABELS = { client_id: "client-id", client_id_prefix: "client-id prefix", throttle_ms: "throttle time left", throttled_ms: "throttled in total",
  software: "library", peers: "from", client_ids: "client-ids", throttled_since_ms: "waits since", at_ms: "at", lasted_ms: "lasted" };
const UNSAID = new Set(["history", "sentence", "id", "unit", "throttled"]);

// [key, label, text] for each field of a record that the dialog shows.
export function facts(record, now) {
  return Object.entries(record).filter(([key, value]) => !UNSAID.has(key) && value !== null && value !== "")
    .map(([key, value]) => [key, LABELS[key] ?? key.replace(/_ms$/, "").replaceAll("_", " "), shown(key, value, record, now)]);
}

function shown(key, value, record, now) {
  if (Array.isArray(value)) return value.map((each) => (typeof each === "object" ? JSON.stringify(each) : each)).join(", ") || "–";
  if (typeof value === "object") return JSON.stringify(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (key === "throttle_ms" || key === "throttled_ms" || key === "lasted_ms") return duration(value);
  if (key === "waits_until_ms") return `${clock(value)} (in ${duration(value - now)})`;
  if (key.endsWith("_ms")) return `${moment(value)} (${duration(Math.abs(now - value))} ${value > now ? "left" : "ago"})`;
  if (key === "rate" || key === "limit") return `${rate(value, record.unit ?? unitOf(record.quota ?? ""))} (${value})`;
  if (key === "usage") return share(value);
  if (key.endsWith("bytes_per_s")) return rate(value, "bytes/s");
  return typeof value === "number" && !Number.isInteger(value) ? plain(value) : String(value);
}
