"""The style sheet and the script of the report."""

from __future__ import annotations

from typing import Final

RULES: Final = """
:root {
  --page: #ffffff; --card: #f4f5f7; --line: #d8dee4;
  --text: #1b1f24; --quiet: #57606a; --link: #0550ae;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171c; --card: #1f242b; --line: #39414b;
    --text: #e6e9ee; --quiet: #9aa4b0; --link: #79b8ff;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem clamp(0.75rem, 3vw, 2.5rem); max-width: 84rem;
  background: var(--page); color: var(--text); font: 16px/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0.5rem 0; }
h2 { font-size: 1.3rem; margin: 2.5rem 0 0.5rem; border-top: 1px solid var(--line); padding-top: 1.25rem; }
h3 { font-size: 1rem; margin: 0.75rem 0 0; overflow-wrap: anywhere; }
a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1rem; margin: 1rem 0; }
bdi { white-space: pre-wrap; overflow-wrap: anywhere; }
footer, .note, small { color: var(--quiet); }
.note { font-size: 0.9rem; margin: 0.25rem 0 1rem; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: 0.75rem; margin: 1rem 0;
}
.tile { background: var(--card); border-radius: 0.5rem; padding: 0.75rem 1rem; min-width: 0; }
.tile dt { color: var(--quiet); font-size: 0.85rem; }
.tile dd { margin: 0; font-size: 1.35rem; font-weight: 600; line-height: 1.3; overflow-wrap: anywhere; }
.tile.name { grid-column: span 2; }
.tile.name dd { font-size: 1.1rem; }
.tile small { display: block; font-size: 0.85rem; font-weight: 400; }
.chart { margin: 1rem 0 2rem; min-width: 0; }
.plot { min-height: 6rem; min-width: 0; }
select {
  font: inherit; color: inherit; background: var(--card);
  border: 1px solid var(--line); padding: 0.2rem 0.4rem;
}
summary { cursor: pointer; color: var(--link); width: max-content; }
.scroll { overflow: auto; max-height: 32rem; margin-top: 0.5rem; border: 1px solid var(--line); }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td {
  padding: 0.25rem 0.6rem; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line);
}
td { white-space: nowrap; }
td:has(bdi) { white-space: normal; min-width: 14rem; text-align: left; }
th:first-child {
  text-align: left; position: sticky; left: 0; background: var(--page); min-width: 9rem; max-width: 22rem;
}
thead th { position: sticky; top: 0; background: var(--page); z-index: 1; }
thead th:first-child { z-index: 2; }
thead th { min-width: 6.2rem; }
tbody th { font-weight: 500; min-width: min(18rem, 40vw); }
@media (max-width: 640px) { th:first-child { max-width: 11rem; } }
@media print { details, nav, select { display: none; } }
"""

SCRIPT: Final = """
"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const narrow = matchMedia("(max-width: 640px)");
  const config = {
    displaylogo: false, responsive: true, typesetMath: false, plotlyServerURL: "", showSendToCloud: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    displayModeBar: narrow.matches ? false : "hover",
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const named = (trace, view) => {
    const customdata = trace.type === "heatmap"
      ? view.names.map((name) => view.columns.map((column) => [name, column]))
      : view.names.map((name) => [name]);
    return { ...trace, customdata };
  };

  const laidOut = (view) => {
    const text = colour("--text"), line = colour("--line");
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickcolor: line };
    const labels = narrow.matches ? view.narrow : view.wide;
    return {
      ...view.layout,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: text, family: "system-ui, sans-serif", size: 12 },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--quiet"), activecolor: text },
      hoverlabel: {
        ...view.layout.hoverlabel, bgcolor: colour("--card"), bordercolor: line, font: { color: text },
      },
      xaxis: { ...view.layout.xaxis, ...axis },
      yaxis: { ...view.layout.yaxis, ...axis, ticktext: labels },
    };
  };

  const draw = (chart) => {
    const views = [...chart.querySelectorAll(".view")];
    const shown = views.findIndex((view) => !view.hidden);
    const view = charts[chart.dataset.chart][shown];
    const data = view.data.map((trace) => named(trace, view));
    return Plotly.react(views[shown].querySelector(".plot"), data, laidOut(view), config);
  };

  const all = [...document.querySelectorAll(".chart")];
  for (const chart of all) {
    const select = chart.querySelector("select");
    if (select) {
      select.addEventListener("change", () => {
        chart.querySelectorAll(".view").forEach((view, index) => {
          view.hidden = index !== Number(select.value);
        });
        draw(chart);
      });
    }
    draw(chart);
  }
  const again = () => all.forEach(draw);
  dark.addEventListener("change", again);
  narrow.addEventListener("change", again);
})();
"""
