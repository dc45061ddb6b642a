// The form that changes a quota: preview first; "Apply" sends what was previewed, and nothing else.

import { get, post } from "./api.js";
import { $, h, keyed, name, put } from "./dom.js";
import { duration, parsed, rate, share } from "./format.js";
import { unitOf } from "./lists.js";
import { UNITS } from "./quota_kinds.js";
import { spark } from "./spark.js";

const TYPES = ["user", "client-id", "client-id-prefix", "ip", "topic", "topic-prefix", "group"];
const WITH_DEFAULT = ["user", "client-id", "ip"];
const FIELDS = ["mode", "scope", "pacing", "until"];
const OPTIONS = { mode: ["enforce", "shadow"], scope: ["broker", "cluster"], pacing: ["default", "kafka", "smooth"] };
const CHOICES = { "": "any", default: "default", named: "named" };
const READ_ONLY = "Weir cannot change quotas here: it needs a store, and admin_token_file. The preview works.";
const hasEnd = ({ until }) => until && until !== "never";
let previewed = null;
let writable = true;

const field = (type, part) => $(`${part}-${type}`);

export function setUp(refused, applied) {
  for (const type of TYPES) {
    const choice = h("select", { id: `choice-${type}`, "aria-label": `${type}: which`, change: () => follow(type) },
      ...Object.entries(CHOICES).filter(([value]) => value !== "default" || WITH_DEFAULT.includes(type)).map(([value, text]) => h("option", { value }, text)));
    const input = h("input", { id: `name-${type}`, "aria-label": `${type}: name`, autocomplete: "off", spellcheck: "false",
      input: () => { choice.value = input.value ? "named" : ""; } });
    $("names").append(h("div", { class: "entity" }, h("span", {}, type), choice, input));
  }
  $("quota-key").append(...Object.keys(UNITS).map((key) => h("option", {}, key)));
  for (const [option, values] of Object.entries(OPTIONS)) {
    const kept = option === "mode" ? [] : [h("option", { value: "" }, "as it is")];
    $(`quota-${option}`).append(...kept, ...values.map((value) => h("option", {}, value)));
  }
  $("change").addEventListener("input", edited);
  $("change").addEventListener("submit", (event) => { event.preventDefault(); preview(refused); });
  $("apply").addEventListener("click", () => apply(refused, applied));
}

function follow(type) {
  if (field(type, "choice").value !== "named") field(type, "name").value = "";
  else field(type, "name").focus();
}

// entity: names by type, null for the default entity. mode: of the entry, which keeps its other options.
export function begin(entity, key, value, mode) {
  for (const type of TYPES) {
    const its = entity[type];
    field(type, "choice").value = its === undefined ? "" : its === null ? "default" : "named";
    field(type, "name").value = its ?? "";
  }
  if (key in UNITS) $("quota-key").value = key;
  $("quota-value").value = value ?? "";
  for (const option of FIELDS) $(`quota-${option}`).value = option === "mode" ? mode : "";
  edited();
  $("quota-value").focus();
}

export function setWritable(can) {
  writable = can;
  $("apply").disabled = !previewed || !writable;
  if (!writable && !$("change-said").textContent) say(READ_ONLY);
}

function edited() {
  previewed = null;
  $("apply").disabled = true;
  $("previewed").replaceChildren();
  say(writable ? "" : READ_ONLY);
  const value = parsed($("quota-value").value);
  put($("quota-number"), Number.isNaN(value) ? "" : `= ${rate(value, unitOf($("quota-key").value))}`);
}

// The request of what the form says. Throws an Error that says what is missing.
function request() {
  const entity = {};
  for (const type of TYPES) {
    const choice = field(type, "choice").value;
    if (choice === "default") entity[type] = null;
    if (choice === "named") entity[type] = field(type, "name").value;
  }
  if (!Object.keys(entity).length) throw new Error("Choose whom the quota is for: a user, a client-id, an IP address, a topic, a prefix or a group.");
  const text = $("quota-value").value.trim();
  const value = text ? parsed(text) : null;
  if (Number.isNaN(value)) throw new Error(`“${text}” is no number. Examples: 1500000, 1.5 MB, 2 MiB.`);
  const options = FIELDS.map((option) => [option, $(`quota-${option}`).value.trim()]).filter(([, chosen]) => chosen);
  return { entity, ops: { [$("quota-key").value]: value }, ...Object.fromEntries(options) };
}

async function preview(refused) {
  edited();
  try {
    const wanted = request();
    const asked = JSON.stringify(wanted);
    say("asking Weir …");
    const [answer, entry] = await Promise.all([post("api/quotas/preview", wanted), hasEnd(wanted) ? stored(wanted) : null]);
    if (JSON.stringify(request()) !== asked) return;
    const others = Object.keys(entry?.quotas ?? {}).filter((key) => !(key in wanted.ops));
    show(answer, wanted, others.length ? ` The entry's ${others.join(", ")} will end then, too.` : "");
    // An end is that of the whole entry, so that a change with a first end has to name all its quotas.
    previewed = entry ? { ...wanted, ops: { ...entry.quotas, ...wanted.ops } } : wanted;
    $("apply").disabled = !writable;
  } catch (error) {
    if (!refused(error, () => preview(refused))) say(error.message, "bad");
  }
}

// The entry that the change is for, as it is now.
async function stored({ entity, mode }) {
  const key = (names) => JSON.stringify(Object.entries(names).sort());
  const { quotas } = await get("api/quotas", { limit: 1000, q: Object.values(entity).find(Boolean) ?? "" });
  return quotas.find((each) => each.options.mode === mode && key(each.entity) === key(entity));
}

function show(answer, wanted, end) {
  const unit = unitOf(Object.keys(wanted.ops)[0]);
  const more = answer.hidden ? ` ${answer.hidden} more are not shown.` : "";
  const found = answer.entities.length;
  say(found ? `In the last 10 minutes this would have concerned ${found} of the recorded entities.${more}${end}` : `No recorded entity would have been concerned in the last 10 minutes.${end}`);
  keyed($("previewed"), answer.entities, (each) => each.id,
    () => h("li", {}),
    (item, each) => item.replaceChildren(
      h("p", { class: "said" }, name(each.sentence)),
      ...hasRates(each) ? [spark(each.history, each.limit, unit)] : [],
      h("p", { class: "soft" }, `${hasRates(each) ? recorded(each, unit) : "what exists now"}; throttled ${bounds(each)}`)));
}

// Storage and numbers of topics have no rates: their sentence has the limit.
const hasRates = (each) => each.history.some((one) => one !== null);

const recorded = (each, unit) => `limit ${rate(each.limit, unit)}; above it ${share(each.share_over)} of the time`;

function bounds(each) {
  const [lower, upper] = [each.throttled_s_lower, each.throttled_s_upper].map((s) => (s === null ? null : duration(s * 1000)));
  if (upper === null) return `at least ${lower}; the most is not known`;
  return lower === upper ? lower : `${lower} to ${upper}`;
}

async function apply(refused, applied) {
  if (!previewed) return;
  const wanted = previewed;
  $("apply").disabled = true;
  try {
    const { until } = (await post("api/quotas", wanted)).quota.options;
    edited();
    say(until && !wanted.until ? `Applied. The entry ends at ${until}, as before.` : "Applied.", "good");
    applied(await get("api/quotas"));
  } catch (error) {
    $("apply").disabled = false;
    if (!refused(error, () => apply(refused, applied))) say(error.message, "bad");
  }
}

function say(text, kind = "") {
  put($("change-said"), text);
  $("change-said").className = kind;
}
