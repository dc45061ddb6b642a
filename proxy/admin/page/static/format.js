// Texts of numbers, units and times.

const STEPS = ["", "k", "M", "G", "T"];

function scaled(value) {
  let step = 0;
  while (Math.abs(value) >= 999.5 && step < STEPS.length - 1) {
    value /= 1000;
    step += 1;
  }
  return [plain(value), STEPS[step]];
}

// Three significant digits: 1.31, 13.1, 131
export function plain(value) {
  const size = Math.abs(value);
  return size >= 100 || Number.isInteger(value) ? String(Math.round(value)) : String(Number(value.toPrecision(3)));
}

export function rate(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "percent") return `${plain(value)} %`;
  if (unit === "bytes/s") return `${bytes(value)}/s`;
  if (unit === "bytes") return bytes(value);
  return unit === "" ? scaled(value).join("") : `${plain(value)} ${unit}`;
}

export const bytes = (value) => `${scaled(value).join(" ")}B`;
export const share = (value) => (value === null || value === undefined ? "–" : `${plain(value * 100)} %`);

export function duration(ms) {
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const s = ms / 1000;
  if (s < 10) return `${plain(s)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const first = parts.findIndex(([size]) => s >= size);
  const [big, small] = [parts[first], parts[first + 1]];
  const rest = Math.floor((s % big[0]) / small[0]);
  return `${Math.floor(s / big[0])} ${big[1]}${rest ? ` ${rest} ${small[1]}` : ""}`;
}

export const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");
export const moment = (ms) => new Date(ms).toLocaleString("sv-SE");

// A number as people write one: 1500, 1.5 MB, 2MiB, 500k. NaN if it is none.
export function parsed(text) {
  const found = /^(\d+(?:[._]\d+)*)\s*(?:([kKMGT])(i?))?(?:B|B\/s|\/s|%)?$/.exec(text.trim());
  if (!found) return NaN;
  const power = found[2] ? STEPS.indexOf(found[2].replace("K", "k")) : 0;
  return Number(found[1].replaceAll("_", "")) * (found[3] ? 1024 : 1000) ** power;
}
