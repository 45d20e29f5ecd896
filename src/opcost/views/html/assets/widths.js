// How wide columns are: numbers as wide as the widest that is shown, texts as wide as there is room for.

import { make } from "./dom.js";

const PADDING = 14;
const MOSTLY = 0.9;
const OPTIONAL = 3;
const TEXTS = {
  name: { least: 120, most: 340 }, text: { least: 96, most: 230 }, shapes: { least: 118, most: 230 },
};

export const isTextual = (column) => column.unit in TEXTS;

// Measures texts as they are drawn in an element. All digits are equally wide, so numbers of one pattern are measured once.
export class Ruler {
  constructor(element) {
    this.element = element;
    this.known = new Map();
  }

  static key = (text, bold) => `${bold ? "b" : "r"}${text.replace(/\d/g, "0")}`;

  // One layout for all texts that are not known yet; `texts` are [text, bold] pairs.
  learn(texts) {
    const lacking = new Map();
    for (const [text, bold] of texts) {
      const key = Ruler.key(text, bold);
      if (!this.known.has(key)) lacking.set(key, make("span", { class: bold ? "bold" : null, text: key.slice(1) }));
    }
    if (!lacking.size) return;
    const sheet = make("div", { class: "ruler", "aria-hidden": "true" }, ...lacking.values());
    this.element.append(sheet);
    for (const [key, span] of lacking) this.known.set(key, span.getBoundingClientRect().width);
    sheet.remove();
  }

  of(text, bold = false) {
    return this.known.get(Ruler.key(text, bold)) ?? 0;
  }
}

// What a column needs for its title and texts of these widths: all of it if they are numbers. A few long texts do not widen it
// unless they are names, and what is beside a name gives way to other columns.
export function needOf(column, title, widths, names = widths) {
  const padded = (width) => Math.ceil(width) + PADDING;
  const rising = (all) => [title, ...all].sort((a, b) => a - b);
  const whole = padded(rising(widths).at(-1));
  // The names of sources in a heading may be long, and give way; a tip has them in full.
  if (column.isAlike) return { least: padded(Math.max(...widths)), most: whole, whole };
  if (!isTextual(column)) return { least: whole, most: whole, whole };
  const limits = TEXTS[column.unit];
  const least = Math.max(padded(title), Math.min(column.least ?? limits.least, padded(rising(names).at(-1))));
  const wide = column.unit === "name" ? whole : padded(rising(widths)[Math.ceil(MOSTLY * widths.length)]);
  return { least, most: Math.max(least, Math.min(column.most ?? limits.most, wide)), whole };
}

// Columns by `rank` as there is room, those without a rank in any case; `needs` belong to the columns. Those of high rank
// are shown only where the name has all the room that it needs.
export function columnsThatFit(columns, needs, room) {
  const byRank = columns.map((column, place) => ({ rank: column.rank ?? 0, place })).sort((a, b) => a.rank - b.rank || a.place - b.place);
  const taken = new Set();
  let left = room;
  for (const { rank, place } of byRank) {
    left -= needs[place].least;
    if (rank && left < (rank < OPTIONAL ? 0 : needs[0].most - needs[0].least)) break;
    taken.add(place);
  }
  return columns.filter((_, place) => taken.has(place));
}

// Widths that fill the room: texts give way down to what they need at least, then take what is left over.
export function spreadColumns(needs, room) {
  const sum = (name) => needs.reduce((total, need) => total + need[name], 0);
  const least = sum("least");
  // A table that scrolls in any case has room for its texts; its first column stays in sight beside others.
  if (least > room) return needs.map((need, place) => (place ? need.most : Math.max(need.least, Math.min(need.most, room / 2))));
  const between = (from, to) => {
    const part = Math.min(1, (room - sum(from)) / Math.max(1, sum(to) - sum(from)));
    return needs.map((need) => need[from] + part * (need[to] - need[from]));
  };
  if (sum("most") >= room) return between("least", "most");
  if (sum("whole") >= room) return between("most", "whole");
  const scale = room / sum("whole");
  return needs.map((need) => need.whole * scale);
}
