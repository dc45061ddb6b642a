"use strict";
// A link of a cell or panel shows only its cards, and opens the cell's cases.
const filter = document.getElementById("filter");
const cards = Array.from(document.querySelectorAll(".card"));

function chosen() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

function show() {
  const id = chosen();
  const own = cards.filter((card) => card.dataset.cells.split(" ").includes(id));
  const link = Array.from(document.querySelectorAll(".matrix a, .panel")).find((one) => one.hash.slice(1) === location.hash.slice(1));
  const narrowed = Boolean(link) && own.length > 0;
  for (const card of cards) card.hidden = narrowed && !own.includes(card);
  for (const one of document.querySelectorAll(".chosen")) one.classList.remove("chosen");
  filter.hidden = !narrowed;
  if (link) link.classList.add("chosen");
  if (narrowed) filter.querySelector("strong").textContent = (link.title || link.getAttribute("aria-label") || link.textContent).trim();
  const cases = id && document.getElementById(id);
  if (cases && cases.tagName === "DETAILS") cases.open = true;
  if (narrowed) document.getElementById("cards-title").scrollIntoView();
  else if (cases) cases.scrollIntoView();
}

addEventListener("hashchange", show);
if (location.hash) show();
