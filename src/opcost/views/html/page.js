const $data = (() => {
const data = JSON.parse(document.getElementById("data").textContent);
function reader(column) {
if (!column) return () => null;
const { values, words, at } = column;
return values ? (row) => values[row] : (row) => words[at[row]];
}
function unpackTree(told) {
const count = told.parent.length;
const children = Array.from({ length: count }, () => []);
const depth = new Int32Array(count);
const path = new Array(count).fill("");
const name = reader(told.name);
for (let node = 1; node < count; node += 1) {
const parent = told.parent[node];
children[parent].push(node);
depth[node] = depth[parent] + 1;
path[node] = parent ? `${path[parent]}${told.joint}${name(node)}` : name(node);
}
const own = {};
const total = {};
for (const quantity of told.quantities) {
own[quantity.name] = Float64Array.from(quantity.own);
const sums = Float64Array.from(quantity.own);
for (let node = count - 1; node > 0; node -= 1) sums[told.parent[node]] += sums[node];
total[quantity.name] = sums;
}
const byPath = new Map(path.map((text, node) => [text, node]).reverse());
return {
count, children, depth, path, own, total, byPath, parent: told.parent, quantities: told.quantities, noun: told.noun,
name: (node) => (node === 0 ? told.root : name(node)), type: reader(told.type), kinds: told.kinds,
details: (told.details ?? []).map((column) => ({ ...column, of: reader(column) })), partial: told.partial ?? null,
};
}
const tree = data.tree ? unpackTree(data.tree) : null;
const isPartial = (node) => Boolean(tree.partial && tree.total[tree.partial][node] > 0);
function isWithin(node, ancestor) {
for (let at = node; at !== undefined && at >= 0; at = at === 0 ? -1 : tree.parent[at]) if (at === ancestor) return true;
return false;
}
const ops = data.ops
? {
count: data.ops.count,
columns: data.ops.columns.map((column) => ({ ...column, of: reader(column) })),
module: data.ops.module,
of: Object.fromEntries(data.ops.columns.map((column) => [column.name, reader(column)])),
}
: null;
const quantityOf = (name) => tree.quantities.find((quantity) => quantity.name === name);
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800"];
const GREY = "#8a929c";
function coloursOf(keys, weight, fixed = new Map()) {
const sums = new Map();
keys.forEach((key, row) => sums.set(key, (sums.get(key) ?? 0) + weight(row)));
const taken = new Map([...fixed].filter(([key]) => sums.has(key)));
const free = COLOURS.filter((colour) => ![...taken.values()].includes(colour));
const ranked = [...sums].filter(([key, sum]) => key && sum > 0 && !taken.has(key)).sort((a, b) => b[1] - a[1]).slice(0, free.length);
return new Map([...ranked.map(([key], place) => [key, free[place]]), ...taken]);
}
return { data, reader, tree, isPartial, isWithin, ops, quantityOf, COLOURS, GREY, coloursOf };
})();
const $dom = (() => {
function make(tag, props = {}, ...children) {
return fill(document.createElement(tag), props, children);
}
function draw(tag, props = {}, ...children) {
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
function switcher(label, choices, chosen, choose) {
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
function chooser(label, choices, chosen, choose) {
const list = make("select", { "aria-label": label, on: { change: () => choose(list.value) } });
for (const [value, title] of choices) list.append(make("option", { value, text: title }));
list.value = chosen;
return list;
}
let voice = null;
function announce(text) {
if (!voice) document.body.append((voice = make("div", { class: "unseen", role: "status", "aria-live": "polite" })));
voice.textContent = text;
}
let tip = null;
function showTip(event, lines) {
if (!tip) document.body.append((tip = make("div", { class: "tip", "aria-hidden": "true" })));
tip.replaceChildren(...lines.map((line, place) => make(place ? "div" : "b", { text: line })));
tip.hidden = false;
const room = tip.getBoundingClientRect();
const x = Math.min(event.clientX + 14, innerWidth - room.width - 8);
const y = event.clientY + 16 + room.height > innerHeight ? event.clientY - room.height - 10 : event.clientY + 16;
tip.style.transform = `translate(${Math.max(4, x)}px, ${Math.max(4, y)}px)`;
}
function hideTip() {
if (tip) tip.hidden = true;
}
async function copyText(text) {
try {
await navigator.clipboard.writeText(text);
} catch {
const area = make("textarea", { class: "unseen" });
area.value = text;
document.body.append(area);
area.select();
document.execCommand("copy");
area.remove();
}
}
return { make, draw, switcher, chooser, announce, showTip, hideTip, copyText };
})();
const $format = (() => {
const powers = (names, step) => names.map((name, power) => [name, step ** power]);
const COUNTS = powers(["", "K", "M", "G", "T", "P", "E", "Z"], 1000);
const BINARY = powers(["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"], 1024);
const DECIMAL = powers(["B", "kB", "MB", "GB", "TB", "PB", "EB"], 1000);
const TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 6e10], ["h", 3.6e12]];
const NOTHING = "–";
const byteUnits = { chosen: "iec" };
function scaled(number, units, limit) {
if (number < 0) return `-${scaled(-number, units, limit)}`;
for (const [name, size] of units) {
const exact = size === 1 && Number.isInteger(number);
const rounded = exact ? number : Math.floor((number * 100) / size + 0.5 + 1e-9) / 100;
if (rounded < limit || name === units.at(-1)[0]) return `${exact ? number : rounded.toFixed(2)}${name ? ` ${name}` : ""}`;
}
return "";
}
const formatCount = (number) => scaled(number, COUNTS, 1000);
const formatBytes = (number) =>
byteUnits.chosen === "iec" ? scaled(number, BINARY, 1024) : scaled(number, DECIMAL, 1000);
const formatTime = (ns) => scaled(ns, TIMES, 1000);
const formatShare = (share) => `${(100 * share).toFixed(share !== 0 && Math.abs(share) < 0.0995 ? 2 : 1)} %`;
function formatAs(unit, value) {
if (value === null || value === undefined) return "?";
if (typeof value === "string") return value;
switch (unit) {
case "count": return value === 0 ? NOTHING : formatCount(value);
case "bytes": return value === 0 ? NOTHING : formatBytes(value);
case "time": return value === 0 ? NOTHING : formatTime(value);
case "share": return value === 0 ? NOTHING : formatShare(value);
case "flop/s": return `${formatCount(value)}${value >= 1000 ? "" : " "}FLOP/s`;
case "bytes/s": return `${formatBytes(value)}/s`;
case "ratio": return value.toFixed(2);
default: return value.toLocaleString("en-US");
}
}
function formatAmount([number, unit, partial, signed]) {
if (number === 0) return partial ? "?" : NOTHING;
return `${partial ? "≥" : ""}${signed && number > 0 ? "+" : ""}${formatAs(unit, number)}`;
}
return { byteUnits, formatCount, formatBytes, formatTime, formatShare, formatAs, formatAmount };
})();
const $grid = (() => {
const { announce, copyText, make } = $dom;
const { formatAmount, formatAs } = $format;
const LINE = 24;
const MARGIN = 8;
const MOST_PRINTED = 3000;
const SAMPLE = 200;
const PAPER = 715;
const SMALLER = 10 / 13;
const INDENT = 14;
const ROOM = {
name: { least: 120, most: 340 }, text: { least: 60, most: 230 }, shapes: { least: 90, most: 230 }, number: { least: 56, most: 170 },
};
function cellText(column, row) {
const value = column.of(row);
if (Array.isArray(value)) return formatAmount(value);
const text = formatAs(column.unit, value);
return column.mark ? column.mark(row, text) : text;
}
function sortValue(column, row) {
const value = column.of(row);
const plain = Array.isArray(value) ? value[0] : value;
return plain === "" ? null : plain;
}
const isTextual = (column) => ["name", "text", "shapes"].includes(column.unit);
function sortRows(rows, column, rising) {
const keyed = rows.map((row, place) => [sortValue(column, row), place, row]);
keyed.sort((a, b) => {
if (a[0] === null || b[0] === null) return (a[0] === null) - (b[0] === null) || a[1] - b[1];
const order = a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0;
return (rising ? order : -order) || a[1] - b[1];
});
return keyed.map((entry) => entry[2]);
}
class Grid {
constructor(label, columns, owner = {}) {
this.label = label;
this.columns = columns;
this.owner = owner;
this.rows = [];
this.first = -1;
this.lines = [];
this.above = spacer(columns.length);
this.below = spacer(columns.length);
this.body = make("tbody", {}, this.above, this.below);
this.heads = columns.map((column) => this.head(column));
this.table = make(
"table",
{ role: owner.level ? "treegrid" : "grid", "aria-label": label, "aria-colcount": columns.length },
(this.cols = make("colgroup", {}, ...columns.map(() => make("col")))),
make("thead", {}, make("tr", { role: "row" }, ...this.heads)),
this.body,
);
this.element = make("div", { class: "grid", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` }, this.table);
this.element.addEventListener("scroll", () => this.draw());
this.element.addEventListener("keydown", (event) => this.key(event));
this.body.addEventListener("click", (event) => this.click(event));
new ResizeObserver(() => this.draw(true)).observe(this.element);
addEventListener("beforeprint", () => this.print(true));
addEventListener("afterprint", () => this.print(false));
}
head(column) {
const button = make("button", { type: "button", text: column.title, title: column.remark ?? column.title });
button.addEventListener("click", () => this.owner.sort?.(column.name));
return make("th", { scope: "col", role: "columnheader", class: isTextual(column) ? "text" : "" }, button);
}
retitle(name, title) {
const place = this.columns.findIndex((column) => column.name === name);
this.heads[place].firstChild.textContent = title;
}
markSort(name, rising) {
this.columns.forEach((column, place) => {
if (column.name === name) this.heads[place].setAttribute("aria-sort", rising ? "ascending" : "descending");
else this.heads[place].removeAttribute("aria-sort");
});
}
show(rows) {
this.rows = rows;
if (!this.measured && rows.length) this.measure();
this.table.setAttribute("aria-rowcount", rows.length + 1);
this.draw(true);
}
measure() {
this.measured = true;
const some = (rows) => rows.filter((_, place) => place % Math.max(1, Math.floor(rows.length / SAMPLE)) === 0);
const seen = some(this.rows);
const all = this.owner.all ? some(this.owner.all) : seen;
const pen = document.createElement("canvas").getContext("2d");
const { fontFamily, fontSize } = getComputedStyle(document.body);
const wide = (text, weight) => {
pen.font = `${weight} ${fontSize} ${fontFamily}`;
return pen.measureText(text).width;
};
const widths = this.columns.map((column, index) => {
const { least, most } = ROOM[column.unit] ?? ROOM.number;
const indent = (row) => (index === 0 && this.owner.level ? INDENT * (this.owner.level(row) + 1) : 0);
const needs = (row) => indent(row) + wide(cellText(column, row), this.owner.roleOf?.(row) === "total" ? 600 : 400);
const room = 18 + (index ? all : seen).reduce((most, row) => Math.max(most, needs(row)), wide(`${column.title} ▲`, 600));
return Math.round(Math.max(column.least ?? least, Math.min(column.most ?? most, room)));
});
this.widths = widths;
let left = PAPER / SMALLER;
this.fitting = widths.map((width) => (left -= width) >= 0);
this.spread(1);
}
spread(scale) {
this.widths.forEach((width, place) => { this.cols.children[place].style.width = `${width * scale}px`; });
this.table.style.minWidth = scale < 1 ? "0" : `${this.widths.reduce((sum, width) => sum + width, 0)}px`;
}
leaveOut(begins) {
if (!this.measured) return;
this.spread(begins ? SMALLER : 1);
const lacking = this.columns.filter((_, place) => !this.fitting[place]);
if (!lacking.length) return;
const rows = [this.cols, this.heads[0].parentNode, ...this.lines];
for (const row of rows) this.fitting.forEach((fits, place) => { row.children[place].hidden = begins && !fits; });
if (begins) this.element.after((this.remark = make("p", { class: "faint", text: `not on paper: ${lacking.map((column) => column.title).join(", ")}` })));
else this.remark?.remove();
}
reveal(row) {
const place = this.rows.indexOf(row);
if (place < 0) return;
const top = place * LINE;
const { scrollTop, clientHeight } = this.element;
if (top < scrollTop || top > scrollTop + clientHeight - 3 * LINE) this.element.scrollTop = top - clientHeight / 3;
this.draw(true);
}
draw(anew = false) {
if (this.printing) return;
const room = Math.ceil((this.element.clientHeight || 600) / LINE) + 2 * MARGIN;
const first = Math.max(0, Math.min(Math.floor(this.element.scrollTop / LINE) - MARGIN, this.rows.length - room));
if (!anew && Math.abs(first - this.first) < MARGIN / 2) return;
this.first = first;
const held = this.body.contains(document.activeElement);
const end = Math.min(this.rows.length, first + room);
this.lay(first, end);
if (held) this.body.querySelector('tr[tabindex="0"]')?.focus({ preventScroll: true });
}
print(begins) {
this.printing = begins;
if (begins) this.lay(0, Math.min(this.rows.length, MOST_PRINTED));
this.leaveOut(begins);
if (!begins) this.draw(true);
}
lay(first, end) {
let reachable = Math.min(Math.ceil(this.element.scrollTop / LINE), end - 1);
for (let place = first; place < end; place += 1) if (this.owner.isChosen?.(this.rows[place])) reachable = place;
const count = Math.max(0, end - first);
if (this.lines.length !== count) {
while (this.lines.length < count) this.lines.push(this.blank());
this.lines.length = count;
this.body.replaceChildren(this.above, ...this.lines, this.below);
}
space(this.above, first);
space(this.below, this.rows.length - end);
this.lines.forEach((line, at) => this.fill(line, this.rows[first + at], first + at, reachable));
}
blank() {
return make("tr", { role: "row" }, ...this.columns.map((column, index) => make("td", { role: index ? "gridcell" : "rowheader" },
index === 0 && this.owner.level ? make("span", { class: "fold", "aria-hidden": "true" }) : null, "")));
}
fill(line, row, place, reachable) {
const { owner } = this;
const opened = owner.opened ? owner.opened(row) : null;
put(line, "data-place", place);
put(line, "aria-rowindex", place + 2);
put(line, "tabindex", place === reachable ? "0" : "-1");
put(line, "aria-level", owner.level ? owner.level(row) + 1 : null);
put(line, "aria-expanded", opened === null ? null : String(opened));
put(line, "aria-selected", owner.select ? String(Boolean(owner.isChosen?.(row))) : null);
put(line, "class", owner.roleOf?.(row) || null);
this.columns.forEach((column, index) => {
const cell = line.children[index];
const text = cellText(column, row);
const value = column.of(row);
const change = Array.isArray(value) && value[3] ? (value[0] > 0 ? " more" : value[0] < 0 ? " less" : " same") : "";
put(cell, "class", classOf(column) + change);
put(cell, "title", text.length > 14 ? text : null);
if (index === 0 && owner.level) {
cell.style.paddingLeft = `${6 + INDENT * owner.level(row)}px`;
cell.firstChild.textContent = opened === null ? "" : opened ? "▾" : "▸";
}
if (column.part) cell.style.backgroundSize = `${(100 * Math.max(0, Math.min(1, column.part(row) || 0))).toFixed(2)}% 100%`;
if (cell.lastChild.data !== text) cell.lastChild.data = text;
});
}
click(event) {
const line = event.target.closest("tr[data-place]");
if (!line) return;
const row = this.rows[Number(line.dataset.place)];
if (event.target.classList.contains("fold")) this.owner.toggle?.(row);
else this.choose(row);
}
choose(row) {
this.owner.select?.(row);
this.draw(true);
this.body.querySelector('tr[aria-selected="true"]')?.focus({ preventScroll: true });
}
key(event) {
if (event.ctrlKey || event.metaKey || event.altKey) return;
const line = event.target.closest?.("tr[data-place]") ?? this.body.querySelector('tr[tabindex="0"]');
if (!line || !this.owner.select) return;
const place = Number(line.dataset.place);
const row = this.rows[place];
const page = Math.max(1, Math.floor(this.element.clientHeight / LINE) - 2);
const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.rows.length, End: this.rows.length };
if (event.key in moves) {
const next = this.rows[Math.max(0, Math.min(this.rows.length - 1, place + moves[event.key]))];
this.owner.select(next);
this.reveal(next);
this.body.querySelector('tr[aria-selected="true"]')?.focus({ preventScroll: true });
} else if (event.key === "ArrowRight" && this.owner.opened?.(row) === false) this.owner.toggle(row);
else if (event.key === "ArrowLeft" && this.owner.opened?.(row) === true) this.owner.toggle(row);
else if (event.key === "Enter" || event.key === " ") this.owner.opened?.(row) === null ? this.choose(row) : this.owner.toggle?.(row);
else return;
event.preventDefault();
}
markdown() {
const tame = (text) => text.replace(/[\\`*_[\]<>&|~#]/g, (found) => (found === "<" ? "&lt;" : `\\${found}`)).replace(/\s/g, " ");
const indent = (row, place) => (place === 0 && this.owner.level ? "\u00a0\u00a0".repeat(this.owner.level(row)) : "");
const lines = [
this.columns.map((column) => tame(titleOf(this, column))),
this.columns.map((column) => (isTextual(column) ? "---" : "---:")),
...this.rows.map((row) => this.columns.map((column, place) => indent(row, place) + tame(cellText(column, row)))),
];
return lines.map((cells) => `| ${cells.join(" | ")} |\n`).join("");
}
csv() {
const tame = (text) => (/^[\s'"`]*[=+\-@＝＋－＠]/.test(text) ? `'${text}` : text);
const written = (value) => {
const plain = Array.isArray(value) ? value[0] : value;
if (plain === null || plain === undefined) return "";
if (typeof plain === "number") return String(plain);
return /[",\n\r]/.test(plain) ? `"${tame(plain).replaceAll('"', '""')}"` : tame(plain);
};
const lines = [
this.columns.map((column) => written(column.title || column.name)),
...this.rows.map((row) => this.columns.map((column) => written(column.full ? column.full(row) : column.of(row)))),
];
return lines.map((cells) => `${cells.join(",")}\n`).join("");
}
copyButtons() {
const button = (title, write) =>
make("button", {
type: "button", class: "plain", text: title, "aria-label": `Copy ${this.label} as ${title}`,
on: {
click: async (event) => {
await copyText(write());
announce(`${this.rows.length} lines copied as ${title}`);
event.target.textContent = "copied";
setTimeout(() => { event.target.textContent = title; }, 1200);
},
},
});
return make("span", { class: "copy" }, button("Markdown", () => this.markdown()), button("CSV", () => this.csv()));
}
}
function titleOf(grid, column) {
return grid.heads[grid.columns.indexOf(column)].firstChild.textContent;
}
function classOf(column) {
return `${isTextual(column) ? "text" : "number"}${column.part ? " bar" : ""}${column.name === "note" ? " flag" : ""}`;
}
function put(element, name, value) {
if (value === null) element.removeAttribute(name);
else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value);
}
const spacer = (columns) => make("tr", { "aria-hidden": "true", class: "spacer" }, make("td", { colspan: columns, style: { padding: "0", border: "0" } }));
function space(line, count) {
line.hidden = count <= 0;
line.firstChild.style.height = `${Math.max(0, count) * LINE}px`;
}
return { LINE, cellText, sortValue, isTextual, sortRows, Grid };
})();
const $state = (() => {
const USUAL = {
view: "", sel: "", q: "", sort: "", part: "total", qty: "", shape: "", zoom: "", bytes: "iec", work: "macs",
theme: "auto", open: "", dev: "", dtype: "", graph: "", from: "", to: "", tsort: "", oq: "", only: "", tables: "", csort: "", copen: "", changed: "",
};
const state = { ...USUAL };
const listeners = [];
let waiting = false;
function setState(changes) {
const changed = Object.keys(changes).filter((name) => state[name] !== changes[name]);
if (!changed.length) return;
Object.assign(state, changes);
const names = new Set(changed);
for (const listen of listeners) listen(names);
if (!waiting) {
waiting = true;
setTimeout(writeAddress, 150);
}
}
function whenChanged(listen) {
listeners.push(listen);
}
function readAddress() {
const told = new URLSearchParams(location.hash.slice(1));
const found = {};
for (const name of Object.keys(USUAL)) found[name] = told.get(name) ?? USUAL[name];
return found;
}
function writeAddress() {
waiting = false;
const told = new URLSearchParams();
for (const [name, value] of Object.entries(state)) if (value !== USUAL[name]) told.set(name, value);
const text = told.toString();
if (text !== location.hash.slice(1)) history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
}
function followAddress() {
Object.assign(state, readAddress());
addEventListener("hashchange", () => setState(readAddress()));
}
function tableState(place) {
const found = state.tables.split("|").map((entry) => entry.split("~")).find(([name]) => name === String(place));
return { sort: found?.[1] ?? "", find: decoded(found?.[2] ?? "") };
}
function decoded(text) {
try {
return decodeURIComponent(text);
} catch {
return "";
}
}
function setTableState(place, { sort, find }) {
const others = state.tables.split("|").filter((entry) => entry && entry.split("~")[0] !== String(place));
const own = sort || find ? [`${place}~${sort}~${encodeURIComponent(find).replaceAll("~", "%7E")}`] : [];
setState({ tables: [...others, ...own].join("|") });
}
return { state, setState, whenChanged, readAddress, followAddress, tableState, setTableState };
})();
const $compared = (() => {
const { data } = $data;
const { chooser, make } = $dom;
const { formatAs } = $format;
const { Grid, isTextual, LINE, sortRows } = $grid;
const { setState, state, whenChanged } = $state;
const amountsOf = (unit, read) => data.compared.sources.map((label, place) => ({
name: `source${place}`, title: label.split("/").at(-1), remark: label, unit, of: (row) => read(row)[place], mark: (row, text) => (read(row)[place] === null ? "" : text),
}));
function changesOf(read, unitOf) {
const both = (row) => [read(row)[0], read(row).at(-1)];
return [
{
name: "difference", title: "difference", unit: "number",
of: (row) => {
const [first, last] = both(row);
return first === null && last === null ? "" : [(last ?? 0) - (first ?? 0), unitOf(row), false, true];
},
},
{
name: "relative", title: "change", unit: "share",
of: (row) => {
const [first, last] = both(row);
if (first === null || last === null) return first === null && last === null ? "" : first === null ? "added" : "removed";
return first ? (last - first) / first : last ? "added" : 0;
},
mark: (row, text) => (/^[\d.]/.test(text) ? `+${text}` : text),
},
];
}
function totalsPanel() {
const { totals } = data.compared;
const read = (row) => totals[row].amounts;
const columns = [
{ name: "quantity", title: "quantity", unit: "name", of: (row) => totals[row].title },
...amountsOf("count", read).map((column, place) => ({
...column, of: (row) => (read(row)[place] === null ? null : [read(row)[place], totals[row].unit, totals[row].partial[place], false]),
part: (row) => (read(row)[place] ?? 0) / Math.max(1, ...read(row).map((amount) => amount ?? 0)), mark: undefined,
})),
...changesOf(read, (row) => totals[row].unit),
];
const grid = new Grid("totals", columns);
grid.element.style.height = `${totals.length * LINE + 34}px`;
grid.show(totals.map((_, row) => row));
whenChanged((names) => names.has("bytes") && grid.draw(true));
return make("section", { class: "panel table", "aria-label": "Totals" }, make("div", { class: "tools" }, make("h2", { text: "Totals" }), grid.copyButtons()), grid.element);
}
function comparedModulesPanel() {
const { paths, types, quantities } = data.compared;
const at = new Map(paths.map((path, row) => [path, row]));
const parent = paths.map((path) => {
for (let up = path; up.includes(".");) {
up = up.slice(0, up.lastIndexOf("."));
if (at.has(up)) return at.get(up);
}
return -1;
});
const children = paths.map(() => []);
parent.forEach((up, row) => up >= 0 && children[up].push(row));
const level = (row) => (parent[row] < 0 ? 0 : level(parent[row]) + 1);
const opened = () => new Set(state.copen.split(".").filter(Boolean).map((text) => parseInt(text, 36)));
const quantity = () => quantities.find((one) => one.name === state.qty) ?? quantities[0];
const read = (row) => quantity().amounts[row];
const onlyChanged = make("input", { type: "checkbox" });
const columns = [
{ name: "name", title: "module", unit: "name", least: 240, of: (row) => (parent[row] < 0 ? paths[row] : paths[row].slice(paths[parent[row]].length + 1)), full: (row) => paths[row] },
...(types.some(Boolean) ? [{ name: "type", title: "type", unit: "text", of: (row) => types[row] }] : []),
...amountsOf(quantities[0].unit, read).map((column) => ({ ...column, mark: (row, text) => (column.of(row) === null ? "" : formatAs(quantity().unit, column.of(row)) || text) })),
...changesOf(read, () => quantity().unit),
];
let chosen = -1;
const grid = new Grid("modules compared", columns, {
level, opened: (row) => (children[row].length ? opened().has(row) : null), select: (row) => { chosen = row; }, isChosen: (row) => row === chosen,
toggle: (row) => {
const now = opened();
if (!now.delete(row)) now.add(row);
setState({ copen: [...now].map((one) => one.toString(36)).join(".") });
},
sort: (name) => {
const rising = state.csort.slice(1) === name ? state.csort[0] !== "+" : isTextual(columns.find((one) => one.name === name));
setState({ csort: `${rising ? "+" : "-"}${name}` });
},
});
const changed = (row) => read(row)[0] !== read(row).at(-1);
function show() {
const column = columns.find((one) => one.name === state.csort.slice(1));
const rising = state.csort[0] === "+";
const ordered = (rows) => (column ? sortRows(rows, column, rising) : rows);
const now = opened();
onlyChanged.checked = Boolean(state.changed);
grid.markSort(column?.name, rising);
const walk = [...ordered(paths.map((_, row) => row).filter((row) => parent[row] < 0))].reverse();
const rows = [];
while (walk.length) {
const row = walk.pop();
if (onlyChanged.checked && !changed(row)) continue;
rows.push(row);
if (now.has(row)) walk.push(...[...ordered(children[row])].reverse());
}
grid.element.style.height = `${Math.min(rows.length * LINE + 34, 620)}px`;
grid.show(rows);
}
onlyChanged.addEventListener("change", () => setState({ changed: onlyChanged.checked ? "yes" : "" }));
const list = chooser("Amounts are", quantities.map((one) => [one.name, one.title]), quantity().name, (qty) => setState({ qty }));
whenChanged((names) => {
if (names.has("qty")) list.value = quantity().name;
if (["qty", "bytes", "csort", "copen", "changed"].some((name) => names.has(name))) show();
});
show();
return make("section", { class: "panel table", "aria-label": "Modules" },
make("div", { class: "tools" }, make("h2", { text: "Modules" }), list, make("label", {}, onlyChanged, " only what differs"), grid.copyButtons()), grid.element);
}
return { totalsPanel, comparedModulesPanel };
})();
const $selection = (() => {
const { ops, tree } = $data;
const { announce } = $dom;
const { setState, state } = $state;
function choose(node) {
setState({ sel: node > 0 ? tree.path[node] : node === 0 ? "/" : "" });
if (node >= 0) announce(`${tree.name(node)} ${tree.type(node) ?? ""} chosen`);
}
function chooseOperator(row) {
setState({ sel: `#${row}` });
announce(`operator ${row + 1} chosen`);
}
function chosenOperator() {
const row = /^#\d+$/.test(state.sel) ? Number(state.sel.slice(1)) : -1;
return ops && row < ops.count ? row : -1;
}
function chosenNode() {
if (!state.sel || !tree) return -1;
const row = chosenOperator();
if (row >= 0) return ops.module[row];
return state.sel === "/" ? 0 : (tree.byPath.get(state.sel) ?? -1);
}
return { choose, chooseOperator, chosenOperator, chosenNode };
})();
const $details = (() => {
const { isPartial, ops, tree } = $data;
const { make } = $dom;
const { formatAs, formatShare } = $format;
const { cellText } = $grid;
const { chosenNode, chosenOperator } = $selection;
const { whenChanged } = $state;
function detailsPanel() {
const strip = make("section", { class: "panel details", "aria-label": "What is chosen" });
const show = () => {
const operator = chosenOperator();
const node = chosenNode();
if (node < 0) strip.replaceChildren(make("p", { class: "faint", text: "Choose a line, an area or a point to see all that is known of it here." }));
else strip.replaceChildren(...(operator >= 0 ? ofOperator(operator) : ofNode(node)));
};
whenChanged((names) => (names.has("sel") || names.has("bytes")) && show());
show();
return strip;
}
const entry = (name, value) => make("div", {}, make("dt", { text: name }), make("dd", { text: value }));
function ofNode(node) {
const amounts = tree.quantities.filter((quantity) => tree.total[quantity.name][node]).map((quantity) => {
const total = tree.total[quantity.name][node];
const own = tree.own[quantity.name][node];
const least = quantity.priced && isPartial(node) ? "≥" : "";
const share = tree.total[quantity.name][0];
const ownText = tree.children[node].length && own ? `, own ${formatAs(quantity.unit, own)}` : "";
return entry(quantity.title, `${least}${formatAs(quantity.unit, total)} (${formatShare(total / share)}${ownText})`);
});
const further = tree.details.map((column) => [column.title, column.of(node)]).filter(([, value]) => value !== "" && value !== null && value !== undefined);
return [
make("h2", { text: node ? tree.path[node] : tree.name(0) }),
make("dl", {}, ...(tree.type(node) ? [entry("type", tree.type(node))] : []), ...further.map(([title, value]) => entry(title, String(value))), ...amounts),
];
}
function ofOperator(row) {
const shown = ops.columns.filter((column) => !["", null].includes(column.of(row)) || column.name === "flops");
return [
make("h2", { text: `operator ${row + 1}` }),
make("dl", {}, entry("module", tree.path[ops.module[row]] || tree.name(0)), ...shown.map((column) => entry(column.title || column.name, cellText(column, row)))),
];
}
return { detailsPanel };
})();
const $layers = (() => {
const SWEEPS = 6;
const MOST_BENDS = 60000;
function layered(nodes, edges, { gapX = 26, gapY = 36, height = 40 } = {}) {
const count = nodes.length;
const layer = new Int32Array(count);
const incoming = Array.from({ length: count }, () => []);
edges.forEach(([from, to]) => incoming[to].push(from));
for (let node = 0; node < count; node += 1) for (const from of incoming[node]) layer[node] = Math.max(layer[node], layer[from] + 1);
drawDown(layer, incoming, edges);
const widths = nodes.map((node) => node.width);
const layers = [...layer];
const chains = [];
const spans = edges.reduce((sum, [from, to]) => sum + layer[to] - layer[from] - 1, 0);
for (const [from, to] of edges) {
const chain = [from];
if (spans <= MOST_BENDS) {
for (let at = layer[from] + 1; at < layer[to]; at += 1) {
chain.push(widths.length);
widths.push(6);
layers.push(at);
}
}
chain.push(to);
chains.push(chain);
}
const above = Array.from({ length: widths.length }, () => []);
const below = Array.from({ length: widths.length }, () => []);
for (const chain of chains) {
for (let at = 1; at < chain.length; at += 1) {
above[chain[at]].push(chain[at - 1]);
below[chain[at - 1]].push(chain[at]);
}
}
const rows = [];
layers.forEach((at, node) => (rows[at] ??= []).push(node));
const order = new Float64Array(widths.length);
rows.forEach((row) => row.forEach((node, place) => { order[node] = place; }));
for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
const down = sweep % 2 === 0;
const near = down ? above : below;
for (const row of down ? rows : [...rows].reverse()) {
const middle = new Map(row.map((node) => [node, near[node].length ? mean(near[node], order) : order[node]]));
row.sort((a, b) => middle.get(a) - middle.get(b) || order[a] - order[b]);
row.forEach((node, place) => { order[node] = place; });
}
}
const x = placed(rows, widths, above, below, gapX);
const titles = new Float64Array(rows.length);
nodes.forEach((node, place) => { titles[layer[place]] = Math.max(titles[layer[place]], node.titles ?? 0); });
const tops = [0];
for (let at = 1; at < rows.length; at += 1) tops.push(tops[at - 1] + height + gapY + titles[at]);
const y = layers.map((at) => tops[at]);
return {
x: Array.from({ length: count }, (_, node) => x[node]), y: y.slice(0, count), height,
bends: chains.map((chain) => chain.map((node) => [x[node], y[node]])), width: Math.max(...x.map((at, node) => at + widths[node] / 2), 0),
depth: tops.at(-1) + height + gapY,
};
}
function drawDown(layer, incoming, edges) {
const outgoing = incoming.map(() => []);
edges.forEach(([from, to]) => outgoing[from].push(to));
const prepares = incoming.map(() => false);
incoming.forEach((before, node) => { prepares[node] = before.every((from) => prepares[from] && outgoing[from].length === 1); });
for (let node = layer.length - 1; node >= 0; node -= 1) {
if (!outgoing[node].length || !(prepares[node] || outgoing[node].length > incoming[node].length)) continue;
layer[node] = outgoing[node].reduce((least, to) => Math.min(least, layer[to]), Infinity) - 1;
}
}
function mean(nodes, values) {
let sum = 0;
for (const node of nodes) sum += values[node];
return sum / nodes.length;
}
function placed(rows, widths, above, below, gap) {
const x = new Float64Array(widths.length);
for (const row of rows) {
let at = 0;
for (const node of row) {
x[node] = at + widths[node] / 2;
at += widths[node] + gap;
}
}
for (let sweep = 0; sweep < 2 * SWEEPS; sweep += 1) {
const near = sweep % 2 === 0 ? above : below;
for (const row of sweep % 2 === 0 ? rows : [...rows].reverse()) {
const wish = row.map((node) => (near[node].length ? mean(near[node], x) : x[node]));
const right = [...wish];
for (let at = 1; at < row.length; at += 1) right[at] = Math.max(right[at], right[at - 1] + (widths[row[at - 1]] + widths[row[at]]) / 2 + gap);
const left = [...wish];
for (let at = row.length - 2; at >= 0; at -= 1) left[at] = Math.min(left[at], left[at + 1] - (widths[row[at]] + widths[row[at + 1]]) / 2 - gap);
row.forEach((node, at) => { x[node] = (right[at] + left[at]) / 2; });
}
}
const least = Math.min(...rows.flat().map((node) => x[node] - widths[node] / 2), Infinity);
return Array.from(x, (at) => at - least);
}
return { layered };
})();
const $areas = (() => {
const LEAST = 3;
const TITLE = 15;
function squarify(sizes, x, y, width, height) {
const sum = sizes.reduce((total, size) => total + size, 0);
const boxes = new Array(sizes.length);
const order = sizes.map((_, place) => place).sort((a, b) => sizes[b] - sizes[a]);
const scale = sum > 0 ? (width * height) / sum : 0;
let start = 0;
while (start < order.length) {
const side = Math.min(width, height);
let end = start;
let area = 0;
let worst = Infinity;
while (end < order.length) {
const next = area + sizes[order[end]] * scale;
const largest = sizes[order[start]] * scale;
const smallest = sizes[order[end]] * scale;
const ratio = Math.max((side * side * largest) / (next * next), (next * next) / (side * side * smallest));
if (!(ratio <= worst) && end > start) break;
worst = ratio;
area = next;
end += 1;
}
const thick = side > 0 ? area / side : 0;
let along = 0;
for (let place = start; place < end; place += 1) {
const length = thick > 0 ? (sizes[order[place]] * scale) / thick : 0;
boxes[order[place]] = width >= height ? [x, y + along, thick, length] : [x + along, y, length, thick];
along += length;
}
if (width >= height) [x, width] = [x + thick, width - thick];
else [y, height] = [y + thick, height - thick];
start = end;
}
return boxes;
}
function treemapAreas(tree, root, width, height) {
const areas = [];
const place = (node, depth, x, y, w, h) => {
const children = tree.children(node);
const own = children.length ? tree.own(node) : 0;
areas.push({ node, depth, x, y, w, h, leaf: !children.length, own: false });
if (!children.length) return;
const title = h > 3 * TITLE && w > 40 ? TITLE : 0;
const pad = Math.min(w, h) > 24 ? 2 : 0;
const room = [x + pad, y + title + (title ? 0 : pad), w - 2 * pad, h - title - (title ? pad : 2 * pad)];
if (room[2] < LEAST || room[3] < LEAST) return;
const parts = [...children, ...(own > 0 ? [-1] : [])];
squarify(parts.map((part) => (part < 0 ? own : tree.size(part))), ...room).forEach((box, at) => {
if (!box || box[2] < 0.8 || box[3] < 0.8) return;
if (parts[at] < 0) areas.push({ node, depth: depth + 1, x: box[0], y: box[1], w: box[2], h: box[3], leaf: true, own: true });
else if (box[2] < LEAST || box[3] < LEAST) areas.push({ node: parts[at], depth: depth + 1, x: box[0], y: box[1], w: box[2], h: box[3], leaf: true, own: false });
else place(parts[at], depth + 1, ...box);
});
};
if (tree.size(root) > 0) place(root, 0, 0, 0, width, height);
return areas;
}
function icicleAreas(tree, root, width, line) {
const areas = [];
const whole = tree.size(root);
const place = (node, depth, x, w) => {
areas.push({ node, depth, x, y: depth * line, w, h: line, leaf: !tree.children(node).length, own: false });
let at = x;
for (const child of tree.children(node)) {
const part = (tree.size(child) / whole) * width;
if (part >= 0.6) place(child, depth + 1, at, part);
at += part;
}
};
if (whole > 0) place(root, 0, 0, width);
return areas;
}
function flameAreas(tree, root, width, line, height) {
return icicleAreas(tree, root, width, line).map((area) => ({ ...area, y: height - (area.depth + 1) * line }));
}
return { squarify, treemapAreas, icicleAreas, flameAreas };
})();
const $modules = (() => {
const { isPartial, quantityOf, tree } = $data;
const { chooser, make, switcher } = $dom;
const { formatAs } = $format;
const { Grid, isTextual, sortRows } = $grid;
const { chosenNode, choose } = $selection;
const { setState, state, whenChanged } = $state;
const ROOM = 40;
const workName = (name) => (name === "macs" && quantityOf("flops") ? state.work : name);
function treePanel() {
const opened = usualOpen();
const own = () => state.part === "own";
const amount = (name, node) => (own() ? tree.own : tree.total)[workName(name)][node];
const numbers = tree.quantities.filter((quantity) => quantity.name !== "flops" || !quantityOf("macs")).map((quantity) => ({
name: quantity.name, title: quantity.title, unit: quantity.unit, remark: quantity.remark,
of: (node) => amount(quantity.name, node),
part: quantity.unit === "number" ? null : (node) => amount(quantity.name, node) / tree.total[workName(quantity.name)][0],
mark: (node, text) => (quantity.priced && isPartial(node) ? (text === "–" ? "?" : `≥${text}`) : text),
}));
const columns = [
{
name: "name", title: tree.noun, unit: "name", least: 180, most: 260, of: tree.name,
full: (node) => (node ? tree.path[node] : tree.name(0)),
},
...(hasTypes() ? [{ name: "type", title: "type", unit: "text", of: tree.type, most: 130 }] : []),
...numbers,
...tree.details.filter((column) => column.shown),
];
const grid = new Grid(`${tree.noun} tree`, columns, {
all: Array.from({ length: tree.count }, (_, node) => node),
level: (node) => (state.q ? 0 : tree.depth[node]),
opened: (node) => (state.q || !tree.children[node].length ? null : opened.has(node)),
toggle: (node) => {
if (opened.has(node)) opened.delete(node);
else opened.add(node);
keepOpen(opened);
show();
},
select: choose,
isChosen: (node) => node === chosenNode(),
roleOf: (node) => (isPartial(node) ? "partial" : ""),
sort: (name) => {
const [was, rising] = sorting();
const next = name === was ? !rising : isTextual(columns.find((column) => column.name === name));
setState({ sort: `${next ? "+" : "-"}${name}` });
},
});
const search = make("input", { type: "search", placeholder: "find: words, all of them", "aria-label": `Find a ${tree.noun}` });
search.value = state.q;
search.addEventListener("input", () => setState({ q: search.value.trim().toLowerCase() }));
const told = make("output");
const deepest = Math.max(...tree.depth);
const levels = [["", "open to…"], ...Array.from({ length: Math.min(deepest, 9) + 1 }, (_, level) => [String(level), `level ${level}`]), ["all", "all levels"]];
const toLevel = chooser("Open to a level", levels, "", (level) => {
if (!level) return;
opened.clear();
for (let node = 0; node < tree.count; node += 1) if (level === "all" || tree.depth[node] < Number(level)) opened.add(node);
keepOpen(opened);
toLevel.value = "";
show();
});
const parts = switcher("Amounts", [["total", "total"], ["own", "own"]], state.part, (part) => setState({ part }));
function sorting() {
return state.sort ? [state.sort.slice(1), state.sort[0] === "+"] : ["", false];
}
function show() {
const [name, rising] = sorting();
const column = columns.find((one) => one.name === name);
const ordered = (nodes) => (column ? sortRows(nodes, column, rising) : nodes);
grid.markSort(column ? name : "", rising);
if (quantityOf("macs") && quantityOf("flops")) grid.retitle("macs", quantityOf(state.work).title);
const rows = state.q ? ordered(found(state.q)) : [];
if (!state.q) {
const walk = [0];
while (walk.length) {
const node = walk.pop();
rows.push(node);
if (opened.has(node)) walk.push(...[...ordered(tree.children[node])].reverse());
}
}
told.textContent = `${rows.length.toLocaleString("en-US")} of ${tree.count.toLocaleString("en-US")}`;
grid.show(rows);
}
whenChanged((names) => {
if (names.has("q") && search.value.trim().toLowerCase() !== state.q) search.value = state.q;
if (names.has("part")) parts.show(state.part);
if (names.has("open")) {
const told = usualOpen();
opened.clear();
for (const node of told) opened.add(node);
}
if (["q", "sort", "part", "work", "bytes", "open"].some((name) => names.has(name))) show();
if (names.has("sel")) {
const node = chosenNode();
if (node >= 0 && !state.q) openTo(node, opened);
show();
if (node >= 0) grid.reveal(node);
}
});
show();
if (chosenNode() > 0) {
openTo(chosenNode(), opened);
show();
requestAnimationFrame(() => grid.reveal(chosenNode()));
}
return make("section", { class: "panel tree", "aria-label": `${tree.noun}s` },
make("div", { class: "tools" }, search, told, toLevel, parts, grid.copyButtons()), grid.element);
}
const hasTypes = () => tree.kinds !== false;
function found(query) {
const words = query.split(/\s+/);
const rows = [];
for (let node = 0; node < tree.count; node += 1) {
const text = `${tree.path[node]} ${tree.type(node) ?? ""}`.toLowerCase();
if (words.every((word) => text.includes(word))) rows.push(node);
}
return rows;
}
function usualOpen() {
if (state.open) return new Set(state.open.split(".").map((text) => parseInt(text, 36)).filter((node) => node >= 0 && node < tree.count));
const opened = new Set();
let level = [0];
let lines = 1;
while (level.length) {
const next = level.flatMap((node) => tree.children[node]);
if (lines + next.length > ROOM && lines > 1) break;
level.forEach((node) => opened.add(node));
lines += next.length;
level = next;
}
return opened;
}
const MOST_KEPT = 400;
function keepOpen(opened) {
if (opened.size <= MOST_KEPT) setState({ open: [...opened].map((node) => node.toString(36)).join(".") || "-" });
}
function openTo(node, opened) {
for (let at = tree.parent[node]; at !== undefined && at >= 0; at = at === 0 ? -1 : tree.parent[at]) opened.add(at);
}
function detailLines(node) {
const lines = [node ? tree.path[node] : tree.name(0)];
if (tree.type(node)) lines.push(tree.type(node));
for (const quantity of tree.quantities) {
const total = tree.total[quantity.name][node];
if (total) lines.push(`${quantity.title}: ${formatAs(quantity.unit, total)}`);
}
return lines;
}
return { workName, treePanel, detailLines };
})();
const $map = (() => {
const { flameAreas, icicleAreas, treemapAreas } = $areas;
const { coloursOf, GREY, isWithin, quantityOf, tree } = $data;
const { announce, chooser, draw, hideTip, make, showTip, switcher } = $dom;
const { formatAs, formatShare } = $format;
const { detailLines } = $modules;
const { choose, chosenNode } = $selection;
const { setState, state, whenChanged } = $state;
const LETTER = 6.3;
const LOWEST = 20;
const HIGHEST = 32;
const MOSTLY = 0.8;
const SHAPES = ["treemap", "icicle", "flame"];
function mapPanel() {
const sized = tree.quantities.filter((quantity) => quantity.name !== tree.partial && tree.total[quantity.name][0] > 0);
const usual = (sized.find((quantity) => quantity.usual) ?? sized[0])?.name;
const chosen = () => (sized.some((quantity) => quantity.name === state.qty) ? state.qty : usual);
const quantities = chooser("Area is", sized.map((quantity) => [quantity.name, quantity.title]), chosen(), (qty) => setState({ qty }));
const usualShape = quantityOf(usual)?.unit === "time" ? "flame" : "treemap";
const shapeOf = () => (SHAPES.includes(state.shape) ? state.shape : usualShape);
const shapes = switcher("Shape", SHAPES.map((shape) => [shape, shape]), shapeOf(), (shape) => setState({ shape }));
const trail = make("nav", { class: "trail", "aria-label": "Where the map is" });
const legend = make("div", { class: "legend" });
const picture = draw("svg", { class: "map", role: "group", "aria-label": "Map of the tree", tabindex: "0" });
const frame = make("div", { class: "picture" }, picture);
const types = Array.from({ length: tree.count }, (_, node) => tree.type(tree.type(node) === "kernel" ? tree.parent[node] : node));
let fork = 0;
while (tree.children[fork].length === 1) [fork] = tree.children[fork];
const root = () => (state.zoom ? (tree.byPath.get(state.zoom) ?? 0) : 0);
const zoom = (node) => {
if (!tree.children[node].length) return;
setState({ zoom: node ? tree.path[node] : "" });
announce(`map of ${tree.name(node)}`);
};
let areas = [];
function coloured(own, whole) {
const sums = new Map();
types.forEach((type, node) => sums.set(type, (sums.get(type) ?? 0) + own[node]));
if (Math.max(...sums.values()) < MOSTLY * whole) return types;
return types.map((_, node) => {
let at = node;
while (at && tree.parent[at] !== fork) at = at ? tree.parent[at] : 0;
return at ? tree.name(at) : "";
});
}
function show() {
if (!frame.offsetParent || !usual) return;
const quantity = quantityOf(chosen());
const total = tree.total[quantity.name];
const own = tree.own[quantity.name];
const shape = {
children: (node) => tree.children[node].filter((child) => total[child] > 0),
size: (node) => total[node], own: (node) => own[node],
};
const top = root();
const width = Math.max(200, frame.clientWidth);
const space = Math.max(220, frame.clientHeight);
const levels = shapeOf() === "treemap" ? 1 : icicleAreas(shape, top, width, LOWEST).reduce((most, area) => Math.max(most, area.depth + 1), 1);
const level = Math.max(LOWEST, Math.min(HIGHEST, Math.floor(space / levels)));
const height = Math.max(space, levels * level);
areas = {
treemap: () => treemapAreas(shape, top, width, space), icicle: () => icicleAreas(shape, top, width, level),
flame: () => flameAreas(shape, top, width, level, height),
}[shapeOf()]();
const keys = coloured(own, total[0]);
const colours = coloursOf(keys, (node) => own[node]);
const at = chosenNode();
picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
picture.setAttribute("height", height);
const turned = shapeOf() === "flame" && picture.dataset.turned !== String(height);
picture.replaceChildren(...areas.map((area, place) => areaShape(area, place, keys, colours, at, quantity)));
if (turned) frame.scrollTop = height;
picture.dataset.turned = shapeOf() === "flame" ? height : "";
legend.replaceChildren(
...[...colours].map(([type, colour]) => key(type, colour)), key("other", GREY),
make("span", { class: "faint", text: `${quantity.title}: ${formatAs(quantity.unit, total[top])} in all` }),
);
trail.replaceChildren(...trailOf(top).map((node) =>
make("button", { type: "button", class: "plain", text: tree.name(node), "aria-current": node === top ? "true" : null, on: { click: () => zoom(node) } })));
}
function areaShape(area, place, keys, colours, at, quantity) {
const shade = colours.get(keys[area.node]);
const inner = !area.leaf && (shapeOf() === "treemap" || !shade);
const share = tree.total[quantity.name][area.node] / tree.total[quantity.name][0];
const group = draw("g", { class: `area${inner ? " inner" : ""}${at >= 0 && area.node === at ? " chosen" : ""}`, "data-place": place });
group.append(draw("rect", {
x: area.x + 0.5, y: area.y + 0.5, width: Math.max(0.3, area.w - 1), height: Math.max(0.3, area.h - 1),
fill: inner ? "var(--raised)" : (shade ?? GREY),
}));
const room = Math.floor((area.w - 8) / LETTER);
if (room >= 3 && area.h >= 13) {
const name = area.own ? "own" : tree.name(area.node);
const said = `${name}  ${formatShare(share)}`;
const text = said.length <= room || inner ? said : name;
group.append(draw("text", { x: area.x + 4, y: area.y + (shapeOf() !== "treemap" ? area.h / 2 + 4 : inner ? 11.5 : Math.min(area.h - 3, 14)), text: text.length > room ? `${text.slice(0, room - 1)}…` : text }));
}
return group;
}
const areaOf = (event) => areas[Number(event.target.closest?.("g.area")?.dataset.place)];
picture.addEventListener("click", (event) => areaOf(event) && choose(areaOf(event).node));
picture.addEventListener("dblclick", (event) => areaOf(event) && zoom(areaOf(event).leaf ? tree.parent[areaOf(event).node] : areaOf(event).node));
picture.addEventListener("pointermove", (event) => (areaOf(event) ? showTip(event, detailLines(areaOf(event).node)) : hideTip()));
picture.addEventListener("pointerleave", hideTip);
picture.addEventListener("keydown", (event) => {
const at = chosenNode() >= 0 ? chosenNode() : root();
const siblings = at ? tree.children[tree.parent[at]] : [0];
const step = (by) => choose(siblings[Math.max(0, Math.min(siblings.length - 1, siblings.indexOf(at) + by))]);
const moves = {
ArrowRight: () => step(1), ArrowLeft: () => step(-1), ArrowUp: () => at && choose(tree.parent[at]),
ArrowDown: () => tree.children[at].length && choose(tree.children[at][0]), Enter: () => zoom(at),
Escape: () => root() && zoom(tree.parent[root()]),
};
if (!moves[event.key]) return;
moves[event.key]();
event.preventDefault();
});
whenChanged((names) => {
quantities.value = chosen();
shapes.show(shapeOf());
if (names.has("sel") && chosenNode() >= 0 && !isWithin(chosenNode(), root())) setState({ zoom: "" });
else if (["qty", "shape", "zoom", "sel", "bytes", "view"].some((name) => names.has(name))) show();
});
new ResizeObserver(show).observe(frame);
addEventListener("beforeprint", show);
return make("section", { class: "view", "aria-label": "Map" },
make("div", { class: "tools" }, make("label", { class: "faint" }, "area: ", quantities), shapes, trail), frame, legend);
}
function key(title, colour) {
return make("span", { class: "key" }, make("i", { style: { background: colour } }), title);
}
function trailOf(node) {
const trail = [];
for (let at = node; ; at = tree.parent[at]) {
trail.unshift(at);
if (!at) return trail;
}
}
return { mapPanel, key };
})();
const $graph = (() => {
const { coloursOf, data, GREY, isWithin, ops, quantityOf, tree } = $data;
const { announce, hideTip, make, showTip } = $dom;
const { formatAs, formatShare } = $format;
const { layered } = $layers;
const { key } = $map;
const { detailLines } = $modules;
const { choose, chosenNode, chosenOperator, chooseOperator } = $selection;
const { setState, state, whenChanged } = $state;
const LETTER = 6.4;
const MOST_KEPT = 400;
const TITLE = 13;
function graphPanel() {
const opened = new Set();
const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": "Graph of modules and operators; arrows walk along the edges, Enter opens and closes a module" });
const frame = make("div", { class: "picture graph" }, canvas);
const told = make("output");
const legend = make("div", { class: "legend" });
const shapes = data.graph.shape;
let scene = null;
let view = { x: 0, y: 0, scale: 1 };
let waiting = false;
const work = quantityOf("macs") && tree.total.macs[0] ? "macs" : "flops";
const kinds = Array.from({ length: ops.count }, (_, row) => ops.of.kind(row));
const colours = coloursOf(kinds, (row) => ops.of[work](row) || 0.001);
legend.replaceChildren(...[...colours].map(([kind, colour]) => key(kind, colour)), key("other", GREY));
function readOpened() {
opened.clear();
if (state.graph) for (const text of state.graph.split(".")) opened.add(parseInt(text, 36));
else {
opened.add(0);
let boxes = [0];
for (;;) {
const closed = boxes.filter((node) => !opened.has(node) && tree.children[node].length);
if (boxesOf() >= 3 || !closed.length) break;
closed.forEach((node) => opened.add(node));
boxes = closed.flatMap((node) => tree.children[node]);
if (!boxes.length) break;
}
}
}
function boxesOf() {
return new Set(Array.from({ length: ops.count }, (_, row) => boxOf(ops.module[row]) ?? `#${row}`)).size;
}
function boxOf(module) {
let found = null;
for (let at = module; at >= 0; at = at === 0 ? -1 : tree.parent[at]) if (!opened.has(at)) found = at;
return found;
}
function build() {
const boxes = new Map();
const nodes = [];
const nodeOf = new Int32Array(ops.count);
const known = new Map();
for (let row = 0; row < ops.count; row += 1) {
const module = ops.module[row];
if (!known.has(module)) known.set(module, boxOf(module));
const box = known.get(module);
const name = box === null ? `#${row}` : box;
if (!boxes.has(name)) {
boxes.set(name, nodes.length);
nodes.push(box === null ? operatorNode(row) : moduleNode(box));
}
nodeOf[row] = boxes.get(name);
}
const found = new Map();
data.graph.from.forEach((from, place) => {
const [a, b] = [nodeOf[from], nodeOf[data.graph.to[place]]];
if (a === b) return;
const edge = `${a} ${b}`;
const shape = shapes.words[shapes.at[place]];
if (!found.has(edge)) found.set(edge, { from: a, to: b, shapes: new Set() });
found.get(edge).shapes.add(shape);
});
const edges = [...found.values()];
const ahead = edges.filter((edge) => edge.from < edge.to);
const back = edges.filter((edge) => edge.from > edge.to);
roomForTitles(nodes);
const layout = layered(nodes, ahead.map((edge) => [edge.from, edge.to]));
nodes.forEach((node, place) => Object.assign(node, { x: layout.x[place], y: layout.y[place] }));
ahead.forEach((edge, place) => { edge.bends = layout.bends[place]; });
scene = { nodes, edges: ahead, back, layout, groups: groupsOf(nodes), byLayer: [...nodes.keys()].sort((a, b) => nodes[a].y - nodes[b].y || nodes[a].x - nodes[b].x) };
told.textContent = `${nodes.length.toLocaleString("en-US")} boxes for ${ops.count.toLocaleString("en-US")} operators`;
}
function roomForTitles(nodes) {
const begun = new Set([0]);
for (const node of nodes) {
let count = 0;
for (let at = node.opens ? tree.parent[node.module] : node.module; at > 0 && !begun.has(at); at = tree.parent[at]) {
begun.add(at);
count += 1;
}
node.titles = Math.max(0, count - 1) * TITLE;
}
}
function moduleNode(node) {
const title = node ? tree.path[node].slice(prefixOf(node).length) : tree.name(0);
const sum = tree.total[work][node];
return { module: node, title, note: `${tree.type(node)} · ${formatAs("count", sum)}`, share: sum / (tree.total[work][0] || 1), opens: true, width: wide(title, `${tree.type(node)} · ${formatAs("count", sum)}`) };
}
const prefixOf = (node) => (tree.parent[node] ? `${tree.path[tree.parent[node]]}.` : "");
function operatorNode(row) {
const title = ops.of.raw(row);
const note = ops.of.outs(row) || ops.of.ins(row);
return { row, module: ops.module[row], title, note, share: 0, opens: false, kind: kinds[row], width: wide(title, note) };
}
const wide = (...texts) => Math.min(230, Math.max(70, ...texts.map((text) => 18 + LETTER * text.length)));
function groupsOf(nodes) {
const frames = new Map();
for (const node of nodes) {
const from = node.opens ? tree.parent[node.module] : node.module;
for (let at = from; at > 0; at = tree.parent[at]) {
const room = frames.get(at) ?? { module: at, left: Infinity, right: -Infinity, top: Infinity, bottom: -Infinity };
room.left = Math.min(room.left, node.x - node.width / 2);
room.right = Math.max(room.right, node.x + node.width / 2);
room.top = Math.min(room.top, node.y);
room.bottom = Math.max(room.bottom, node.y + 40);
frames.set(at, room);
}
}
const ordered = [...frames.values()].sort((a, b) => tree.depth[a.module] - tree.depth[b.module]);
const outside = new Map();
for (const { module } of [...ordered].reverse()) {
const around = tree.parent[module];
outside.set(around, Math.max(outside.get(around) ?? 0, (outside.get(module) ?? 0) + 1));
}
return ordered.map((room) => {
const outer = outside.get(room.module) ?? 0;
const pad = 7 + 4 * outer;
const title = TITLE * (outer + 1) + 3;
return { module: room.module, x: room.left - pad, y: room.top - title, w: room.right - room.left + 2 * pad, h: room.bottom - room.top + title + pad };
});
}
function fit() {
const wideEnough = frame.clientWidth - 40;
const highEnough = (frame.clientHeight - 60) / scene.layout.depth;
const scale = Math.min(1, Math.max(0.12, wideEnough / Math.max(200, scene.layout.width)), Math.max(0.6, highEnough));
view = { scale, x: 20 + Math.max(0, (wideEnough - scene.layout.width * scale) / 2), y: 34 };
later();
}
function fitWhole() {
const { width, depth } = scene.layout;
const scale = Math.min(1, (frame.clientWidth - 40) / Math.max(1, width), (frame.clientHeight - 60) / Math.max(1, depth));
view = { scale, x: (frame.clientWidth - width * scale) / 2, y: 34 };
}
function later() {
if (waiting) return;
waiting = true;
requestAnimationFrame(() => { waiting = false; paint(); });
}
const isChosen = (node) => {
const at = chosenNode();
if (at < 0) return false;
if (chosenOperator() >= 0) return node.opens ? isWithin(at, node.module) : node.row === chosenOperator();
return node.opens ? isWithin(at, node.module) || (at > 0 && isWithin(node.module, at)) : at > 0 && isWithin(node.module, at);
};
function paint() {
if (!frame.offsetParent) return;
if (!scene) {
build();
if (matchMedia("print").matches) fitWhole();
else fit();
}
const [width, height, dots] = [frame.clientWidth, frame.clientHeight, devicePixelRatio || 1];
if (canvas.width !== Math.round(width * dots) || canvas.height !== Math.round(height * dots)) {
canvas.width = Math.round(width * dots);
canvas.height = Math.round(height * dots);
}
const pen = canvas.getContext("2d");
const look = getComputedStyle(document.documentElement);
const ink = Object.fromEntries(["ground", "raised", "text", "faint", "line", "strong", "chosen", "edge"].map((name) => [name, look.getPropertyValue(`--${name}`).trim()]));
pen.setTransform(dots, 0, 0, dots, 0, 0);
pen.fillStyle = ink.ground;
pen.fillRect(0, 0, width, height);
pen.setTransform(dots * view.scale, 0, 0, dots * view.scale, dots * view.x, dots * view.y);
const seen = { left: -view.x / view.scale, top: -view.y / view.scale, right: (width - view.x) / view.scale, bottom: (height - view.y) / view.scale };
pen.font = "11px system-ui, sans-serif";
pen.textBaseline = "middle";
for (const room of scene.groups) if (room.y < seen.bottom && room.y + room.h > seen.top) paintGroup(pen, ink, room);
for (const edge of scene.edges) if (edge.bends[0][1] < seen.bottom && edge.bends.at(-1)[1] > seen.top) paintEdge(pen, ink, edge);
for (const edge of scene.back) paintBack(pen, ink, edge);
for (const node of scene.nodes) if (node.y < seen.bottom && node.y + 40 > seen.top) paintNode(pen, ink, node);
if (view.scale > 0.55) for (const edge of scene.edges) if (edge.bends[0][1] < seen.bottom && edge.bends.at(-1)[1] > seen.top) paintShape(pen, ink, edge);
}
function paintGroup(pen, ink, room) {
pen.fillStyle = ink.raised;
pen.globalAlpha = 0.55;
pen.fillRect(room.x, room.y, room.w, room.h);
pen.globalAlpha = 1;
pen.strokeStyle = ink.line;
pen.lineWidth = 1;
pen.strokeRect(room.x, room.y, room.w, room.h);
pen.fillStyle = ink.faint;
pen.fillText(`− ${tree.path[room.module]}`, room.x + 4, room.y + 8);
}
function paintEdge(pen, ink, edge) {
const lit = isChosen(scene.nodes[edge.from]) && isChosen(scene.nodes[edge.to]);
pen.strokeStyle = lit ? ink.edge : ink.faint;
pen.globalAlpha = lit ? 1 : 0.6;
pen.lineWidth = (lit ? 1.8 : 1) / Math.max(0.5, view.scale);
pen.beginPath();
const points = edge.bends.map(([x, y], place) => [x, place === 0 ? y + 40 : place === edge.bends.length - 1 ? y : y + 20]);
pen.moveTo(...points[0]);
for (let at = 1; at < points.length; at += 1) {
const middle = (points[at - 1][1] + points[at][1]) / 2;
pen.bezierCurveTo(points[at - 1][0], middle, points[at][0], middle, ...points[at]);
}
pen.stroke();
const [x, y] = points.at(-1);
pen.fillStyle = pen.strokeStyle;
pen.beginPath();
pen.moveTo(x, y);
pen.lineTo(x - 3.5, y - 6);
pen.lineTo(x + 3.5, y - 6);
pen.fill();
pen.globalAlpha = 1;
}
function paintBack(pen, ink, edge) {
const [a, b] = [scene.nodes[edge.from], scene.nodes[edge.to]];
const side = Math.max(a.x + a.width / 2, b.x + b.width / 2) + 24;
pen.strokeStyle = ink.strong;
pen.setLineDash([4, 3]);
pen.beginPath();
pen.moveTo(a.x + a.width / 2, a.y + 20);
pen.bezierCurveTo(side, a.y + 20, side, b.y + 20, b.x + b.width / 2, b.y + 20);
pen.stroke();
pen.setLineDash([]);
}
function paintShape(pen, ink, edge) {
const [first, ...others] = edge.shapes;
if (!first) return;
const text = others.length ? `${first} +${others.length}` : first;
const [x, y] = edge.bends.length > 2 ? [edge.bends[1][0], edge.bends[1][1] - 8] : [(edge.bends[0][0] + edge.bends[1][0]) / 2, (edge.bends[0][1] + 40 + edge.bends[1][1]) / 2];
const room = pen.measureText(text).width;
pen.fillStyle = ink.ground;
pen.globalAlpha = 0.85;
pen.fillRect(x - room / 2 - 2, y - 7, room + 4, 14);
pen.globalAlpha = 1;
pen.fillStyle = ink.faint;
pen.fillText(text, x - room / 2, y);
}
function paintNode(pen, ink, node) {
const chosen = isChosen(node);
const left = node.x - node.width / 2;
pen.fillStyle = chosen ? ink.chosen : node.opens ? ink.raised : ink.ground;
pen.strokeStyle = chosen ? ink.edge : ink.faint;
pen.lineWidth = chosen ? 2 : 1;
pen.beginPath();
pen.roundRect(left, node.y, node.width, 40, node.opens ? 3 : 9);
pen.fill();
pen.stroke();
if (view.scale < 0.25) return;
if (node.opens && node.share > 0) {
pen.fillStyle = ink.strong;
pen.globalAlpha = 0.75;
pen.fillRect(left + 1, node.y + 36, Math.max(1, (node.width - 2) * node.share), 3);
pen.globalAlpha = 1;
} else if (!node.opens) {
pen.fillStyle = colours.get(node.kind) ?? GREY;
pen.fillRect(left + 4, node.y + 8, 4, 24);
}
const room = Math.floor((node.width - 14) / 5.6);
const cut = (text) => (text.length > room ? `${text.slice(0, room - 1)}…` : text);
pen.fillStyle = ink.text;
pen.fillText(cut(node.opens ? `+ ${node.title}` : node.title), left + (node.opens ? 6 : 12), node.y + 13);
pen.fillStyle = ink.faint;
pen.fillText(cut(node.note), left + (node.opens ? 6 : 12), node.y + 27);
}
const placeOf = (event) => {
const room = canvas.getBoundingClientRect();
return [(event.clientX - room.left - view.x) / view.scale, (event.clientY - room.top - view.y) / view.scale];
};
const nodeAt = (x, y) => scene?.nodes.find((node) => Math.abs(node.x - x) <= node.width / 2 && y >= node.y && y <= node.y + 40);
const groupAt = (x, y) => [...(scene?.groups ?? [])].reverse().find((room) => x >= room.x && x <= room.x + 150 && y >= room.y && y <= room.y + 15);
function keepOpened() {
if (opened.size <= MOST_KEPT) setState({ graph: [...opened].map((node) => node.toString(36)).join(".") || "-" });
}
function toggle(module) {
const before = centreOf(module);
if (opened.has(module)) for (const node of [...opened]) { if (node && isWithin(node, module)) opened.delete(node); }
else opened.add(module);
build();
const after = centreOf(module);
if (before && after) view = { ...view, x: view.x + (before[0] - after[0]) * view.scale, y: view.y + (before[1] - after[1]) * view.scale };
keepOpened();
announce(`${tree.name(module)} ${opened.has(module) ? "opened" : "closed"}, ${scene.nodes.length} boxes`);
later();
}
function centreOf(module) {
const inside = scene.nodes.filter((node) => isWithin(node.module, module) || node.module === module);
return inside.length ? [inside.reduce((sum, node) => sum + node.x, 0) / inside.length, Math.min(...inside.map((node) => node.y))] : null;
}
const select = (node) => (node.opens ? choose(node.module) : chooseOperator(node.row));
function lookAt(node) {
const [x, y] = [node.x * view.scale + view.x, node.y * view.scale + view.y];
if (x < 60 || x > frame.clientWidth - 60) view.x += frame.clientWidth / 2 - x;
if (y < 40 || y > frame.clientHeight - 60) view.y += frame.clientHeight / 2 - y;
}
let held = null;
canvas.addEventListener("pointerdown", (event) => {
held = { x: event.clientX, y: event.clientY, from: { ...view }, moved: false };
canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
if (held) {
const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
held.moved ||= Math.hypot(dx, dy) > 4;
if (held.moved) {
view = { ...view, x: held.from.x + dx, y: held.from.y + dy };
later();
}
return;
}
const node = nodeAt(...placeOf(event));
if (!node) hideTip();
else if (node.opens) showTip(event, [...detailLines(node.module), `${formatShare(node.share)} of the work; click + to open`]);
else showTip(event, [node.title, tree.path[node.module] || tree.name(0), `in ${ops.of.ins(node.row)}`, `out ${ops.of.outs(node.row)}`]);
});
canvas.addEventListener("pointerup", (event) => {
const moved = held?.moved;
held = null;
if (moved) return;
const [x, y] = placeOf(event);
const node = nodeAt(x, y);
const room = node ? null : groupAt(x, y);
hideTip();
if (room) toggle(room.module);
else if (node?.opens && (x < node.x - node.width / 2 + 18 || chosenNode() === node.module)) toggle(node.module);
else if (node) select(node);
});
canvas.addEventListener("pointerleave", hideTip);
const zoom = (factor, x = frame.clientWidth / 2, y = frame.clientHeight / 2) => {
const scale = Math.min(3, Math.max(0.03, view.scale * factor));
view = { scale, x: x - ((x - view.x) / view.scale) * scale, y: y - ((y - view.y) / view.scale) * scale };
later();
};
canvas.addEventListener("wheel", (event) => {
const room = canvas.getBoundingClientRect();
if (event.shiftKey) view = { ...view, x: view.x - event.deltaY };
else zoom(Math.exp(-event.deltaY / 500), event.clientX - room.left, event.clientY - room.top);
later();
event.preventDefault();
}, { passive: false });
canvas.addEventListener("keydown", (event) => {
const at = scene.nodes.find(isChosen) ?? scene.nodes[0];
const place = scene.nodes.indexOf(at);
const along = (edges, mine, other) => scene.nodes[edges.find((edge) => edge[mine] === place)?.[other]];
const beside = (by) => scene.nodes[scene.byLayer[scene.byLayer.indexOf(place) + by]];
const moves = {
ArrowDown: () => along(scene.edges, "from", "to") ?? beside(1), ArrowUp: () => along(scene.edges, "to", "from") ?? beside(-1),
ArrowRight: () => beside(1), ArrowLeft: () => beside(-1),
};
if (moves[event.key]) {
const next = moves[event.key]();
if (next) {
select(next);
lookAt(next);
later();
}
} else if (event.key === "Enter") toggle(at.module);
else if (event.key === "+" || event.key === "=") zoom(1.25);
else if (event.key === "-") zoom(0.8);
else return;
event.preventDefault();
});
const deeper = () => {
for (const node of scene.nodes.filter((one) => one.opens)) opened.add(node.module);
build();
fit();
keepOpened();
};
const closeAll = () => {
setState({ graph: "" });
readOpened();
build();
fit();
};
const button = (title, act) => make("button", { type: "button", class: "plain", text: title, on: { click: act } });
whenChanged((names) => {
if (names.has("graph") && state.graph && state.graph !== [...opened].map((node) => node.toString(36)).join(".")) {
readOpened();
scene = null;
}
if (names.has("sel") && scene) {
const node = scene.nodes.find(isChosen);
if (node) lookAt(node);
}
if (["graph", "sel", "view", "theme"].some((name) => names.has(name))) later();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
readOpened();
new ResizeObserver(later).observe(frame);
let kept = null;
addEventListener("beforeprint", () => {
kept = view;
if (scene) fitWhole();
paint();
});
addEventListener("afterprint", () => {
if (kept) view = kept;
kept = null;
later();
});
return make("section", { class: "view", "aria-label": "Graph" },
make("div", { class: "tools" }, button("open a level", deeper), button("close all", closeAll), button("fit", fit), button("+", () => zoom(1.25)), button("−", () => zoom(0.8)), told),
frame, legend);
}
return { graphPanel };
})();
const $header = (() => {
const { data } = $data;
const { make, switcher } = $dom;
const { formatAs } = $format;
const { setState, state, whenChanged } = $state;
function headerOf() {
const totals = make("dl", { class: "totals" });
const show = () => totals.replaceChildren(...data.totals.map((total) =>
make("div", { class: total.partial ? "partial" : null, title: `${total.label}: ${total.value.toLocaleString("en-US")}${total.remark ? `, ${total.remark}` : ""}` },
make("dt", { text: total.label }),
make("dd", { text: `${total.partial ? "≥" : ""}${formatAs(total.unit, total.value)}` }))));
show();
whenChanged((names) => names.has("bytes") && show());
return make("header", {},
make("div", { class: "top" }, make("h1", { text: data.title }), settings()),
data.facts.length ? make("dl", { class: "facts" }, ...data.facts.map(([name, value]) => make("div", {}, ...(name ? [make("dt", { text: name })] : []), make("dd", { text: value })))) : null,
totals,
...data.alerts.map((alert) => told(alert, "alert")));
}
function notesOf() {
if (!data.notes.length) return null;
return make("footer", { class: "notes" }, ...data.notes.map((note) => told(note, "note")));
}
function told(section, kind) {
return make("section", { class: kind, role: kind === "alert" ? "note" : null, "aria-label": section.title },
section.title ? make("h2", { text: section.title }) : null,
make("ul", {}, ...section.lines.map((line) => make("li", { text: line }))),
section.hint ? make("p", { class: "faint", text: section.hint }) : null);
}
function settings() {
const groups = { bytes: switcher("Units of bytes", [["iec", "KiB"], ["si", "kB"]], state.bytes, (bytes) => setState({ bytes })) };
if (data.tree?.quantities.some((quantity) => quantity.name === "macs")) {
groups.work = switcher("Work is told in", [["macs", "MACs"], ["flops", "FLOPs"]], state.work, (work) => setState({ work }));
}
groups.theme = switcher("Colours", [["auto", "auto"], ["light", "light"], ["dark", "dark"]], state.theme, (theme) => setState({ theme }));
whenChanged((names) => Object.entries(groups).forEach(([name, group]) => names.has(name) && group.show(state[name])));
return make("div", { class: "settings" }, ...Object.values(groups));
}
return { headerOf, notesOf };
})();
const $axes = (() => {
const { draw } = $dom;
function niceTicks(most, count, step = 10) {
if (!(most > 0)) return [0];
const rough = most / count;
const power = step ** Math.floor(Math.log(rough) / Math.log(step));
const choices = step === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const size = power * choices.find((choice) => choice * power >= rough);
return Array.from({ length: Math.floor(most / size) + 1 }, (_, place) => place * size);
}
function roundTicks(low, high) {
const found = [];
const parts = Math.log10(high / low) < 2.5 ? [1, 2, 5] : [1];
for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
for (const part of parts) if (part * 10 ** power >= low && part * 10 ** power <= high) found.push(part * 10 ** power);
}
return found;
}
const line = (x1, y1, x2, y2, kind) => draw("line", { x1, y1, x2, y2, class: kind });
const label = (x, y, text, anchor = "start", kind = "axis") => draw("text", { x, y, text, "text-anchor": anchor, class: kind });
function placeIn(picture, event) {
const room = picture.getBoundingClientRect();
const { width, height } = picture.viewBox.baseVal;
return [((event.clientX - room.left) / room.width) * width, ((event.clientY - room.top) / room.height) * height];
}
return { niceTicks, roundTicks, line, label, placeIn };
})();
const $memory = (() => {
const { label, line, niceTicks, placeIn } = $axes;
const { byteUnits, formatBytes, formatShare } = $format;
const { data, isWithin, ops, tree } = $data;
const { announce, draw, hideTip, make, showTip } = $dom;
const { key } = $map;
const { choose, chosenNode, chosenOperator, chooseOperator } = $selection;
const { state, whenChanged } = $state;
const PAD = { left: 74, right: 12, top: 22, bottom: 30 };
const LAYERS = [
["weights", "#0072b2"], ["inputs", "#56b4e9"], ["optimizer", "#cc79a7"], ["gradients", "#d55e00"], ["saved", "#e69f00"],
["outputs", "#b8a800"], ["temporary", "#009e73"], ["workspace", "#8a929c"], ["added", "#e69f00"], ["all", "#0072b2"],
];
const COLOUR = new Map(LAYERS);
function memoryPanel() {
const { memory } = data;
const picture = draw("svg", { class: "plot", role: "img", tabindex: "0", "aria-label": `Memory over ${memory.curve.length} operators, peak ${formatBytes(memory.peak)}; arrows walk along the operators, P goes to the peak` });
const frame = make("div", { class: "picture" }, picture);
const legend = make("div", { class: "legend" });
const parts = make("div", { class: "peak" });
const count = memory.curve.length;
let left = 0;
let wide = 1;
const places = (width) => Math.min(count, Math.max(1, Math.floor(width)));
function show() {
if (!frame.offsetParent) return;
const width = Math.max(240, frame.clientWidth);
const height = Math.max(200, frame.clientHeight);
const w = width - PAD.left - PAD.right;
const h = height - PAD.top - PAD.bottom;
const most = memory.peak * 1.04;
left = PAD.left;
wide = w;
const x = (step) => PAD.left + (step / count) * w;
const y = (bytes) => PAD.top + h - (bytes / most) * h;
const shapes = [];
for (const tick of niceTicks(most, 6, byteUnits.chosen === "iec" ? 1024 : 10)) {
shapes.push(line(PAD.left, y(tick), PAD.left + w, y(tick), "rule"), label(PAD.left - 6, y(tick) + 4, formatBytes(tick), "end"));
}
const many = places(w);
const tops = [];
for (let place = 0; place < many; place += 1) {
let best = Math.floor((place * count) / many);
const end = Math.floor(((place + 1) * count) / many);
for (let step = best + 1; step < end; step += 1) if (memory.curve[step] > memory.curve[best]) best = step;
tops.push(best);
}
let below = new Array(many).fill(0);
for (const layer of layersOf(memory)) {
const above = tops.map((step, place) => below[place] + layer.at(step));
const points = [];
for (let place = 0; place < many; place += 1) points.push(`${x((place * count) / many)},${y(above[place])}`, `${x(((place + 1) * count) / many)},${y(above[place])}`);
for (let place = many - 1; place >= 0; place -= 1) points.push(`${x(((place + 1) * count) / many)},${y(below[place])}`, `${x((place * count) / many)},${y(below[place])}`);
shapes.push(draw("polygon", { points: points.join(" "), fill: COLOUR.get(layer.name), class: "layer" }));
below = above;
}
shapes.push(...phaseMarks(x, height), ...chosenMarks(x, h));
const at = x(memory.at + 0.5);
shapes.push(line(at, PAD.top, at, PAD.top + h, "peakline"),
label(at, PAD.top - 8, `peak ${formatBytes(memory.peak)}`, at > width * 0.75 ? "end" : at < width * 0.25 ? "start" : "middle", "strong"),
label(PAD.left + w / 2, height - 4, `${count.toLocaleString("en-US")} operators in the order of execution`, "middle"));
picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
picture.replaceChildren(...shapes);
legend.replaceChildren(...layersOf(memory).map((layer) => key(layer.title, COLOUR.get(layer.name))));
parts.replaceChildren(...peakOf(memory));
}
const stepAt = (event) => {
const [x] = placeIn(picture, event);
const step = Math.floor(((x - left) / wide) * count);
return step >= 0 && step < count ? step : -1;
};
picture.addEventListener("click", (event) => {
const step = stepAt(event);
if (step >= 0 && ops && step < ops.count) chooseOperator(step);
});
picture.addEventListener("pointermove", (event) => {
const step = stepAt(event);
if (step < 0) return hideTip();
const where = ops && step < ops.count ? [`${ops.of.raw(step)}`, tree.path[ops.module[step]] || tree.name(0)] : [];
return showTip(event, [formatBytes(memory.curve[step]), `operator ${step + 1}`, ...where]);
});
picture.addEventListener("pointerleave", hideTip);
picture.addEventListener("keydown", (event) => {
if (!ops || event.ctrlKey || event.metaKey || event.altKey) return;
const at = chosenOperator() >= 0 ? chosenOperator() : -1;
const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: count - 1, p: memory.at, P: memory.at };
if (!(event.key in moves)) return;
const step = Math.max(0, Math.min(Math.min(count, ops.count) - 1, moves[event.key]));
chooseOperator(step);
announce(`operator ${step + 1}, ${ops.of.raw(step)}: ${formatBytes(memory.curve[step])} held`);
event.preventDefault();
});
whenChanged((names) => ["sel", "bytes", "view", "theme"].some((name) => names.has(name)) && show());
new ResizeObserver(show).observe(frame);
addEventListener("beforeprint", show);
return make("section", { class: "view", "aria-label": "Memory" }, frame, legend, parts);
}
function layersOf(memory) {
const titles = { added: "added by the pass", all: "all that is held" };
return memory.layers.map((layer) => ({ ...layer, title: titles[layer.name] ?? layer.name, at: (step) => layer.constant ?? layer.curve[step] }));
}
function phaseMarks(x, height) {
return (data.memory.phases ?? []).flatMap(([phase, first], place) => [
...(place ? [line(x(first), PAD.top, x(first), height - PAD.bottom, "phase")] : []),
label(x(first) + 3, height - PAD.bottom + 13, phase),
]);
}
function chosenMarks(x, h) {
const node = chosenNode();
if (node <= 0 || !ops) return [];
const one = chosenOperator();
const marks = [];
let first = -1;
for (let step = 0; step <= ops.count; step += 1) {
const inside = step < ops.count && (one >= 0 ? step === one : isWithin(ops.module[step], node));
if (inside && first < 0) first = step;
if (!inside && first >= 0) {
marks.push(draw("rect", { x: x(first), y: PAD.top + h, width: Math.max(2, x(step) - x(first)), height: 5, class: "mark" }));
first = -1;
}
}
return marks;
}
function peakOf(memory) {
const whole = memory.peak || 1;
const parts = Object.entries(memory.parts).sort((a, b) => b[1] - a[1]);
const bar = make("div", { class: "meter", role: "img", "aria-label": parts.map(([name, size]) => `${name} ${formatShare(size / whole)}`).join(", ") },
...parts.map(([name, size]) => make("i", { style: { width: `${(100 * size) / whole}%`, background: COLOUR.get(name) }, title: name })));
const list = make("ul", { class: "legend" }, ...parts.map(([name, size]) => make("li", {}, key(`${name} ${formatBytes(size)} (${formatShare(size / whole)})`, COLOUR.get(name)))));
const holders = memory.holders.map(([path, bytes, tensors]) => {
const node = tree?.byPath.get(path) ?? -1;
const text = `${path || tree?.name(0) || "the model itself"}  ${formatBytes(bytes)}, ${tensors} tensor${tensors === 1 ? "" : "s"}`;
return make("li", {}, make("button", { type: "button", class: "plain", text, on: { click: () => node >= 0 && choose(node) } }));
});
return [
make("h3", { text: "At the peak" }), bar, list,
...memory.said.map((text) => make("p", { class: "faint", text })),
...(holders.length ? [make("h3", { text: "Held by the results of" }), make("ol", { class: "holders" }, ...holders)] : []),
];
}
return { memoryPanel };
})();
const $operators = (() => {
const { isWithin, ops, tree } = $data;
const { make } = $dom;
const { Grid, isTextual, sortRows } = $grid;
const { chosenNode, chosenOperator, chooseOperator } = $selection;
const { setState, state, whenChanged } = $state;
function operatorsPanel() {
const columns = ops.columns.filter((column) => column.title).map((column) => ({ ...column }));
columns.splice(2, 0, { name: "module", title: "module", unit: "name", of: (row) => tree.path[ops.module[row]] });
const only = make("input", { type: "checkbox", id: "only" });
const filter = make("input", { type: "search", placeholder: "find: words, all of them", "aria-label": "Find an operator" });
const told = make("output");
const all = Array.from({ length: ops.count }, (_, row) => row);
const texts = columns.filter(isTextual);
const grid = new Grid("operators", columns, {
select: chooseOperator,
isChosen: (row) => row === chosenOperator(),
roleOf: (row) => (ops.of.flops?.(row) === null ? "partial" : ""),
sort: (name) => {
const column = columns.find((one) => one.name === name);
const rising = state.tsort.slice(1) === name ? state.tsort[0] !== "+" : isTextual(column);
setState({ tsort: `${rising ? "+" : "-"}${name}` });
},
});
const shown = { key: "" };
function show() {
if (!grid.element.offsetParent) return;
const node = state.only ? chosenNode() : -1;
const words = state.oq.toLowerCase().split(/\s+/).filter(Boolean);
const key = `${node} ${words.join(" ")} ${state.tsort}`;
if (key !== shown.key) {
shown.key = key;
let rows = node > 0 ? all.filter((row) => isWithin(ops.module[row], node)) : all;
if (words.length) {
rows = rows.filter((row) => {
const text = texts.map((column) => column.of(row)).join(" ").toLowerCase();
return words.every((word) => text.includes(word));
});
}
const column = columns.find((one) => one.name === state.tsort.slice(1));
grid.markSort(column?.name, state.tsort[0] === "+");
shown.rows = column ? sortRows(rows, column, state.tsort[0] === "+") : rows;
}
told.textContent = `${shown.rows.length.toLocaleString("en-US")} of ${ops.count.toLocaleString("en-US")}`;
grid.show(shown.rows);
}
only.checked = Boolean(state.only);
filter.value = state.oq;
only.addEventListener("change", () => setState({ only: only.checked ? "yes" : "" }));
let waiting = 0;
filter.addEventListener("input", () => {
clearTimeout(waiting);
waiting = setTimeout(() => setState({ oq: filter.value }), 120);
});
whenChanged((names) => {
if (!["sel", "tsort", "bytes", "view", "oq", "only"].some((name) => names.has(name))) return;
only.checked = Boolean(state.only);
if (names.has("oq") && filter.value !== state.oq) filter.value = state.oq;
show();
if (names.has("sel") && chosenOperator() >= 0) grid.reveal(chosenOperator());
});
queueMicrotask(show);
return make("section", { class: "view", "aria-label": "Operators" },
make("div", { class: "tools" }, filter, told, make("label", {}, only, " of the chosen module"), grid.copyButtons()), grid.element);
}
return { operatorsPanel };
})();
const $roofline = (() => {
const { label, line, placeIn, roundTicks } = $axes;
const { coloursOf, data, GREY, isWithin, ops, tree } = $data;
const { announce, chooser, draw, hideTip, make, showTip } = $dom;
const { formatCount, formatShare, formatTime } = $format;
const { key } = $map;
const { chosenNode, chosenOperator, chooseOperator } = $selection;
const { setState, state, whenChanged } = $state;
const PAD = { left: 66, right: 16, top: 14, bottom: 40 };
const MOST = 4000;
function pointsOf() {
const found = new Map();
for (let row = 0; row < ops.count; row += 1) {
const flops = ops.of.flops(row);
const bytes = ops.of.bytes(row);
const time = ops.of.time?.(row) ?? null;
if (!flops || !bytes) continue;
const name = `${ops.of.kind(row)} ${flops} ${bytes} ${time}`;
const point = found.get(name);
if (point) {
point.count += ops.of.repeat?.(row) ?? 1;
point.rows.push(row);
} else found.set(name, { flops, bytes, time, kind: ops.of.kind(row), dtype: ops.of.dtype?.(row), count: ops.of.repeat?.(row) ?? 1, rows: [row] });
}
return [...found.values()].sort((a, b) => b.flops * b.count - a.flops * a.count);
}
function rooflinePanel() {
const all = pointsOf();
const points = all.slice(0, MOST);
const devices = new Map(data.devices.map((device) => [device.name, device]));
const device = () => devices.get(state.dev) ?? devices.get(data.device) ?? data.devices[0];
const commonest = () => {
const sums = new Map();
for (const point of points) sums.set(point.dtype, (sums.get(point.dtype) ?? 0) + point.flops * point.count);
return [...sums].sort((a, b) => b[1] - a[1])[0]?.[0];
};
const own = commonest();
const dtype = () => (state.dtype in device().flops ? state.dtype : own in device().flops ? own : Object.keys(device().flops)[0]);
const deviceList = chooser("Device", data.devices.map((one) => [one.name, one.name]), device().name, (dev) => setState({ dev }));
const types = make("span");
const picture = draw("svg", { class: "plot", role: "img", tabindex: "0" });
const frame = make("div", { class: "picture" }, picture);
const legend = make("div", { class: "legend" });
const said = make("p", { class: "faint" });
const measured = points.some((point) => point.time);
const colours = coloursOf(points.map((point) => point.kind), (row) => points[row].flops * points[row].count);
let placed = [];
function show() {
if (!frame.offsetParent) return;
const { bandwidth } = device();
const peak = device().flops[dtype()];
const roof = (intensity) => Math.min(peak, bandwidth * intensity);
const speed = (point) => (point.time ? (point.flops / point.time) * 1e9 : roof(point.flops / point.bytes));
const taken = (point) => (point.time ?? (point.flops / roof(point.flops / point.bytes)) * 1e9) * point.count;
const width = Math.max(260, frame.clientWidth);
const height = Math.max(220, frame.clientHeight);
const ridge = peak / bandwidth;
const intensities = points.map((point) => point.flops / point.bytes);
const speeds = points.map(speed);
const lowX = Math.min(ridge / 20, ...intensities) / 1.6;
const highX = Math.max(ridge * 8, ...intensities) * 1.6;
const lowY = Math.min(roof(lowX), ...speeds) / 1.6;
const highY = Math.max(peak, ...speeds) * 2.5;
const across = (value, low, high, from, to) => from + (Math.log(value / low) / Math.log(high / low)) * (to - from);
const x = (value) => across(value, lowX, highX, PAD.left, width - PAD.right);
const y = (value) => across(value, lowY, highY, height - PAD.bottom, PAD.top);
const shapes = [];
for (const tick of roundTicks(lowX, highX)) shapes.push(line(x(tick), PAD.top, x(tick), height - PAD.bottom, "rule"), label(x(tick), height - PAD.bottom + 14, tick >= 1 ? formatCount(tick) : String(Number(tick.toPrecision(1))), "middle"));
for (const tick of roundTicks(lowY, highY)) shapes.push(line(PAD.left, y(tick), width - PAD.right, y(tick), "rule"), label(PAD.left - 6, y(tick) + 4, `${formatCount(tick).replace(".00", "")}`, "end"));
shapes.push(label((PAD.left + width - PAD.right) / 2, height - 6, "FLOP per byte moved", "middle"), label(PAD.left + 4, PAD.top + 4, "FLOP/s"));
shapes.push(draw("path", { d: `M${x(lowX)},${y(roof(lowX))} L${x(ridge)},${y(peak)} L${x(highX)},${y(peak)}`, class: "roof" }),
label(width - PAD.right - 4, y(peak) - 20, `${formatCount(peak)}FLOP/s ${dtype()}`, "end", "strong"),
label(x(ridge) - 14, y(peak) + 8, `${formatCount(bandwidth)}B/s`, "end", "strong"));
const total = points.reduce((sum, point) => sum + taken(point), 0);
const node = chosenNode();
const one = chosenOperator();
placed = points.map((point) => ({
point, x: x(point.flops / point.bytes), y: y(speed(point)), r: 2.5 + 13 * Math.sqrt(taken(point) / total), share: taken(point) / total, taken: taken(point), speed: speed(point),
chosen: node > 0 && point.rows.some((row) => (one >= 0 ? row === one : isWithin(ops.module[row], node))),
}));
for (const spot of placed) shapes.push(draw("circle", {
cx: spot.x, cy: spot.y, r: spot.r, fill: colours.get(spot.point.kind) ?? GREY, class: `point${spot.chosen ? " chosen" : ""}`,
}));
const bound = placed.filter((spot) => spot.point.flops / spot.point.bytes < ridge).reduce((sum, spot) => sum + spot.share, 0);
picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
picture.setAttribute("aria-label", `Roofline of ${device().name}: ${formatShare(bound)} of the time is bound by memory; arrows walk through the points, those with the most time first`);
picture.replaceChildren(...shapes);
types.replaceChildren(chooser("Element type", Object.keys(device().flops).map((name) => [name, name]), dtype(), (name) => setState({ dtype: name })));
deviceList.value = device().name;
legend.replaceChildren(...[...colours].map(([kind, colour]) => key(kind, colour)), key("other", GREY));
said.textContent = [
measured ? "Points are measured speeds; their size is the share of the time." : "Nothing was timed: points stand at the roof that binds them, and their size is the share of the time that the peaks allow.",
`${formatShare(bound)} of the time belongs to operators left of the ridge at ${ridge.toFixed(1)} FLOP per byte, bound by memory.`,
all.length > MOST ? `The ${MOST.toLocaleString("en-US")} points with the most work of ${all.length.toLocaleString("en-US")}.` : "",
`Peaks: ${device().source}.`,
].join(" ");
}
const near = (event) => {
const [x, y] = placeIn(picture, event);
let best = null;
let least = 8;
for (const spot of placed) {
const distance = Math.hypot(spot.x - x, spot.y - y) - spot.r;
if (distance < least) [best, least] = [spot, distance];
}
return best;
};
picture.addEventListener("click", (event) => near(event) && chooseOperator(near(event).point.rows[0]));
picture.addEventListener("pointermove", (event) => {
const spot = near(event);
if (!spot) return hideTip();
const { point } = spot;
return showTip(event, [
`${point.kind}${point.count > 1 ? `, ${point.count} times` : ""}`, tree.path[ops.module[point.rows[0]]] || tree.name(0), ops.of.ins?.(point.rows[0]) ?? "",
`${(point.flops / point.bytes).toFixed(2)} FLOP per byte`, `${formatCount(spot.speed)}FLOP/s${point.time ? "" : " at most"}`,
`${formatTime(spot.taken)}, ${formatShare(spot.share)}`,
].filter(Boolean));
});
picture.addEventListener("pointerleave", hideTip);
picture.addEventListener("keydown", (event) => {
const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
if (!step || !placed.length) return;
const ranked = [...placed].sort((a, b) => b.share - a.share);
const at = ranked.findIndex((spot) => spot.point.rows.includes(chosenOperator()));
const spot = ranked[Math.max(0, Math.min(ranked.length - 1, at < 0 ? 0 : at + step))];
chooseOperator(spot.point.rows[0]);
announce(`${spot.point.kind}: ${formatShare(spot.share)} of the time, ${formatCount(spot.speed)}FLOP/s`);
event.preventDefault();
});
whenChanged((names) => ["sel", "dev", "dtype", "view"].some((name) => names.has(name)) && show());
new ResizeObserver(show).observe(frame);
addEventListener("beforeprint", show);
return make("section", { class: "view", "aria-label": "Roofline" },
make("div", { class: "tools" }, make("label", { class: "faint" }, "device: ", deviceList), types), frame, legend, said);
}
return { rooflinePanel };
})();
const $served = (() => {
const { data } = $data;
const PAUSE = 1000;
async function followSource() {
if (!data.served) return;
const version = async () => (await fetch("/version")).text();
const first = await version().catch(() => null);
setInterval(async () => {
const now = await version().catch(() => null);
if (first !== null && now !== null && now !== first) location.reload();
}, PAUSE);
}
return { followSource };
})();
const $sweep = (() => {
const { label, line, placeIn, roundTicks } = $axes;
const { COLOURS, data, GREY } = $data;
const { chooser, draw, hideTip, make, showTip, switcher } = $dom;
const { formatAs } = $format;
const { key } = $map;
const { setState, state, whenChanged } = $state;
const PAD = { left: 78, right: 20, top: 16, bottom: 42 };
const SCALE = [[0, 34, 78], [53, 69, 108], [102, 105, 112], [148, 142, 119], [200, 184, 102], [254, 232, 56]];
function shade(part) {
const at = Math.max(0, Math.min(0.9999, part)) * (SCALE.length - 1);
const low = SCALE[Math.floor(at)];
const high = SCALE[Math.floor(at) + 1];
return low.map((value, place) => Math.round(value + (high[place] - value) * (at - Math.floor(at))));
}
function sweepPanel() {
const { variables, sizes, counted, quantities } = data.sweep;
const two = variables.length === 2;
const shapeOf = () => (state.shape === "curves" ? "curves" : "heat");
const quantity = () => quantities.find((one) => one.name === state.qty) ?? quantities[0];
const list = chooser("Amounts are", quantities.map((one) => [one.name, one.title]), quantity().name, (qty) => setState({ qty }));
const shapes = two ? switcher("Shape", [["heat", "heat map"], ["curves", "curves"]], shapeOf(), (shape) => setState({ shape })) : null;
const picture = draw("svg", { class: "plot", role: "img" });
const frame = make("div", { class: "picture sweep" }, picture);
const legend = make("div", { class: "legend" });
let spots = [];
function show() {
if (!frame.offsetParent) return;
const width = Math.max(260, frame.clientWidth);
const height = Math.max(220, frame.clientHeight);
picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
picture.setAttribute("aria-label", `${quantity().title} by ${variables.join(" and ")}, ${sizes.length} points`);
spots = [];
picture.replaceChildren(...(two && shapeOf() === "heat" ? heat(width, height) : curves(width, height)));
}
function curves(width, height) {
const { amounts, bands, unit, title } = quantity();
const known = sizes.map((_, place) => place).filter((place) => amounts[place] > 0);
const all = known.flatMap((place) => [amounts[place], ...(bands?.[place] ?? [])]);
const [lowX, highX] = [Math.min(...sizes.map((size) => size[0])), Math.max(...sizes.map((size) => size[0]))];
const [lowY, highY] = [Math.min(...all) / 1.3, Math.max(...all) * 1.3];
const between = (value, low, high, from, to) => (high > low ? from + (Math.log(value / low) / Math.log(high / low)) * (to - from) : (from + to) / 2);
const x = (value) => between(value, lowX, highX, PAD.left + 8, width - PAD.right - 8);
const y = (value) => between(value, lowY, highY, height - PAD.bottom, PAD.top);
const shapes = roundTicks(lowY, highY).flatMap((tick) => [line(PAD.left, y(tick), width - PAD.right, y(tick), "rule"), label(PAD.left - 6, y(tick) + 4, formatAs(unit, tick), "end")]);
let before = -Infinity;
for (const size of [...new Set(sizes.map((one) => one[0]))].sort((a, b) => a - b)) {
shapes.push(line(x(size), PAD.top, x(size), height - PAD.bottom, "rule"));
if (x(size) - before > 34) {
shapes.push(label(x(size), height - PAD.bottom + 14, String(size), "middle"));
before = x(size);
}
}
shapes.push(label((PAD.left + width) / 2, height - 6, variables[0], "middle", "strong"), label(PAD.left + 4, PAD.top + 2, title, "start", "strong"));
const groups = new Map();
for (const place of known) {
const name = two ? sizes[place][1] : 0;
if (!groups.has(name)) groups.set(name, []);
groups.get(name).push(place);
}
[...groups].forEach(([, places], number) => {
const colour = COLOURS[number] ?? GREY;
places.sort((a, b) => sizes[a][0] - sizes[b][0]);
if (bands && places.every((place) => bands[place])) {
const edge = [...places.map((place) => [place, 1]), ...[...places].reverse().map((place) => [place, 0])];
shapes.push(draw("polygon", { points: edge.map(([place, side]) => `${x(sizes[place][0])},${y(bands[place][side])}`).join(" "), fill: colour, "fill-opacity": 0.18 }));
}
shapes.push(draw("polyline", { points: places.map((place) => `${x(sizes[place][0])},${y(amounts[place])}`).join(" "), stroke: colour, class: "curve" }));
for (const place of places) {
const spot = { place, x: x(sizes[place][0]), y: y(amounts[place]) };
spots.push(spot);
shapes.push(draw("circle", { cx: spot.x, cy: spot.y, r: 3.4, fill: counted[place] ? colour : "var(--ground)", stroke: colour, "stroke-width": 1.5 }));
}
});
legend.replaceChildren(
...(two ? [...groups.keys()].map((size, number) => key(`${variables[1]} ${size}`, COLOURS[number] ?? GREY)) : []),
make("span", { class: "faint", text: `filled: counted; hollow: told by polynomials through counted points${bands ? "; the band holds four of five" : ""}` }));
return shapes;
}
function heat(width, height) {
const { amounts, unit } = quantity();
const [columns, rows] = [0, 1].map((axis) => [...new Set(sizes.map((size) => size[axis]))].sort((a, b) => a - b));
const known = amounts.filter((amount) => amount > 0);
const [low, high] = [Math.log(Math.min(...known)), Math.log(Math.max(...known))];
const w = (width - PAD.left - PAD.right) / columns.length;
const h = (height - PAD.top - PAD.bottom) / rows.length;
const shapes = [];
sizes.forEach((size, place) => {
const amount = amounts[place];
const [left, top] = [PAD.left + columns.indexOf(size[0]) * w, PAD.top + (rows.length - 1 - rows.indexOf(size[1])) * h];
const colour = amount > 0 ? shade(high > low ? (Math.log(amount) - low) / (high - low) : 0.5) : null;
shapes.push(draw("rect", { x: left, y: top, width: Math.max(1, w - 1), height: Math.max(1, h - 1), fill: colour ? `rgb(${colour.join(" ")})` : "var(--line)" }));
spots.push({ place, x: left + w / 2, y: top + h / 2, w: w / 2, h: h / 2 });
const text = amount === null || amount === undefined ? "?" : formatAs(unit, amount);
if (w > 6.4 * text.length && h > 15) shapes.push(draw("text", { x: left + w / 2, y: top + h / 2 + 4, text, "text-anchor": "middle", class: "cell", fill: colour && colour[0] + colour[1] > 270 ? "#14171b" : "#fff" }));
});
columns.forEach((size, place) => shapes.push(label(PAD.left + (place + 0.5) * w, height - PAD.bottom + 14, String(size), "middle")));
rows.forEach((size, place) => shapes.push(label(PAD.left - 6, PAD.top + (rows.length - 0.5 - place) * h + 4, String(size), "end")));
shapes.push(label((PAD.left + width) / 2, height - 6, variables[0], "middle", "strong"), label(4, PAD.top, variables[1], "start", "strong"));
legend.replaceChildren(make("span", { class: "faint", text: `from ${formatAs(unit, Math.min(...known))} to ${formatAs(unit, Math.max(...known))}, on a logarithmic scale` }));
return shapes;
}
picture.addEventListener("pointermove", (event) => {
const [x, y] = placeIn(picture, event);
const spot = spots.find((one) => (one.w ? Math.abs(one.x - x) <= one.w && Math.abs(one.y - y) <= one.h : Math.hypot(one.x - x, one.y - y) < 9));
if (!spot) return hideTip();
return showTip(event, [
variables.map((name, axis) => `${name} ${sizes[spot.place][axis]}`).join(", "),
...quantities.map((one) => `${one.title}: ${formatAs(one.unit, one.amounts[spot.place])}`), counted[spot.place] ? "counted" : "told by polynomials",
]);
});
picture.addEventListener("pointerleave", hideTip);
whenChanged((names) => {
list.value = quantity().name;
shapes?.show(shapeOf());
if (["qty", "shape", "bytes", "theme"].some((name) => names.has(name))) show();
});
new ResizeObserver(show).observe(frame);
addEventListener("beforeprint", show);
return make("section", { class: "panel table", "aria-label": "Sweep" }, make("div", { class: "tools" }, make("h2", { text: `By ${variables.join(" and ")}` }), list, shapes), frame, legend);
}
return { sweepPanel };
})();
const $tables = (() => {
const { reader } = $data;
const { make } = $dom;
const { formatTime } = $format;
const { Grid, isTextual, LINE, sortRows } = $grid;
const { setTableState, tableState, whenChanged } = $state;
function tablePanel(told, place) {
const columns = told.columns.map((column) => ({ ...column, of: reader(column) }));
for (const column of columns) if (column.unit === "share") column.part = (row) => (typeof column.of(row) === "number" ? column.of(row) : 0);
const all = Array.from({ length: told.count }, (_, row) => row);
const roles = new Map(told.roles);
const filter = make("input", { type: "search", placeholder: "find: words, all of them", "aria-label": `Find in ${told.title}` });
const output = make("output");
const texts = columns.filter(isTextual);
const sorting = () => tableState(place).sort;
const behind = make("ul", { class: "behind" });
let chosen = -1;
const grid = new Grid(told.title, columns, {
...(told.kernels?.some((kernels) => kernels.length) ? { select: choose, isChosen: (row) => row === chosen } : {}),
roleOf: (row) => roles.get(row) ?? "",
sort: (name) => {
const column = columns.find((one) => one.name === name);
const rising = sorting().slice(1) === name ? sorting()[0] !== "+" : isTextual(column);
setTableState(place, { sort: `${rising ? "+" : "-"}${name}`, find: filter.value });
},
});
function choose(row) {
chosen = row;
behind.replaceChildren(...told.kernels[row].map(([count, name, time]) => make("li", { text: `${count} × ${name}: ${formatTime(time)}` })));
}
function show() {
const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
const fits = (row) => words.every((word) => texts.some((column) => String(column.of(row) ?? "").toLowerCase().includes(word)));
const column = columns.find((one) => one.name === sorting().slice(1));
const rising = sorting()[0] === "+";
grid.markSort(column?.name, rising);
const rows = [];
let run = [];
const close = () => {
rows.push(...(column ? sortRows(run, column, rising) : run));
run = [];
};
for (const row of all) {
if (roles.has(row)) {
close();
rows.push(row);
} else if (fits(row)) run.push(row);
}
close();
output.textContent = `${rows.filter((row) => !roles.has(row)).length} of ${told.count - roles.size} lines`;
grid.show(rows);
}
filter.value = tableState(place).find;
filter.addEventListener("input", () => setTableState(place, { sort: sorting(), find: filter.value }));
whenChanged((names) => {
if (names.has("tables")) {
if (filter.value !== tableState(place).find) filter.value = tableState(place).find;
show();
}
if (names.has("bytes")) grid.draw(true);
});
grid.element.style.height = `${Math.min(told.count * LINE + 34, 640)}px`;
show();
return make("section", { class: "panel table", "aria-label": told.title },
make("div", { class: "tools" }, make("h2", { text: told.title }), told.count > 12 ? filter : null, told.count > 12 ? output : null, grid.copyButtons()), grid.element, behind,
...told.remarks.map((remark) => make("p", { class: "faint", text: remark })));
}
const FEW = 7;
function tablePanels(tables) {
const panels = tables.map((table, place) => tablePanel(table, place));
const isNarrow = (place) => tables[place].columns.length <= FEW;
if (panels.length < 2) return panels;
return [...panels.filter((_, place) => !isNarrow(place)), make("div", { class: "narrow" }, ...panels.filter((_, place) => isNarrow(place)))];
}
return { tablePanels };
})();
const $timeline = (() => {
const { niceTicks } = $axes;
const { coloursOf, data, GREY, isWithin, tree } = $data;
const { announce, hideTip, make, showTip } = $dom;
const { formatTime } = $format;
const { key } = $map;
const { choose, chosenNode } = $selection;
const { setState, state, whenChanged } = $state;
const NAME = 138;
const AXIS = 22;
const LANE = 22;
const LETTER = 6.2;
const TICK = 90;
const SORTS = new Map([["collective", "#cc79a7"], ["copy", "#56b4e9"]]);
function unpackLanes(told) {
const lanes = told.lanes.map((lane) => {
const start = new Float64Array(lane.step.length);
let at = 0;
lane.step.forEach((step, place) => { start[place] = at += step; });
const length = Float64Array.from(lane.length);
return { ...lane, start, length, longest: length.reduce((most, one) => Math.max(most, one), 0) };
});
const end = lanes.reduce((most, lane) => lane.start.reduce((last, start, place) => Math.max(last, start + lane.length[place]), most), 1);
return { lanes, end, words: told.words };
}
function firstAfter(sorted, value) {
let low = 0;
let high = sorted.length;
while (low < high) {
const middle = (low + high) >> 1;
if (sorted[middle] < value) low = middle + 1;
else high = middle;
}
return low;
}
function timelinePanel() {
const { lanes, end, words } = unpackLanes(data.timeline);
const sums = new Float64Array(words.length);
for (const lane of lanes) lane.name.forEach((name, place) => { sums[name] += lane.busy ? lane.busy[place] : lane.length[place]; });
const named = new Map();
if (tree) for (let node = tree.count - 1; node > 0; node -= 1) named.set(tree.name(node), node);
const nodeOf = words.map((word) => tree?.byPath.get(word) ?? named.get(word) ?? -1);
const kinds = data.timeline.sorts;
const ranked = coloursOf(kinds, (name) => sums[name], SORTS);
const colour = kinds.map((kind) => ranked.get(kind) ?? GREY);
const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": `Timeline of ${formatTime(end)} on ${lanes.length} lanes; arrows move, plus and minus zoom` });
const frame = make("div", { class: "picture time" }, canvas);
frame.style.height = `${Math.min(lanes.length * LANE + AXIS + 2, 560)}px`;
const told = make("output");
let from = 0;
let to = end;
let waiting = false;
const readWindow = () => {
const [a, b] = [Number(state.from || 0), Number(state.to || end)];
if (a >= 0 && b > a && b <= end * 1.0001) [from, to] = [a, Math.min(b, end)];
else [from, to] = [0, end];
};
function look(first, last) {
const span = Math.min(end, Math.max(10, last - first));
from = Math.max(0, Math.min(first, end - span));
to = from + span;
setState({ from: from > 0 ? String(Math.round(from)) : "", to: to < end ? String(Math.round(to)) : "" });
later();
}
const later = () => {
if (waiting) return;
waiting = true;
requestAnimationFrame(() => { waiting = false; paint(); });
};
function paint() {
if (!frame.offsetParent) return;
const width = frame.clientWidth;
const height = lanes.length * LANE + AXIS;
const scale = devicePixelRatio || 1;
if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
canvas.width = Math.round(width * scale);
canvas.height = Math.round(height * scale);
canvas.style.height = `${height}px`;
}
const pen = canvas.getContext("2d");
const look = getComputedStyle(document.documentElement);
const ink = (name) => look.getPropertyValue(name).trim();
pen.setTransform(scale, 0, 0, scale, 0, 0);
pen.fillStyle = ink("--ground");
pen.fillRect(0, 0, width, height);
pen.font = "11px system-ui, sans-serif";
pen.textBaseline = "middle";
const wide = width - NAME;
const perNs = wide / (to - from);
const x = (time) => NAME + (time - from) * perNs;
paintAxis(pen, ink, x, height, Math.max(1, Math.floor(wide / TICK)));
const chosen = chosenNode();
const dim = words.map((word, name) => chosen > 0 && !(nodeOf[name] > 0 && isWithin(nodeOf[name], chosen)) && word !== tree.name(chosen));
lanes.forEach((lane, row) => paintLane(pen, lane, AXIS + row * LANE, x, perNs, dim));
pen.fillStyle = ink("--ground");
pen.fillRect(0, 0, NAME - 4, height);
pen.fillStyle = ink("--text");
lanes.forEach((lane, row) => {
const room = Math.floor((NAME - 12) / LETTER);
pen.fillText(lane.title.length > room ? `${lane.title.slice(0, room - 1)}…` : lane.title, 4, AXIS + row * LANE + LANE / 2);
});
told.textContent = `${formatTime(to - from)} from ${formatTime(from)}, of ${formatTime(end)}`;
}
function paintAxis(pen, ink, x, height, count) {
const ticks = niceTicks(to - from, Math.min(8, count));
const size = ticks.length > 1 ? ticks[1] : to - from;
for (let time = Math.ceil(from / size) * size; time <= to; time += size) {
pen.fillStyle = ink("--line");
pen.fillRect(x(time), AXIS - 6, 1, height);
pen.fillStyle = ink("--faint");
pen.fillText(formatTime(time), x(time) + 3, 9);
}
}
function paintLane(pen, lane, top, x, perNs, dim) {
const { start, length, name } = lane;
let place = firstAfter(start, from - lane.longest);
let point = -1;
let full = 0;
let owner = 0;
const flush = () => {
if (point < 0) return;
pen.globalAlpha = (dim[owner] ? 0.25 : 1) * (0.3 + 0.7 * Math.min(1, full));
pen.fillStyle = colour[owner];
pen.fillRect(point, top + 2, 1, LANE - 4);
pen.globalAlpha = 1;
point = -1;
full = 0;
};
for (; place < start.length && start[place] < to; place += 1) {
const w = length[place] * perNs;
const left = x(start[place]);
if (left + w < NAME) continue;
if (w < 1) {
const at = Math.floor(left);
if (at !== point) flush();
point = at;
full += Math.max(w, 0.15);
owner = name[place];
continue;
}
flush();
const busy = lane.count && lane.count[place] > 1 ? lane.busy[place] / (length[place] || 1) : 1;
pen.globalAlpha = (dim[name[place]] ? 0.25 : 0.9) * (0.35 + 0.65 * Math.min(1, busy));
pen.fillStyle = colour[name[place]];
const visible = Math.max(left, NAME);
pen.fillRect(visible, top + 2, Math.max(1, left + w - visible - (w > 3 ? 0.6 : 0)), LANE - 4);
pen.globalAlpha = 1;
const room = Math.floor((Math.min(left + w, canvas.clientWidth) - visible - 6) / LETTER);
if (room > 3) {
const text = lane.count && lane.count[place] > 1 ? `${lane.count[place]} events` : words[name[place]];
pen.fillStyle = colour[name[place]] === "#e69f00" || colour[name[place]] === "#56b4e9" || colour[name[place]] === "#b8a800" ? "#14171b" : "#fff";
pen.fillText(text.length > room ? `${text.slice(0, room - 1)}…` : text, visible + 3, top + LANE / 2);
}
}
flush();
}
const eventAt = (event) => {
const room = canvas.getBoundingClientRect();
const lane = lanes[Math.floor((event.clientY - room.top - AXIS) / LANE)];
const time = from + ((event.clientX - room.left - NAME) / (room.width - NAME)) * (to - from);
if (!lane || event.clientX - room.left < NAME) return null;
const slack = ((to - from) / room.width) * 2;
for (let place = firstAfter(lane.start, time + slack) - 1; place >= 0 && lane.start[place] >= time - lane.longest - slack; place -= 1) {
if (lane.start[place] + lane.length[place] >= time - slack) return { lane, place };
}
return null;
};
let held = null;
canvas.addEventListener("pointerdown", (event) => {
held = { x: event.clientX, from, moved: false };
canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
if (held) {
const by = ((held.x - event.clientX) / (canvas.clientWidth - NAME)) * (to - from);
held.moved ||= Math.abs(held.x - event.clientX) > 3;
if (held.moved) look(held.from + by, held.from + by + (to - from));
return;
}
const found = eventAt(event);
if (!found) return hideTip();
const { lane, place } = found;
const several = lane.count && lane.count[place] > 1;
showTip(event, [
words[lane.name[place]], several ? `and others: ${lane.count[place]} events, busy ${formatTime(lane.busy[place])} of ${formatTime(lane.length[place])}` : formatTime(lane.length[place]),
`at ${formatTime(lane.start[place])}, ${lane.title}`,
]);
});
canvas.addEventListener("pointerup", (event) => {
const moved = held?.moved;
held = null;
const found = moved ? null : eventAt(event);
const node = found ? nodeOf[found.lane.name[found.place]] : -1;
if (node > 0) choose(node);
});
canvas.addEventListener("pointerleave", hideTip);
const zoom = (factor, at = 0.5) => {
const middle = from + (to - from) * at;
look(middle - (to - from) * factor * at, middle + (to - from) * factor * (1 - at));
};
canvas.addEventListener("wheel", (event) => {
const room = canvas.getBoundingClientRect();
const at = Math.max(0, Math.min(1, (event.clientX - room.left - NAME) / (room.width - NAME)));
if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
const by = ((event.deltaX || event.deltaY) / room.width) * (to - from);
look(from + by, to + by);
} else zoom(Math.exp(event.deltaY / 400), at);
event.preventDefault();
}, { passive: false });
canvas.addEventListener("dblclick", () => look(0, end));
canvas.addEventListener("keydown", (event) => {
const step = (to - from) / 5;
const moves = {
ArrowLeft: () => look(from - step, to - step), ArrowRight: () => look(from + step, to + step), "+": () => zoom(0.5), "=": () => zoom(0.5),
"-": () => zoom(2), Home: () => look(0, end),
};
if (!moves[event.key]) return;
moves[event.key]();
announce(`${formatTime(from)} to ${formatTime(to)}`);
event.preventDefault();
});
const button = (title, act) => make("button", { type: "button", class: "plain", text: title, on: { click: act } });
whenChanged((names) => {
if (names.has("from") || names.has("to")) readWindow();
if (["from", "to", "sel", "theme", "view"].some((name) => names.has(name))) later();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", later);
readWindow();
new ResizeObserver(later).observe(frame);
addEventListener("beforeprint", paint);
return make("section", { class: "panel time", "aria-label": "Timeline" },
make("div", { class: "tools" }, make("h2", { text: "Timeline" }), button("zoom in", () => zoom(0.5)), button("zoom out", () => zoom(2)), button("all", () => look(0, end)), told,
make("span", { class: "faint", text: "the wheel zooms, dragging moves" })),
frame, make("div", { class: "legend" }, ...[...ranked].map(([kind, shade]) => key(kind.slice(0, 60), shade)), key("other", GREY)));
}
return { timelinePanel };
})();
const $uses = (() => {
const { data } = $data;
const { make } = $dom;
const { formatShare, formatTime } = $format;
const { key } = $map;
const PARTS = new Map([
["computing", "#0072b2"], ["communication alone", "#cc79a7"], ["copies alone", "#56b4e9"], ["idle: host-bound", "#d55e00"],
["idle: after synchronisation", "#e69f00"], ["idle: waiting for input", "#b8a800"], ["idle: launch latency", "#8a929c"], ["idle: blocked after launch", "#5d6670"], ["idle: long launch calls", "#994f00"], ["idle", "#c4c9d0"],
]);
const color = (name) => PARTS.get(name.replace(/ \(.*/, ""));
function usesPanel() {
const bars = data.uses.map((use) => make("div", { class: "use" },
make("h2", { text: use.title }),
use.parts.length && make("div", { class: "meter", role: "img", "aria-label": use.parts.map(([name, time]) => `${name} ${formatShare(time / use.span)}`).join(", ") },
...use.parts.map(([name, time]) => make("i", { title: name, style: { width: `${(100 * time) / use.span}%`, background: color(name) } }))),
make("ul", { class: "legend" }, ...use.parts.map(([name, time]) => make("li", {}, key(`${name} ${formatTime(time)} (${formatShare(time / use.span)})`, color(name))))),
...use.said.map((text) => make("p", { class: "faint", text }))));
return make("section", { class: "panel uses", "aria-label": "How devices were used" }, ...bars, ...gains());
}
function gains() {
if (!data.gains.found.length) return [];
return [
make("h2", { class: "next", text: data.gains.title }),
make("ol", { class: "gains" }, ...data.gains.found.map((gain) => make("li", {},
make("b", { text: `${formatTime(Math.round(gain.time))} (${formatShare(gain.share)}) ${gain.what}` }), ` ${gain.advice} `, make("code", { text: gain.command })))),
];
}
return { usesPanel };
})();
const $main = (() => {
const { comparedModulesPanel, totalsPanel } = $compared;
const { data, ops, tree } = $data;
const { detailsPanel } = $details;
const { make } = $dom;
const { byteUnits } = $format;
const { graphPanel } = $graph;
const { headerOf, notesOf } = $header;
const { mapPanel } = $map;
const { memoryPanel } = $memory;
const { treePanel } = $modules;
const { operatorsPanel } = $operators;
const { rooflinePanel } = $roofline;
const { followSource } = $served;
const { followAddress, setState, state, whenChanged } = $state;
const { sweepPanel } = $sweep;
const { tablePanels } = $tables;
const { timelinePanel } = $timeline;
const { usesPanel } = $uses;
const VIEWS = [
["map", "Map", () => tree, mapPanel],
["graph", "Graph", () => data.graph, graphPanel],
["memory", "Memory", () => data.memory, memoryPanel],
["roofline", "Roofline", () => ops && data.devices, rooflinePanel],
["operators", "Operators", () => ops, operatorsPanel],
];
function wear() {
if (state.theme === "auto") document.documentElement.removeAttribute("data-theme");
else document.documentElement.dataset.theme = state.theme;
byteUnits.chosen = state.bytes === "si" ? "si" : "iec";
}
function viewsPanel() {
const views = VIEWS.filter(([, , has]) => has());
const current = () => (views.some(([name]) => name === state.view) ? state.view : views[0][0]);
const tabs = make("div", { role: "tablist", class: "tabs", "aria-label": "Views" });
const panels = make("div", { class: "views" });
const built = new Set();
for (const [name, title] of views) {
tabs.append(make("button", {
type: "button", role: "tab", id: `tab-${name}`, "aria-controls": `view-${name}`, text: title, on: { click: () => setState({ view: name }) },
}));
panels.append(make("div", { role: "tabpanel", id: `view-${name}`, "aria-labelledby": `tab-${name}`, "data-title": title }));
}
const build = (name) => {
if (built.has(name)) return;
built.add(name);
document.getElementById(`view-${name}`).append(views.find((view) => view[0] === name)[3]());
};
const show = () => {
views.forEach(([name], place) => {
const shown = name === current();
tabs.children[place].setAttribute("aria-selected", String(shown));
tabs.children[place].tabIndex = shown ? 0 : -1;
panels.children[place].hidden = !shown;
});
};
tabs.addEventListener("keydown", (event) => {
const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
if (!step) return;
const next = (views.findIndex(([name]) => name === current()) + step + views.length) % views.length;
setState({ view: views[next][0] });
tabs.children[next].focus();
event.preventDefault();
});
whenChanged((names) => {
if (!names.has("view")) return;
show();
build(current());
});
addEventListener("beforeprint", () => views.forEach(([name]) => name !== "operators" && build(name)));
show();
return { element: make("section", { class: "panel side", "aria-label": "Views" }, tabs, panels), start: () => build(current()) };
}
followAddress();
wear();
whenChanged((names) => (names.has("theme") || names.has("bytes")) && wear());
const main = make("main");
const views = tree ? viewsPanel() : null;
if (tree) main.append(make("div", { class: "pair" }, treePanel(), views.element), detailsPanel());
if (data.uses?.length) main.prepend(usesPanel());
if (data.timeline) main.append(timelinePanel());
if (data.compared?.totals.length) main.append(totalsPanel());
if (data.compared?.paths.length) main.append(comparedModulesPanel());
if (data.sweep) main.append(sweepPanel());
main.append(...tablePanels(data.tables));
document.body.append(headerOf(), main, ...[notesOf()].filter(Boolean));
views?.start();
document.documentElement.dataset.ready = "yes";
followSource();
return {  };
})();
