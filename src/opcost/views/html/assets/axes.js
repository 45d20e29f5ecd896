// What pictures with axes have in common: scales, ticks at round numbers, and where the pointer is.

import { draw } from "./dom.js";

export function niceTicks(most, count, step = 10) {
  if (!(most > 0)) return [0];
  const rough = most / count;
  const power = step ** Math.floor(Math.log(rough) / Math.log(step));
  const choices = step === 10 ? [1, 2, 5, 10] : [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
  const size = power * choices.find((choice) => choice * power >= rough);
  return Array.from({ length: Math.floor(most / size) + 1 }, (_, place) => place * size);
}

// Round numbers on a logarithmic axis: powers of ten, and twice and five times them where there are few.
export function roundTicks(low, high) {
  const found = [];
  const parts = Math.log10(high / low) < 2.5 ? [1, 2, 5] : [1];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    for (const part of parts) if (part * 10 ** power >= low && part * 10 ** power <= high) found.push(part * 10 ** power);
  }
  return found;
}

// A logarithmic scale from the smallest to the largest of these, with some room around them, as a function with its `range`.
export function logScale(amounts, from, to, room = 1.3) {
  const known = amounts.filter((amount) => amount > 0);
  const range = [Math.min(...known) / room, Math.max(...known) * room];
  const whole = Math.log(range[1] / range[0]);
  const scale = (value) => (whole > 0 ? from + (Math.log(value / range[0]) / whole) * (to - from) : (from + to) / 2);
  return Object.assign(scale, { range });
}

// A linear scale from zero to the largest of these.
export function linearScale(amounts, from, to, room = 1.08) {
  const range = [0, Math.max(...amounts) * room];
  return Object.assign((value) => from + (value / range[1]) * (to - from), { range });
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
