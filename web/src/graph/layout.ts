import { Graph, layout } from "@dagrejs/dagre";

// Layout of one picture, a container at a time, innermost first. It runs in a worker, and knows boxes and links only.

export interface Box {
  key: string;
  width: number;
  height: number;
  /** The box is an open container, laid out before. */
  container?: boolean;
}

export interface Link {
  flow: string;
  from: string;
  to: string;
  label: string;
  labelWidth: number;
}

export interface Container {
  key: string;
  boxes: Box[];
  links: Link[];
  /** What comes in at the top and leaves at the bottom. */
  entering: string[];
  leaving: string[];
  minWidth: number;
}

export interface PlacedBox {
  key: string;
  x: number;
  y: number;
  width: number;
  height: number;
}

export type Point = [x: number, y: number];

export interface PlacedLink {
  from: string;
  to: string;
  flow: string;
  points: Point[];
  label: string;
  at: Point | null;
  end: boolean;
}

/** Boxes and links relative to the container's corner. */
export interface Placed {
  key: string;
  width: number;
  height: number;
  boxes: PlacedBox[];
  links: PlacedLink[];
  ports: Record<string, number>;
}

export const HEAD = 34;
const PAD = 20;
const WIDE = 120;
const IN = "in ";
const OUT = "out ";

const known = new Map<string, string>();

/** Lay out containers, innermost first. What was laid out before is known again: to open a group costs that group and those around it. */
export function layOut(containers: Container[]): Placed[] {
  const placed = new Map<string, Placed>();
  for (const container of containers) {
    const inside = container.boxes.map((box) => (box.container ? placed.get(box.key) : null));
    const question = JSON.stringify([container, inside.map((box) => box && [box.width, box.height, box.ports])]);
    const answer = known.get(question) ?? JSON.stringify(one(container, placed));
    known.set(question, answer);
    placed.set(container.key, JSON.parse(answer));
  }
  return [...placed.values()];
}

function one(container: Container, inside: Map<string, Placed>): Placed {
  const graph = new Graph({ multigraph: true });
  const many = container.links.length > WIDE;
  graph.setGraph({ rankdir: "TB", nodesep: 26, edgesep: 9, ranksep: many ? 72 : 40, ranker: many ? "longest-path" : "network-simplex" });
  const size = new Map<string, [number, number]>();
  for (const box of container.boxes) {
    const known = box.container ? inside.get(box.key)! : box;
    size.set(box.key, [known.width, known.height]);
    graph.setNode(box.key, { width: known.width, height: known.height });
  }
  for (const [side, flows] of [[IN, container.entering], [OUT, container.leaving]] as const) {
    if (!flows.length) continue;
    graph.setNode(side, { width: 1, height: 1 });
    for (const flow of flows) {
      graph.setNode(side + flow, { width: 16, height: 1 });
      if (side === IN) graph.setEdge(side, side + flow, { weight: 50 }, "port");
      else graph.setEdge(side + flow, side, { weight: 50 }, "port");
    }
  }
  container.links.forEach((link, i) =>
    graph.setEdge(link.from, link.to, { ...(link.label && { width: link.labelWidth, height: 14 }), labelpos: "c" }, String(i)),
  );
  layout(graph);
  return settled(container, graph, size, inside);
}

function settled(container: Container, graph: any, size: Map<string, [number, number]>, inside: Map<string, Placed>): Placed {
  const boxes: PlacedBox[] = container.boxes.map(({ key }) => {
    const { x, y } = graph.node(key);
    const [width, height] = size.get(key)!;
    return { key, x: x - width / 2, y: y - height / 2, width, height };
  });
  const links: PlacedLink[] = container.links.map((link, i) => {
    const { points, x, y } = graph.edge(link.from, link.to, String(i));
    const at: Point | null = link.label ? [x, y] : null;
    return { ...link, points: points.map((p: { x: number; y: number }): Point => [p.x, p.y]), at, end: !link.to.startsWith(OUT) };
  });
  const xs = [...boxes.flatMap((b) => [b.x, b.x + b.width]), ...links.flatMap((l) => [...l.points.map((p) => p[0]), ...(l.at ? labelEnds(l) : [])])];
  const ys = boxes.flatMap((b) => [b.y, b.y + b.height]);
  const own = container.key !== "";
  const [left, top] = [Math.min(...xs, Infinity), Math.min(...ys, Infinity)];
  const spread = Math.max(...xs) - left;
  const width = Math.max(spread + 2 * PAD, container.minWidth);
  const dx = (width - spread) / 2 - left;
  const dy = (own ? HEAD + (container.entering.length ? 26 : 4) : PAD) - top;
  const height = Math.max(...ys) + dy + (container.leaving.length ? 30 : PAD);
  for (const box of boxes) {
    box.x += dx;
    box.y += dy;
  }
  for (const link of links) {
    link.points = link.points.map(([x, y]): Point => [x + dx, y + dy]);
    if (link.at) link.at = [link.at[0] + dx, link.at[1] + dy];
  }
  tie(links, new Map(boxes.map((box) => [box.key, box])), inside, height);
  const at: Record<string, number> = {};
  for (const flow of container.entering) at[IN + flow] = graph.node(IN + flow).x + dx;
  for (const flow of container.leaving) at[OUT + flow] = graph.node(OUT + flow).x + dx;
  for (const link of links) {
    if (link.from in at) {
      const near = link.points.length > 2 && link.points[1][1] < HEAD + 24 ? 2 : 1;
      link.points.splice(0, near, [at[link.from], 0], [at[link.from], HEAD]);
    }
    if (link.to in at) link.points[link.points.length - 1] = [at[link.to], height];
  }
  return { key: container.key, width, height, boxes, links, ports: at };
}

const labelEnds = (link: PlacedLink & { labelWidth?: number }): number[] => [link.at![0] - link.labelWidth! / 2, link.at![0] + link.labelWidth! / 2];

/** Let links end on the edges of their boxes: at a container's ports, else side by side in the order in which they come. */
function tie(links: PlacedLink[], boxes: Map<string, PlacedBox>, inside: Map<string, Placed>, height: number): void {
  for (const first of [true, false]) {
    const ends = new Map<string, PlacedLink[]>();
    for (const link of links) {
      const key = first ? link.from : link.to;
      ends.set(key, [...(ends.get(key) ?? []), link]);
    }
    for (const [key, own] of ends) {
      const box = boxes.get(key);
      if (!box) continue;
      const index = (link: PlacedLink) => (first ? 0 : link.points.length - 1);
      const next = (link: PlacedLink) => link.points[first ? Math.min(1, link.points.length - 1) : Math.max(0, link.points.length - 2)][0];
      const ports = inside.get(key)?.ports;
      const flows = [...new Set(own.sort((a, b) => next(a) - next(b)).map((link) => (first ? link.flow : link.flow + link.from)))];
      const middle = box.x + box.width / 2;
      const room = Math.min(28, (box.width - 24) / Math.max(1, flows.length));
      for (const link of own) {
        const port = ports?.[(first ? OUT : IN) + link.flow];
        const place = flows.indexOf(first ? link.flow : link.flow + link.from) - (flows.length - 1) / 2;
        const x = port === undefined ? middle + place * room : box.x + port;
        link.points[index(link)] = [x, first ? Math.min(height, box.y + box.height) : box.y];
      }
    }
  }
}
