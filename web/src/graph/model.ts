import { count, file, short, size } from "../format";
import type { Graph, GraphNode, TreeItem } from "../types";

export const CHILDREN = 160;
const SECTIONS = 40;
const OPEN_UP_TO = 60;

/** A part of a graph that is drawn as one box until it is opened. */
export interface Group {
  key: string;
  title: string;
  times: number;
  first: number;
  size: number;
  chained: boolean;
  /** What is in a stretch of a long list, commonest first; empty for other groups. */
  names: string;
  items: Item[];
  parent: Group | null;
}

export type Item = number | Group;
export type Tone = "" | "at" | "par" | "keeps";
export type Line = [text: string, tone: Tone];

export interface Edge {
  source: number;
  slot: number;
  target: number;
}

export interface Model {
  nodes: GraphNode[];
  items: Item[];
  parents: (Group | null)[];
  groups: Map<string, Group>;
  edges: Edge[];
  count: number;
  hidden: number;
}

export const keyOf = (item: Item): string => (typeof item === "number" ? `n${item}` : item.key);
export const parentOf = (model: Model, item: Item): Group | null => (typeof item === "number" ? model.parents[item] : item.parent);
export const extent = (item: Item): number => (typeof item === "number" ? 1 : item.size * item.times);

export function modelOf(graph: Graph): Model {
  const shown = graph.shown ?? graph.nodes.map((_, i) => i);
  const outputs = graph.outputs.map(
    ([node, slot], i): GraphNode => ({
      kind: "output",
      name: graph.outputs.length > 1 ? `output[${i}]` : "output",
      values: [graph.nodes[node].values[slot] ?? ""],
      sources: [[node, slot]],
      parameters: [],
      saved: [],
      forward: null,
      backward: null,
    }),
  );
  const nodes = [...shown.map((i) => graph.nodes[i]), ...outputs];
  const parents: (Group | null)[] = new Array(nodes.length).fill(null);
  const stands = Int32Array.from(nodes, (_, i) => i);
  const groups = new Map<string, Group>();
  const build = (data: TreeItem[], parent: Group | null): Item[] => {
    const items = data.map((entry, i): Item => {
      if (typeof entry === "number") return entry;
      const key = parent ? `${parent.key}.${i}` : `g${i}`;
      const group: Group = { ...entry, key, parent, names: "", items: [] };
      group.items = build(entry.items, group);
      group.title ||= commonest(group.items, nodes);
      for (let j = entry.size; j < entry.size * entry.times; j++) stands[entry.first + j] = entry.first + (j % entry.size);
      return group;
    });
    return sectioned(items, parent, nodes);
  };
  const adopt = (items: Item[], parent: Group | null): void => {
    for (const item of items) {
      if (typeof item === "number") parents[item] = parent;
      else {
        item.parent = parent;
        groups.set(item.key, item);
        adopt(item.items, item);
      }
    }
  };
  const tree = graph.tree ?? shown.map((_, i) => i);
  const items = [...build(tree, null), ...outputs.map((_, i) => shown.length + i)];
  adopt(items, null);
  const model = { nodes, items, parents, groups, edges: [], count: graph.nodes.length, hidden: graph.nodes.length - shown.length };
  return { ...model, edges: edgesOf(graph, model, shown, stands) };
}

/** At most `CHILDREN` items: where there are more, stretches of them become groups, and so on inside of those. */
function sectioned(items: Item[], parent: Group | null, nodes: GraphNode[]): Item[] {
  if (items.length <= CHILDREN) return items;
  const step = Math.ceil(items.length / SECTIONS);
  const sections: Item[] = [];
  for (let start = 0; start < items.length; start += step) {
    const part = items.slice(start, start + step);
    const key = `${parent?.key ?? ""}s${start}`;
    const first = typeof part[0] === "number" ? part[0] : part[0].first;
    const group: Group = { key, title: "", times: 1, first, size: part.reduce((sum: number, item) => sum + extent(item), 0), chained: true, names: "", items: [], parent };
    group.title = `${first + 1} – ${first + group.size}`;
    group.names = commonest(part, nodes);
    group.items = sectioned(part, group, nodes);
    sections.push(group);
  }
  return sections;
}

function commonest(items: Item[], nodes: GraphNode[]): string {
  const counts = new Map<string, number>();
  for (const item of items) {
    const name = typeof item === "number" ? nodes[item].name : item.title;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const names = [...counts].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  return names.slice(0, 3).join(", ") + (names.length > 3 ? ", …" : "");
}

function edgesOf(graph: Graph, model: Model, shown: number[], stands: Int32Array): Edge[] {
  const position = new Int32Array(graph.nodes.length).fill(-1);
  shown.forEach((node, i) => (position[node] = i));
  const edges = new Map<string, Edge>();
  model.nodes.forEach((node, target) => {
    if (stands[target] !== target) return;
    for (let [source, slot] of node.sources) {
      while (position[source] < 0) [source, slot] = graph.nodes[source].sources[0];
      const from = stands[position[source]];
      if (from !== target) edges.set(`${from}:${slot}:${target}`, { source: from, slot, target });
    }
  });
  return [...edges.values()];
}

/** What is open at first: everything in a small graph, else the way down to the first level on which there is a choice. */
export function openAtFirst(model: Model): string[] {
  const drawn = [...model.groups.values()].reduce((sum, group) => sum + group.items.length, model.items.length);
  if (drawn <= OPEN_UP_TO) return [...model.groups.keys()];
  const alone = model.items.filter((item): item is Group => typeof item !== "number");
  return alone.length === 1 && model.items.length <= 8 && alone[0].items.length <= CHILDREN ? [alone[0].key] : [];
}

export function isOpen(item: Item, open: Set<string>): item is Group {
  return typeof item !== "number" && open.has(item.key);
}

/** The box in which a node is seen: itself, or the outermost closed group around it. */
export function visible(model: Model, item: Item, open: Set<string>): Item {
  let seen = item;
  for (let group = parentOf(model, item); group; group = group.parent) if (!open.has(group.key)) seen = group;
  return seen;
}

export function ancestors(model: Model, item: Item): Group[] {
  const found: Group[] = [];
  for (let group = parentOf(model, item); group; group = group.parent) found.push(group);
  return found;
}

export function titleOf(model: Model, item: Item): string {
  if (typeof item === "number") return model.nodes[item].name;
  return `${item.times > 1 ? `×${item.times.toLocaleString("en")}  ` : ""}${item.title}`;
}

export function linesOf(model: Model, item: Item): Line[] {
  if (typeof item === "number") return nodeLines(model.nodes[item]);
  const each = item.times > 1 ? (item.chained ? ", one after another" : ", side by side") : "";
  const lines: Line[] = [[`${count(item.size, "operation")}${item.times > 1 ? ` each${each}` : ""}${item.names && `: ${item.names}`}`, "at"]];
  const kept = keptBy(model, item);
  if (kept) lines.push([`keeps ${size(kept)}${item.times > 1 ? " each" : ""}`, "keeps"]);
  return lines;
}

function nodeLines(node: GraphNode): Line[] {
  const lines: Line[] = [];
  if (node.forward) lines.push([short(`forward ${file(node.forward)}`), "at"]);
  if (node.backward) lines.push([short(`backward ${file(node.backward)}`), "at"]);
  const modules = new Map<string, Set<string>>();
  for (const { name } of node.parameters) {
    const dot = name.lastIndexOf(".") + 1;
    const module = name.slice(0, dot);
    modules.set(module, (modules.get(module) ?? new Set()).add(name.slice(dot)));
  }
  for (const [module, names] of modules) lines.push([short(module + [...names].join(", ")), "par"]);
  if (node.saved.length) {
    const names = [...new Set(node.saved.map((tensor) => tensor.name))];
    const more = names.length > 2 ? ` and ${names.length - 2} more` : "";
    lines.push([short(`keeps ${names.slice(0, 2).join(", ")}${more} · ${size(node.saved.reduce((sum, tensor) => sum + tensor.bytes, 0))}`), "keeps"]);
  }
  return lines;
}

function keptBy(model: Model, group: Group): number {
  let kept = 0;
  for (let i = group.first; i < group.first + group.size; i++) for (const tensor of model.nodes[i].saved) kept += tensor.bytes;
  return kept;
}
