import type { Place } from "./types";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

export function size(bytes: number): string {
  let unit = 0;
  while (bytes >= 1024 && unit < UNITS.length - 1) {
    bytes /= 1024;
    unit++;
  }
  return `${significant(bytes)}\u00a0${UNITS[unit]}`;
}

export function significant(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return Math.abs(value) >= 1000 && Math.abs(value) < 1e5 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
}

/** Two digits: `1.3e+0`; small whole numbers as they are. */
export function measured(value: number): string {
  if (typeof value !== "number") return String(value);
  return Number.isInteger(value) && Math.abs(value) < 1000 ? String(value) : value.toExponential(1);
}

export function duration(seconds: number): string {
  if (seconds > 0 && seconds < 1e-6) return `${significant(seconds * 1e9)}\u00a0ns`;
  if (seconds < 1e-3) return `${Math.round(seconds * 1e6)}\u00a0µs`;
  return seconds < 1 ? `${significant(seconds * 1e3)}\u00a0ms` : `${significant(seconds)}\u00a0s`;
}

export function count(number: number, word: string): string {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

export function place(location: Place | null | undefined): string {
  return location ? `${location.path}:${location.line}` : "";
}

export function file(location: Place): string {
  return `${location.path.split("/").pop()}:${location.line}`;
}

export function short(text: string, limit = 46): string {
  if (text.length <= limit) return text;
  const head = (limit - 1) >> 1;
  return `${text.slice(0, head)}…${text.slice(text.length - (limit - 1 - head))}`;
}

/** The last part of each dotted name, or the whole name where that part is not the only one of its kind. */
export function labelsOf(names: string[]): Map<string, string> {
  return new Map(names.map((name) => [name, names.filter((other) => last(other) === last(name)).length > 1 ? name : last(name)]));
}

export function last(dotted: string): string {
  return dotted.split(".").pop()!;
}
