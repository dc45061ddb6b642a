// The page: polls the API, shows each answer, and obeys keys.

import { ApiError, get, hasToken, post, setToken } from "./api.js";
import { $, h, keyed, name, put } from "./dom.js";
import { follow } from "./events.js";
import { bytes, clock, duration, plain, rate, share } from "./format.js";
import { CARD, LISTS, cards, connectionsOf, facts, fill, parts } from "./lists.js";
import * as form from "./quota_form.js";
import { spark } from "./spark.js";

const POLL_MS = 1500; // a throttled client is shown within 2 s, also without events
const WAIT_MS_MAX = 30_000;
const STALE_MS = 5000; // three polls; a request to a Weir that hangs ends later
const SILENT = "Weir does not answer";
const EVENTS_MAX = 500;
const THROTTLED = 10; // entities shown until more are asked for
const RECORDS_MAX = 1000; // of the API
const KEYS = { "/": "search", "j k": "next, previous row", Enter: "details of the row", Esc: "close; clear the search",
  "1 … 8": "list", "?": "these keys" };

const state = { tab: "used", sorts: {}, now: 0, answers: {}, events: [], throttled: THROTTLED, opened: null, good: 0, stale: "", failures: 0, locked: false };
let timer = 0;
let turn = 0;

// Polling

async function poll() {
  clearTimeout(timer);
  if (document.hidden) document.title = title(); // its count would get old
  if (state.locked || document.hidden) return;
  const mine = ++turn;
  const q = $("search").value.trim();
  const list = LISTS[state.tab];
  const asked = { status: get("api/status"), throttled: get("api/throttled", { q, limit: recordsWanted() }), brokers: get("api/brokers") };
  const sort = list.sorts ? (state.sorts[state.tab] ?? Object.keys(list.sorts)[0]) : "";
  if (list.path) asked.list = get(list.path, { ...list.query, q, sort });
  try {
    const answers = await Promise.all(Object.entries(asked).map(async ([key, answer]) => [key, await answer]));
    if (mine !== turn) return;
    state.answers = Object.fromEntries(answers);
    const isFirst = !state.good;
    [state.failures, state.good, state.stale] = [0, Date.now(), ""];
    show();
    if (isFirst && state.answers.status.all_in_shadow && state.tab === "used") return choose("shadow");
  } catch (error) {
    if (mine !== turn) return;
    state.failures += 1;
    failed(error);
  }
  timer = setTimeout(poll, Math.min(POLL_MS * 2 ** Math.max(state.failures - 1, 0), WAIT_MS_MAX));
}

// Records for the shown cards: of each quota, one at each broker.
function recordsWanted() {
  return Math.min(2 * state.throttled * (1 + (state.answers.brokers?.brokers.length ?? 0)), RECORDS_MAX);
}

function failed(error) {
  if (!refused(error, poll) || !state.locked) showStale(error instanceof ApiError ? error.message : SILENT);
}

// Nothing on the page may say that Weir is well while its latest answer is old.
function showStale(reason) {
  state.stale = reason;
  pill("live", `${state.good ? `stale since ${clock(state.good)}` : "no answer yet"}: ${reason}`, "bad");
  pill("ready", "not known", "");
  document.title = `(stale) ${title()}`;
  document.body.classList.add("stale");
}

function watchAge() {
  if (!state.stale && state.good && !document.hidden && Date.now() - state.good > STALE_MS) showStale(SILENT);
}

// True if the error is about the token: ask for it, then call `again`.
function refused(error, again) {
  const about = error instanceof ApiError && (error.status === 401 || (error.status === 403 && !hasToken() && /Authorization/.test(error.message)));
  if (!about || /admin_token_file/.test(error.message)) return false;
  if (error.status === 401) {
    state.locked = true;
    showStale("needs a token");
  }
  askToken(error.message, again);
  return true;
}

function askToken(reason, again) {
  put($("token-said"), `Weir says: ${reason}. The token is in the file admin_token_file of Weir's host. This page keeps it until the tab is closed.`);
  $("token-form").onsubmit = () => {
    setToken($("token").value.trim());
    $("token").value = "";
    state.locked = false;
    again();
    poll();
  };
  if (!$("token-dialog").open) $("token-dialog").showModal();
}

// Showing

// Which Weir this is, as far as it has answered.
function title() {
  const { status } = state.answers;
  return status ? `Weir ${status.name}` : "Weir";
}

function show() {
  const { status, throttled } = state.answers;
  state.now = status.now_ms;
  document.body.classList.remove("stale");
  pill("live", `live, ${clock(status.now_ms)}`, "good");
  pill("ready", status.ready ? "ready" : "not ready", status.ready ? "good" : "bad");
  put($("weir"), status.name);
  put($("version"), `before ${status.upstream.split(",")[0]}${status.weirs ? `, one of ${status.weirs} Weirs` : ""}, ${status.version}`);
  document.title = status.totals.throttled_entities ? `(${status.totals.throttled_entities}) ${title()}` : title();
  showTotals(status.totals);
  showProblems(status.problems);
  showThrottled(throttled, status.totals);
  showTabs();
  showList();
  showDetail();
}

function pill(id, text, kind) {
  put($(id), text);
  $(id).className = `pill ${kind}`;
}

const TOTALS = [
  ["throttled_entities", "entities waiting", String], ["throttled_connections", "connections waiting", String],
  ["connections", "connections", String], ["requests_per_s", "requests/s", plain],
  ["in_bytes_per_s", "in", (value) => rate(value, "bytes/s")], ["out_bytes_per_s", "out", (value) => rate(value, "bytes/s")],
];

function showTotals(totals) {
  keyed($("totals"), TOTALS, ([key]) => key, ([key, label]) => h("div", { id: `total-${key}` }, h("dt", {}, label), h("dd", {})), (item, [key, , text]) => {
    put(item.lastChild, text(totals[key]));
    item.lastChild.dataset.exact = totals[key];
    item.classList.toggle("bad", key.startsWith("throttled") && totals[key] > 0);
  });
}

function showProblems(problems) {
  $("problems").hidden = !problems.length;
  keyed($("problems"), problems, (each) => each.what, () => h("div", { class: "problem" }, h("strong", {}), h("span", {}), h("p", {})), (item, each) => {
    put(item.children[0], each.what);
    put(item.children[1], each.since_ms === null ? "" : ` for ${duration(state.now - each.since_ms)}`);
    put(item.children[2], each.remedy);
  });
}

function showThrottled(answer, totals) {
  const q = $("search").value.trim();
  const all = cards(answer.entities);
  const shown = all.slice(0, state.throttled);
  const number = `${all.length}${answer.hidden ? " and more" : ""}`;
  put($("throttled-title"), q ? `Throttled: ${number} found` : all.length ? `Throttled: ${number}, ${totals.throttled_entities} waiting now` : "Throttled: nobody now");
  keyed($("throttled"), shown, (each) => each.id, makeCard, fillCard);
  const nobody = state.answers.status.all_in_shadow
    ? "All quotas are in shadow: they throttle nobody. The list of shadow quotas has the throttle times of enforced ones."
    : "No client was throttled in the last 30 seconds.";
  put($("throttled-none"), q ? `No throttled entity matches “${q}”.` : nobody);
  $("throttled-none").hidden = all.length > 0;
  $("more").hidden = all.length === shown.length && !answer.hidden;
}

function makeCard(card) {
  const open = () => openDetail("throttled", card.records[0].id);
  const heads = CARD.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title));
  return h("li", {}, h("button", { type: "button", class: "open", click: open }, name("")), h("p", { class: "soft" }, name("")),
    h("table", {}, h("thead", {}, h("tr", {}, ...heads)), h("tbody", {})));
}

function fillCard(item, card) {
  const [button, connections, table] = item.children;
  put(button.firstChild, card.title);
  put(connections.firstChild, connectionsOf(card.records));
  item.classList.toggle("over", card.records.every((each) => each.throttled_since_ms === null));
  keyed(table.tBodies[0], card.rows, (row) => row.id, () => h("tr", {}, ...CARD.map(([title, , kind]) => h("td", { "data-label": title, class: kind }))),
    (row, record) => CARD.forEach(([, text], i) => fill(row.cells[i], text(record, state.now))));
}

// Lists

function showTabs() {
  const down = state.answers.brokers.brokers.filter((each) => !each.up).length;
  const badges = { brokers: down ? `${down} down` : "", weir: parts(state.answers.status).some((each) => each.kind === "bad") ? "!" : "" };
  keyed($("tabs"), Object.keys(LISTS), (key) => key,
    (key) => h("button", { type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "panel", click: () => choose(key), keydown: arrows }, h("span", {}, LISTS[key].title), h("b", {})),
    (tab, key) => {
      put(tab.lastChild, badges[key] ?? "");
      tab.setAttribute("aria-selected", key === state.tab);
      tab.tabIndex = key === state.tab ? 0 : -1;
    });
}

function arrows(event) {
  const keys = Object.keys(LISTS);
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  choose(keys[(keys.indexOf(state.tab) + step + keys.length) % keys.length]);
  $(`tab-${state.tab}`).focus();
}

function choose(key) {
  state.tab = key;
  delete state.answers.list;
  const list = LISTS[key];
  $("panel").setAttribute("aria-labelledby", `tab-${key}`);
  $("sorting").hidden = !list.sorts;
  $("sort").replaceChildren(...Object.entries(list.sorts ?? {}).map(([value, text]) => h("option", { value, selected: value === state.sorts[key] }, text)));
  put($("list").caption, list.title);
  $("list").tHead.rows[0].replaceChildren(...list.columns.map(([title, , kind]) => h("th", { scope: "col", class: kind }, title)));
  $("list").tBodies[0].replaceChildren();
  $("list").className = key;
  $("change").hidden = key !== "quotas";
  put($("found"), "");
  $("nothing").hidden = true;
  if (state.answers.status) showTabs();
  if (!list.path && state.answers.status) showList();
  poll();
}

function records() {
  const list = LISTS[state.tab];
  if (state.tab === "weir") return parts(state.answers.status);
  if (state.tab !== "events") return state.answers.list?.[list.records];
  const q = $("search").value.trim().toLowerCase();
  return state.events.filter((each) => !q || JSON.stringify(each).toLowerCase().includes(q));
}

function showList() {
  const list = LISTS[state.tab];
  const found = records();
  if (!found) return;
  if (state.tab === "quotas") form.setWritable(state.answers.list.writable);
  keyed($("list").tBodies[0], found, list.key, () => h("tr", {}, ...list.columns.map(([title, , kind]) => h("td", { "data-label": title, class: kind }))), (row, record) => {
    const open = () => openDetail("list", row.dataset.key);
    list.columns.forEach(([, text], i) => fill(row.cells[i], text(record, state.now), open));
  });
  const hidden = state.answers.list?.hidden;
  put($("found"), hidden ? `${found.length} shown, ${hidden} more: search for a name` : "");
  put($("nothing"), $("search").value.trim() ? "Nothing matches the search." : list.none);
  $("nothing").hidden = found.length > 0;
  $("list").hidden = found.length === 0;
}

// Details

function openDetail(from, key) {
  state.opened = { from, key, tab: state.tab, record: null };
  showDetail();
  $("detail").showModal();
}

function showDetail() {
  const opened = state.opened;
  if (!opened) return;
  const list = opened.from === "throttled" ? LISTS.used : LISTS[opened.tab];
  const found = opened.from === "throttled" ? state.answers.throttled.entities : opened.tab === state.tab ? records() : null;
  const record = found?.find((each) => String(list.key(each)) === opened.key) ?? opened.record;
  if (!record) return;
  opened.record = record;
  const title = list.columns[0][1](record, state.now).open;
  put($("detail-title"), title);
  $("detail-chart").replaceChildren(...(record.history ? [spark(record.history, record.limit, record.unit), h("p", { class: "soft" }, "last 10 minutes; dashed: the limit")] : []));
  keyed($("detail-facts"), facts(record, state.now), ([key]) => key,
    ([, label]) => h("div", {}, h("dt", {}, label), h("dd", {})), (item, [, , text]) => put(item.lastChild, text));
  if (opened.acts !== title) {
    put($("detail-said"), "");
    $("detail-actions").replaceChildren(...actions(record));
  }
  opened.acts = title;
}

function actions(record) {
  const found = [];
  const text = record.client_id ?? record.user ?? record.ip;
  if (record.sentence && text) found.push(h("button", { type: "button", click: () => look("connections", text) }, "Its connections"));
  if (record.group) found.push(h("button", { type: "button", click: () => look("groups", record.group) }, "Its members"));
  if (record.throttled && (record.user || record.client_id || record.group)) found.push(h("button", { type: "button", click: () => release(record) }, "End its waits"));
  if (record.entity) found.push(h("button", { type: "button", click: () => change(record.entity, ...Object.entries(record.quotas)[0], record.options.mode) }, "Change …"));
  else if (record.quota) found.push(h("button", { type: "button", click: () => change(names(record), record.quota, record.limit, record.shadow ? "shadow" : "enforce") }, "Change its quota …"));
  return found;
}

// The waits of this client's connections, at all brokers.
async function release(record) {
  try {
    const { connections, waiting, wait_ms } = await post("api/connections/release", { user: record.user ?? "", client_id: record.client_id ?? "", group: record.group ?? "" });
    put($("detail-said"), waiting ? `Still waiting: ${waiting}, for at most ${duration(wait_ms)}, because of the present quotas.`
      : connections ? `Connections released: ${connections}. A client that was told a throttle time waits by itself.` : "No connection waits.");
    poll();
  } catch (error) {
    if (!refused(error, () => release(record))) put($("detail-said"), error.message);
  }
}

function names(record) {
  const types = { user: record.user, "client-id": record.client_id, "client-id-prefix": record.client_id_prefix, ip: record.ip, topic: record.topic, group: record.group };
  return Object.fromEntries(Object.entries(types).filter(([, its]) => its !== null && its !== undefined));
}

function look(tab, text) {
  $("detail").close();
  $("search").value = text;
  choose(tab);
}

function change(entity, key, value, mode) {
  $("detail").close();
  $("search").value = "";
  choose("quotas");
  form.begin(entity, key, value, mode);
  $("change").scrollIntoView({ block: "nearest" });
}

// Keys

const rows = () => [...document.querySelectorAll("main button.open")].filter((each) => each.offsetParent);

function step(by) {
  const all = rows();
  const at = all.indexOf(document.activeElement);
  all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)]?.focus();
}

function pressed(event) {
  const typing = event.target.closest("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") {
    if ($("search").value) search("");
    document.activeElement?.blur();
  }
  if (typing) return;
  const tab = Object.keys(LISTS)[Number(event.key) - 1];
  const act = { "/": () => $("search").select(), j: () => step(1), k: () => step(-1), "?": () => $("help").showModal() }[event.key];
  if (act) act();
  else if (tab) choose(tab);
  else return;
  event.preventDefault();
}

function search(text) {
  $("search").value = text;
  poll();
}

// Events

function take(event) {
  state.events.unshift(event);
  state.events.length = Math.min(state.events.length, EVENTS_MAX);
  if (event.at_ms < state.now - POLL_MS) return;
  clearTimeout(timer);
  timer = setTimeout(poll, 200);
}

for (const [key, text] of Object.entries(KEYS)) $("keys").append(h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, text)));
for (const button of document.querySelectorAll("dialog .close")) button.addEventListener("click", () => button.closest("dialog").close());
$("detail").addEventListener("close", () => { state.opened = null; });
$("ask-help").addEventListener("click", () => $("help").showModal());
$("ask-token").addEventListener("click", () => askToken("the token is needed to change quotas, and to read from other hosts", () => {}));
$("searching").addEventListener("submit", (event) => event.preventDefault());
$("more").addEventListener("click", () => { state.throttled = Math.min(state.throttled * 10, 1000); poll(); });
$("search").addEventListener("input", poll);
$("sort").addEventListener("change", () => { state.sorts[state.tab] = $("sort").value; poll(); });
document.addEventListener("keydown", pressed);
document.addEventListener("visibilitychange", poll);
window.addEventListener("online", poll);
setInterval(watchAge, 1000);
form.setUp(refused, poll);
choose("used");
follow(take);
