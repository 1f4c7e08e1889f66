import { type Item, type Model, isOpen, keyOf, visible } from "./model";
import type { Frame, Scene } from "./scene";

const middle = (box: Frame): [number, number] => [box.x + box.width / 2, box.y + box.height / 2];

/** The box that an arrow key leads to: up and down along edges, left and right to the nearest box at the same height. */
export function neighbour(model: Model, items: Map<string, Item>, scene: Scene, open: Set<string>, from: string, key: string): string {
  const boxes = new Map(scene.boxes.map((box) => [box.key, box]));
  const own = boxes.get(from);
  const item = items.get(from);
  if (!own || item === undefined) return scene.boxes[0]?.key ?? "";
  const [x, y] = middle(own);
  const nearest = (found: Frame[], distance: (box: Frame) => number) => found.sort((a, b) => distance(a) - distance(b))[0]?.key ?? from;
  if (key === "ArrowUp" || key === "ArrowDown") {
    if (isOpen(item, open)) return key === "ArrowDown" ? keyOf(item.items[0]) : item.parent ? item.parent.key : from;
    const ends = new Set<string>();
    for (const edge of model.edges) {
      const [source, target] = [visible(model, edge.source, open), visible(model, edge.target, open)];
      if (source === target) continue;
      if (key === "ArrowDown" && source === item) ends.add(keyOf(target));
      if (key === "ArrowUp" && target === item) ends.add(keyOf(source));
    }
    return nearest([...ends].flatMap((end) => boxes.get(end) ?? []), (box) => Math.abs(middle(box)[0] - x) + Math.abs(middle(box)[1] - y) / 4);
  }
  const sign = key === "ArrowRight" ? 1 : -1;
  const beside = scene.boxes.filter((box) => !box.open && box.depth === own.depth && (middle(box)[0] - x) * sign > 1 && Math.abs(middle(box)[1] - y) < 80);
  return nearest(beside, (box) => Math.abs(middle(box)[0] - x) + 2 * Math.abs(middle(box)[1] - y));
}
