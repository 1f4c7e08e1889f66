import { useMemo } from "preact/hooks";
import { go, param } from "../route";
import { type Item, type Model, ancestors, openAtFirst } from "./model";

/** What is selected and which groups are open, as the address says it; a selected node's groups are open. */
export function useOpen(model: Model, items: Map<string, Item>) {
  const selected = items.has(param("n")) ? param("n") : "";
  const given = param("open");
  const open = useMemo(() => openOf(model, items, given, selected), [model, given, selected]);
  const toggle = (key: string, wanted: boolean): void => {
    const group = model.groups.get(key);
    if (!group || open.has(key) === wanted) return;
    const next = new Set(open);
    if (wanted) next.add(key);
    else for (const other of open) if (items.get(other) === group || ancestors(model, items.get(other)!).includes(group)) next.delete(other);
    go({ n: key, open: [...next].join(",") || "-" });
  };
  return { selected, open, toggle };
}

function openOf(model: Model, items: Map<string, Item>, given: string, selected: string): Set<string> {
  const open = new Set(given ? given.split(",").filter((key) => model.groups.has(key)) : openAtFirst(model));
  const item = items.get(selected);
  if (item !== undefined) for (const group of ancestors(model, item)) open.add(group.key);
  for (const key of [...open]) if (ancestors(model, items.get(key)!).some((group) => !open.has(group.key))) open.delete(key);
  return open;
}
