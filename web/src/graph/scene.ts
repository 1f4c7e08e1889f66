import type { Placed, PlacedBox, Point } from "./layout";

export interface Frame extends PlacedBox {
  open: boolean;
  depth: number;
}

export interface Wire {
  from: string;
  to: string;
  flow: string;
  path: string;
  label: string;
  at: Point | null;
  end: boolean;
  depth: number;
}

/** A picture in its own coordinates: frames outside in, boxes and wires. */
export interface Scene {
  width: number;
  height: number;
  boxes: Frame[];
  wires: Wire[];
}

export function sceneOf(placed: Placed[]): Scene {
  const byKey = new Map(placed.map((container) => [container.key, container]));
  const scene: Scene = { width: 0, height: 0, boxes: [], wires: [] };
  const draw = (key: string, x: number, y: number, depth: number): void => {
    const container = byKey.get(key)!;
    const inside: PlacedBox[] = [];
    for (const box of container.boxes) {
      const open = byKey.has(box.key);
      scene.boxes.push({ ...box, x: box.x + x, y: box.y + y, open, depth });
      if (open) inside.push(box);
    }
    for (const link of container.links) {
      const at: Point | null = link.at && [link.at[0] + x, link.at[1] + y];
      scene.wires.push({ ...link, path: curve(link.points.map(([px, py]): Point => [px + x, py + y])), at, depth });
    }
    for (const box of inside) draw(box.key, box.x + x, box.y + y, depth + 1);
  };
  const top = byKey.get("")!;
  scene.width = top.width;
  scene.height = top.height;
  draw("", 0, 0, 0);
  return scene;
}

const round = (value: number): number => Math.round(value * 10) / 10;

/** A line that leaves and arrives vertically, and passes every point. */
function curve(points: Point[]): string {
  let path = `M${round(points[0][0])} ${round(points[0][1])}`;
  for (let i = 1; i < points.length; i++) {
    const [[x0, y0], [x1, y1]] = [points[i - 1], points[i]];
    if (Math.abs(x0 - x1) < 0.5) path += `L${round(x1)} ${round(y1)}`;
    else {
      const middle = round((y0 + y1) / 2);
      path += `C${round(x0)} ${middle} ${round(x1)} ${middle} ${round(x1)} ${round(y1)}`;
    }
  }
  return path;
}
