import { signal } from "@preact/signals";

// A worker, which runs the same script, has no media.
const query = typeof document === "undefined" ? null : matchMedia("(prefers-color-scheme: dark)");

export const dark = signal(query?.matches ?? false);

query?.addEventListener("change", () => (dark.value = query.matches));
