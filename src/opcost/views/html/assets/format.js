// Numbers as text, in the units of the command line: exact below a thousand, then two decimals.

const COUNTS = ["", "K", "M", "G", "T", "P", "E", "Z"];
const BINARY = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DECIMAL = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
const TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 6e10], ["h", 3.6e12]];
const NOTHING = "–";

export const byteUnits = { chosen: "iec" };

function scaled(number, names, step) {
  let place = 0;
  let left = Math.abs(number);
  while (place < names.length - 1 && left >= step - (place ? 0.005 : 0)) {
    left /= step;
    place += 1;
  }
  const digits = place === 0 && Number.isInteger(number) ? String(left) : left.toFixed(2);
  return `${number < 0 ? "-" : ""}${digits}${names[place] ? ` ${names[place]}` : ""}`;
}

export const formatCount = (number) => scaled(number, COUNTS, 1000);

export const formatBytes = (number) =>
  byteUnits.chosen === "iec" ? scaled(number, BINARY, 1024) : scaled(number, DECIMAL, 1000);

export function formatTime(ns) {
  let unit = TIMES[0];
  for (const next of TIMES) if (Math.abs(ns) >= next[1] * 0.999995) unit = next;
  const value = ns / unit[1];
  return `${unit[1] === 1 && Number.isInteger(ns) ? ns : value.toFixed(2)} ${unit[0]}`;
}

export const formatShare = (share) => `${(100 * share).toFixed(share !== 0 && Math.abs(share) < 0.0995 ? 2 : 1)} %`;

export function formatAs(unit, value) {
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

// A number that carries its own unit: [number, unit, it is a lower bound, it is a difference].
export function formatAmount([number, unit, partial, signed]) {
  if (number === 0) return partial ? "?" : NOTHING;
  return `${partial ? "≥" : ""}${signed && number > 0 ? "+" : ""}${formatAs(unit, number)}`;
}
