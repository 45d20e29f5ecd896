// Numbers as text, in the units of the command line: exact below a thousand, then two decimals.

const powers = (names, step) => names.map((name, power) => [name, step ** power]);
const COUNTS = powers(["", "K", "M", "G", "T", "P", "E", "Z"], 1000);
const BINARY = powers(["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"], 1024);
const DECIMAL = powers(["B", "kB", "MB", "GB", "TB", "PB", "EB"], 1000);
const TIMES = [["ns", 1], ["µs", 1e3], ["ms", 1e6], ["s", 1e9], ["min", 6e10], ["h", 3.6e12]];
const NOTHING = "–";
const GROUPED = new Intl.NumberFormat("en-US"); // made once, which takes longer than its use

export const byteUnits = { chosen: "iec" };

// The number in the first unit in which it stays below the limit after rounding to hundredths, halves upwards.
function scaled(number, units, limit) {
  if (number < 0) return `-${scaled(-number, units, limit)}`;
  for (const [name, size] of units) {
    const exact = size === 1 && Number.isInteger(number);
    const rounded = exact ? number : Math.floor((number * 100) / size + 0.5 + 1e-9) / 100;
    if (rounded < limit || name === units.at(-1)[0]) return `${exact ? number : rounded.toFixed(2)}${name ? ` ${name}` : ""}`;
  }
  return "";
}

export const formatCount = (number) => scaled(number, COUNTS, 1000);

export const formatBytes = (number) =>
  byteUnits.chosen === "iec" ? scaled(number, BINARY, 1024) : scaled(number, DECIMAL, 1000);

export const formatTime = (ns) => scaled(ns, TIMES, 1000);

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
    default: return GROUPED.format(value);
  }
}

// A number that carries its own unit: [number, unit, it is a lower bound, it is a difference].
export function formatAmount([number, unit, partial, signed]) {
  if (number === 0) return partial ? "?" : NOTHING;
  return `${partial ? "≥" : ""}${signed && number > 0 ? "+" : ""}${formatAs(unit, number)}`;
}
