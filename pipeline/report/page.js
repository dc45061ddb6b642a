"use strict";
(() => {
  const prefixes = ["", "k", "M", "G", "T", "P"];
  const text = (value, unit) => {
    let step = 0;
    while (unit.startsWith("B") && value >= 1000 && step < 5) { value /= 1000; step += 1; }
    return `${Number(value.toPrecision(3))} ${prefixes[step]}${unit}`;
  };
  // The steps of a path: V is a height, and h its number of columns.
  const heights = (path) => [...path.getAttribute("d").matchAll(/V(\d+)h(\d+)/g)].flatMap(
    ([, height, columns]) => Array(Number(columns)).fill(Number(height)));
  for (const plot of document.querySelectorAll(".plot")) {
    const { count, from, step, top, unit } = plot.dataset;
    const tip = plot.querySelector(".tip");
    const names = [...plot.parentElement.querySelectorAll(".swatch")].map((each) => each.parentElement.textContent);
    let areas = null, at = 0;
    const show = (index) => {
      areas ??= [...plot.querySelectorAll(".area")].map(heights);
      at = Math.min(Math.max(index, 0), Number(count) - 1);
      const time = new Date(Number(from) + at * Number(step)).toISOString().slice(0, 16).replace("T", " ");
      const values = areas.map((area, place) => `${names[place]} ${text((1 - area[at] / 400) * top, unit)}`);
      tip.textContent = `${time}: ${values.join(", ")}`;
      tip.hidden = false;
    };
    plot.addEventListener("pointermove", (event) => {
      const box = plot.querySelector(".box").getBoundingClientRect();
      show(Math.floor((event.clientX - box.left) / box.width * count));
    });
    plot.addEventListener("pointerleave", () => { tip.hidden = true; });
    plot.addEventListener("blur", () => { tip.hidden = true; });
    plot.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (by) { event.preventDefault(); show(at + by); }
    });
  }

  const table = document.getElementById("clients");
  if (!table) return;
  const body = table.tBodies[0], rows = [...body.rows];
  const search = document.getElementById("search"), found = document.getElementById("found");
  const texts = rows.map((row) => row.cells[0].textContent.toLowerCase());
  const filter = () => {
    const wanted = search.value.trim().toLowerCase();
    rows.forEach((row, index) => { row.hidden = !texts[index].includes(wanted); });
    found.textContent = wanted ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  };
  search.addEventListener("input", filter);
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  };
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    if (heading.className === "still") return;
    const button = document.createElement("button");
    button.textContent = heading.textContent;
    heading.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") !== "descending";
      table.querySelectorAll("[aria-sort]").forEach((each) => each.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const sorted = [...rows].sort((one, other) => {
        const a = value(one, column), b = value(other, column);
        return (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
      });
      body.append(...sorted);
    });
  });
})();
