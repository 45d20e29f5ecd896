// What pictures with axes have in common: scales, ticks at round numbers, and where the pointer is.

import { draw } from "./dom.js";
import { byteUnits } from "./format.js";

export function niceTicks(most, count, step = 10) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = step ** Math.floor(Math.log(rough) / Math.log(step));
  const choices = step === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const size = power * choices.find((choice) => choice * power >= rough);
  return Array.from({ length: Math.floor(most / size) + 1 }, (_, place) => place * size);
}

const MOST_TICKS = 8;

// Round numbers on a logarithmic axis: of binary bytes powers of two, else powers of ten, and twice and five times them where
// there are few.
export function roundTicks(low, high, unit) {
  const [base, parts] = unit === "bytes" && byteUnits.chosen === "iec" ? [2, [1]] : [10, Math.log10(high / low) < 2.5 ? [1, 2, 5] : [1]];
  const powers = [];
  for (let power = Math.floor(Math.log(low) / Math.log(base)); base ** power <= high; power += 1) powers.push(power);
  const every = parts.length > 1 ? 1 : Math.ceil(powers.length / MOST_TICKS);
  return powers.filter((power) => power % every === 0).flatMap((power) => parts.map((part) => part * base ** power)).filter((tick) => tick >= low && tick <= high);
}

// A logarithmic scale from the smallest to the largest of these, with some room around them, as a function with its `range`.
export function logScale(amounts, from, to, room = 1.3) {
  const known = amounts.filter((amount) => amount > 0);
  const range = [Math.min(...known) / room, Math.max(...known) * room];
  const whole = Math.log(range[1] / range[0]);
  const scale = (value) => (whole > 0 ? from + (Math.log(value / range[0]) / whole) * (to - from) : (from + to) / 2);
  return Object.assign(scale, { range });
}

export const line = (x1, y1, x2, y2, kind) => draw("line", { x1, y1, x2, y2, class: kind });

export const label = (x, y, text, anchor = "start", kind = "axis") => draw("text", { x, y, text, "text-anchor": anchor, class: kind });

// Where an event is inside an SVG that may be drawn at another size.
export function placeIn(picture, event) {
  const room = picture.getBoundingClientRect();
  const { width, height } = picture.viewBox.baseVal;
  return [((event.clientX - room.left) / room.width) * width, ((event.clientY - room.top) / room.height) * height];
}

// The place of the first number above a value in ascending numbers.
export function firstAfter(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low;
}
