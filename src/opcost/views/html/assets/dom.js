// Elements made without markup: every text goes in as text, so that no name is ever read as HTML.

export function make(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

export function draw(tag, props = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") element.textContent = value;
    else if (name === "on") for (const [event, act] of Object.entries(value)) element.addEventListener(event, act);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// A group of buttons of which one is chosen; `choices` are [value, title] pairs.
export function switcher(label, choices, chosen, choose) {
  const group = make("div", { class: "switch", role: "group", "aria-label": label });
  const show = (value) => {
    for (const button of group.children) button.setAttribute("aria-pressed", String(button.dataset.value === value));
  };
  for (const [value, title] of choices) {
    group.append(make("button", { type: "button", "data-value": value, text: title, on: { click: () => choose(value) } }));
  }
  show(chosen);
  group.show = show;
  return group;
}

// A drop-down list; `choices` are [value, title] pairs.
export function chooser(label, choices, chosen, choose) {
  const list = make("select", { "aria-label": label, on: { change: () => choose(list.value) } });
  for (const [value, title] of choices) list.append(make("option", { value, text: title }));
  list.value = chosen;
  return list;
}

// What is said to a screen reader when something changes that only eyes would notice.
let voice = null;
export function announce(text) {
  if (!voice) document.body.append((voice = make("div", { class: "unseen", role: "status", "aria-live": "polite" })));
  voice.textContent = text;
}

let tip = null;
export function showTip(event, lines) {
  if (!tip) document.body.append((tip = make("div", { class: "tip", "aria-hidden": "true" })));
  tip.replaceChildren(...lines.map((line, place) => make(place ? "div" : "b", { text: line })));
  tip.hidden = false;
  const room = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, innerWidth - room.width - 8);
  const y = event.clientY + 16 + room.height > innerHeight ? event.clientY - room.height - 10 : event.clientY + 16;
  tip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
}

export function hideTip() {
  if (tip) tip.hidden = true;
}

export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Where a browser keeps the clipboard from a file on the disk, the old way still works.
    const area = make("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
