import type { Box, Container, Link } from "./layout";
import { type Group, type Item, type Model, ancestors, isOpen, keyOf, linesOf, titleOf, visible } from "./model";

export const TITLE = 13;
export const TEXT = 11;
export const LEADING = 16;
export const PAD = 12;
const ADVANCE = 0.605;
const LABELS = 90;

export function widthOf(text: string, font: number): number {
  let units = 0;
  for (const char of text) units += char.codePointAt(0)! > 0x2e7f ? 2 : 1;
  return units * font * ADVANCE;
}

function boxOf(model: Model, item: Item): Box {
  const lines = linesOf(model, item);
  const head = widthOf(titleOf(model, item), TITLE) + (typeof item === "number" ? 0 : 22);
  const width = Math.max(head, ...lines.map(([text]) => widthOf(text, TEXT)), 58) + 2 * PAD;
  return { key: keyOf(item), width, height: 2 * 8 + TITLE + lines.length * LEADING + (typeof item === "number" ? 0 : 2) };
}

/** Everything that has to be laid out to show a graph with some groups open: innermost containers first. */
export function planOf(model: Model, open: Set<string>): Container[] {
  const containers: Container[] = [];
  const byKey = new Map<string, Container>();
  const add = (group: Group | null, items: Item[]): void => {
    const minWidth = group ? widthOf(titleOf(model, group), TITLE) + 60 : 0;
    const container: Container = { key: group?.key ?? "", boxes: [], links: [], entering: [], leaving: [], minWidth };
    byKey.set(container.key, container);
    for (const item of items) {
      if (!isOpen(item, open)) container.boxes.push(boxOf(model, item));
      else {
        container.boxes.push({ key: item.key, width: 0, height: 0, container: true });
        add(item, item.items);
      }
    }
    containers.push(container);
  };
  add(null, model.items);
  for (const [container, links] of linksOf(model, open)) byKey.get(container)!.links = links;
  for (const container of containers) settle(container);
  return containers;
}

function linksOf(model: Model, open: Set<string>): Map<string, Link[]> {
  const seen = new Map<string, Map<string, Link & { values: Set<string> }>>();
  const note = (container: Group | null, flow: string, from: string, to: string, value: string): void => {
    const key = container?.key ?? "";
    const known = seen.get(key) ?? new Map();
    seen.set(key, known);
    const id = `${flow}|${from}|${to}`;
    const link = known.get(id) ?? { flow, from, to, label: "", labelWidth: 0, values: new Set() };
    link.values.add(value);
    known.set(id, link);
  };
  for (const edge of model.edges) {
    const from = visible(model, edge.source, open);
    const to = visible(model, edge.target, open);
    if (from === to) continue;
    const value = model.nodes[edge.source].values[edge.slot] ?? "";
    const flow = typeof from === "number" ? `${keyOf(from)}:${edge.slot}` : keyOf(from);
    const up = ancestors(model, from);
    const down = ancestors(model, to);
    const shared = up.find((group) => down.includes(group)) ?? null;
    const left = up.slice(0, shared ? up.indexOf(shared) : up.length);
    const right = down.slice(0, shared ? down.indexOf(shared) : down.length);
    const outer = (chain: Group[], item: Item) => keyOf(chain.length ? chain[chain.length - 1] : item);
    note(shared, flow, outer(left, from), outer(right, to), value);
    left.forEach((group, i) => note(group, flow, keyOf(i ? left[i - 1] : from), `out ${flow}`, value));
    right.forEach((group, i) => note(group, flow, `in ${flow}`, keyOf(i ? right[i - 1] : to), value));
  }
  return new Map(
    [...seen].map(([key, links]) => [key, [...links.values()].map(({ values, ...link }) => ({ ...link, label: values.size > 1 ? `${values.size} tensors` : [...values][0] }))]),
  );
}

/** Name ports, and keep the label of each tensor's shortest link where there is room for labels. */
function settle(container: Container): void {
  const order = new Map(container.boxes.map((box, i) => [box.key, i]));
  const span = (link: Link) => (order.get(link.to) ?? order.size) - (order.get(link.from) ?? -1);
  container.links.sort((a, b) => span(a) - span(b));
  const labelled = new Set<string>();
  const few = container.links.length <= LABELS;
  const entering = new Set<string>();
  const leaving = new Set<string>();
  for (const link of container.links) {
    if (link.from.startsWith("in ")) entering.add(link.flow);
    if (link.to.startsWith("out ")) leaving.add(link.flow);
    const wanted = few && !labelled.has(link.flow) && !link.from.startsWith("in ") && !link.to.startsWith("out ");
    labelled.add(link.flow);
    if (!wanted) link.label = "";
    link.labelWidth = widthOf(link.label, TEXT) + 10;
  }
  container.entering = [...entering];
  container.leaving = [...leaving];
}
