// Elements. Every text becomes a text node: names come from clients, who may choose any.

export const $ = (id) => document.getElementById(id);

// h("td", { class: "bad", click: f }, "text", element)
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A name of a client: isolated, so that its direction marks do not turn the text around it.
export const name = (text) => h("bdi", {}, text);

// Children of `parent`: one per record, kept by key. While the pointer or the focus is there, they keep their order,
// so that no click meets another record.
export function keyed(parent, records, key, make, update) {
  const kept = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const held = parent.matches(":focus-within") || (POINTER.matches && parent.matches(":hover"));
  let place = held ? null : parent.firstElementChild;
  for (const record of records) {
    const its = String(key(record));
    const known = kept.get(its);
    const child = known ?? make(record);
    child.dataset.key = its;
    kept.delete(its);
    if (child === place) place = place.nextElementSibling;
    else if (!held || !known) parent.insertBefore(child, place);
    update(child, record);
  }
  for (const child of kept.values()) child.remove();
}

const POINTER = matchMedia("(hover: hover)");
