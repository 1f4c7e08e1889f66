import { h, type RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Arrow } from "../arrow";
import { go } from "../route";
import type { Graph } from "../types";
import { useCamera } from "./camera";
import { laidOut } from "./client";
import { Details } from "./details";
import { type Item, type Model, isOpen, modelOf, parentOf, titleOf } from "./model";
import { neighbour } from "./neighbour";
import { useOpen } from "./open";
import { Outline } from "./outline";
import { Picture } from "./picture";
import { planOf } from "./plan";
import { type Scene, sceneOf } from "./scene";
import { Keys, Toolbar } from "./toolbar";

const LABEL = "Picture of the graph: arrow keys follow its edges. The outline beside it says the same as text.";
const models = new WeakMap<Graph, Model>();

export function GraphView({ graph, name, badges }: { graph: Graph; name: string; badges: Map<string, number> }) {
  if (!models.has(graph)) models.set(graph, modelOf(graph));
  const model = models.get(graph)!;
  const items = useMemo(() => itemsOf(model), [model]);
  const { selected, open, toggle } = useOpen(model, items);
  const scene = useScene(model, open);
  const [help, setHelp] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const svg = useRef<SVGSVGElement>(null);
  const { transform, fit, reveal, zoom, drag } = useCamera(svg);
  const began = useRef<Graph | null>(null);
  useEffect(() => {
    if (!scene) return;
    if (began.current !== graph) fit(scene);
    began.current = graph;
    const box = scene.boxes.find(({ key }) => key === selected);
    if (box) reveal(box);
    svg.current!.dataset.ready = String(scene.boxes.length);
  }, [scene, selected]);

  const item = items.get(selected);
  const pick = (key: string): void => go({ n: key });
  const collapse = (): void => {
    const group = item === undefined ? null : isOpen(item, open) ? item : parentOf(model, item);
    if (group) toggle(group.key, false);
  };
  const keys: Record<string, () => void> = {
    "/": () => field.current!.focus(),
    "?": () => setHelp(!help),
    "0": () => scene && fit(scene),
    "+": () => zoom(1.25),
    "=": () => zoom(1.25),
    "-": () => zoom(0.8),
    e: () => toggle(selected, true),
    c: collapse,
    Escape: () => setHelp(false),
  };
  useKeys(svg, keys, (key) => scene && pick(neighbour(model, items, scene, open, selected, key)));
  const onPick = (key: string, flip: boolean): void => {
    svg.current!.focus();
    if (flip) toggle(key, !open.has(key));
    else pick(key);
  };
  const shown = scene?.boxes.some(({ key }) => key === selected);
  return (
    <div class="graph">
      <div class="canvas">
        <Toolbar {...{ model, name, scene, svg, field, help }} press={(key) => keys[key]()} onPick={pick} />
        <svg ref={svg} tabindex={0} role="application" aria-label={LABEL} aria-activedescendant={shown ? `box-${selected}` : undefined} onPointerDown={drag}>
          <defs>
            <Arrow id="arrow" />
            <Arrow id="arrow-near" />
          </defs>
          {scene && <Picture {...{ model, items, scene, selected, badges, transform, onPick }} />}
        </svg>
        {help && <Keys />}
      </div>
      <aside class="side">
        <Outline {...{ model, open, selected }} onPick={pick} onToggle={toggle} />
        <Details {...{ model, item, badges, open }} onToggle={toggle} />
        <p class="unseen" role="status">
          {item !== undefined && titleOf(model, item)}
        </p>
      </aside>
    </div>
  );
}

function itemsOf(model: Model): Map<string, Item> {
  const items = new Map<string, Item>(model.groups);
  model.nodes.forEach((_, i) => items.set(`n${i}`, i));
  return items;
}

function useScene(model: Model, open: Set<string>): Scene | null {
  const [scene, setScene] = useState<Scene | null>(null);
  useEffect(() => {
    let current = true;
    void laidOut(planOf(model, open)).then((placed) => current && setScene(sceneOf(placed)));
    return () => void (current = false);
  }, [model, open]);
  return scene;
}

/** Listen to keys wherever nothing is typed; arrows belong to the picture while it has the focus. */
function useKeys(svg: RefObject<SVGSVGElement | null>, keys: Record<string, () => void>, walk: (key: string) => void): void {
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent): void => {
      if (/INPUT|SELECT/.test((event.target as Element).tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
      const act = event.target === svg.current && event.key.startsWith("Arrow") ? () => walk(event.key) : keys[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
}
