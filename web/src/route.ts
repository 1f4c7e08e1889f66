import { computed, signal } from "@preact/signals";

// All that a link to a view has to say is in the URL's hash: the section, what is selected, what is open, what is filtered.
const read = () => new URLSearchParams(location.hash.slice(1));

export const route = signal(read());
export const section = computed(() => Number(route.value.get("s") ?? 0) || 0);

addEventListener("hashchange", () => {
  if (read().toString() !== route.peek().toString()) route.value = read();
});

export function go(changes: Record<string, string | null>, keep = true): void {
  const next = new URLSearchParams(keep ? route.peek() : undefined);
  for (const [name, value] of Object.entries(changes)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  route.value = next;
  try {
    history.replaceState(null, "", `#${next}`);
  } catch {
    // A page inside of another one's frame may not be allowed to: it works, only without links.
  }
}

export function param(name: string): string {
  return route.value.get(name) ?? "";
}
