// A chart of the last ten minutes, without axes: an area, and the limit as a dashed line.

import { rate } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT = 30;

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

// history: rates, the oldest first, null where unknown. limit: null for none.
export function spark(history, limit, unit) {
  const known = history.filter((value) => value !== null);
  const top = Math.max(...known, limit ?? 0) * 1.08 || 1;
  const y = (value) => (HEIGHT - (value / top) * HEIGHT).toFixed(1);
  const width = Math.max(history.length - 1, 1);
  const svg = shape("svg", { class: "spark", viewBox: `0 0 ${width} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
  svg.setAttribute("aria-label", told(known, limit, unit));
  for (const [start, values] of runs(history)) {
    const line = values.map((value, i) => `${start + i} ${y(value)}`).join("L");
    const end = start + values.length - 1;
    svg.append(shape("path", { class: "area", d: `M${start} ${HEIGHT}L${line}L${end} ${HEIGHT}Z` }));
    svg.append(shape("path", { class: "line", d: `M${line}` + (end === start ? "h.01" : "") }));
  }
  if (limit !== null && known.length) svg.append(shape("path", { class: "limit", d: `M0 ${y(limit)}H${width}` }));
  return svg;
}

// [index of the first, values] of each run without nulls
function runs(history) {
  const found = [];
  history.forEach((value, i) => {
    if (value === null) return;
    if (i > 0 && history[i - 1] !== null) found.at(-1)[1].push(value);
    else found.push([i, [value]]);
  });
  return found;
}

function told(known, limit, unit) {
  if (!known.length) return "no rates recorded yet";
  const text = `last 10 minutes: ${rate(Math.min(...known), unit)} to ${rate(Math.max(...known), unit)}`;
  return limit === null ? text : `${text}, limit ${rate(limit, unit)}`;
}
