import { h } from "preact";
import { useComputed, useSignal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { count } from "../format";
import { Arrow } from "../arrow";
import { go, param } from "../route";
import type { Graph } from "../types";
import { laidOut } from "./client";
import { Details } from "./details";
import { keep, pngOf, svgOf } from "./export";
import { type Item, type Model, ancestors, isOpen, modelOf, openAtFirst, parentOf, titleOf } from "./model";
import { neighbour } from "./neighbour";
import { Outline } from "./outline";
import { Picture } from "./picture";
import { planOf } from "./plan";
import { type Scene, sceneOf } from "./scene";
import { Search } from "./search";

const models = new WeakMap<Graph, Model>();
const KEYS: [string, string][] = [
  ["/", "search"],
  ["↑ ↓ ← →", "go along edges, and to what stands beside"],
  ["e", "expand"],
  ["c", "collapse, or the group around"],
  ["0", "whole width"],
  ["+ −", "larger, smaller"],
  ["?", "these keys"],
];

function itemsOf(model: Model): Map<string, Item> {
  const items = new Map<string, Item>(model.groups);
  model.nodes.forEach((_, i) => items.set(`n${i}`, i));
  return items;
}

export function GraphView({ graph, name, badges }: { graph: Graph; name: string; badges: Map<string, number> }) {
  if (!models.has(graph)) models.set(graph, modelOf(graph));
  const model = models.get(graph)!;
  const items = useMemo(() => itemsOf(model), [model]);
  const selected = items.has(param("n")) ? param("n") : "";
  const open = useMemo(() => openOf(model, items, param("open"), selected), [model, param("open"), selected]);
  const [scene, setScene] = useState<Scene | null>(null);
  const [help, setHelp] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  const svg = useRef<SVGSVGElement>(null);
  const view = useSignal({ x: 0, y: 0, k: 1 });
  const transform = useComputed(() => `translate(${view.value.x} ${view.value.y}) scale(${view.value.k})`);

  useEffect(() => {
    let current = true;
    void laidOut(planOf(model, open)).then((placed) => current && setScene(sceneOf(placed)));
    return () => void (current = false);
  }, [model, open]);

  const fit = (drawn: Scene): void => {
    const { clientWidth: width, clientHeight: height } = svg.current!;
    const whole = Math.min(1, width / drawn.width, height / drawn.height);
    const k = whole > 0.55 ? whole : Math.min(1, Math.max(0.55, width / drawn.width));
    view.value = { x: (width - drawn.width * k) / 2, y: Math.max(0, (height - drawn.height * k) / 2), k };
  };
  const began = useRef<Graph | null>(null);
  useEffect(() => {
    if (!scene) return;
    if (began.current !== graph) fit(scene);
    began.current = graph;
    reveal();
    svg.current!.dataset.ready = String(scene.boxes.length);
  }, [scene, selected]);

  const reveal = (): void => {
    const box = scene?.boxes.find(({ key }) => key === selected);
    if (!box) return;
    const { clientWidth: width, clientHeight: height } = svg.current!;
    const { x, y, k } = view.peek();
    const into = (at: number, extent: number, room: number, shift: number) => {
      const [near, far] = [at * k + shift, (at + extent) * k + shift];
      if (near >= 24 && far <= room - 24) return shift;
      return extent * k > room - 48 ? 24 - at * k : room / 2 - (at + extent / 2) * k;
    };
    view.value = { k, x: into(box.x, box.width, width, x), y: into(box.y, Math.min(box.height, 60), height, y) };
  };
  const zoom = (factor: number, cx = svg.current!.clientWidth / 2, cy = svg.current!.clientHeight / 2): void => {
    const { x, y, k } = view.peek();
    const next = Math.min(3, Math.max(0.05, k * factor));
    view.value = { k: next, x: cx - ((cx - x) * next) / k, y: cy - ((cy - y) * next) / k };
  };
  const pick = (key: string): void => go({ n: key });
  const toggle = (key: string, wanted: boolean): void => {
    const group = model.groups.get(key);
    if (!group || open.has(key) === wanted) return;
    const next = new Set(open);
    if (wanted) next.add(key);
    else for (const other of open) if (items.get(other) === group || ancestors(model, items.get(other)!).includes(group)) next.delete(other);
    go({ n: key, open: [...next].join(",") || "-" });
  };
  const onPick = (key: string, flip: boolean): void => {
    svg.current!.focus();
    if (flip) toggle(key, !open.has(key));
    else pick(key);
  };
  const collapse = (): void => {
    const item = items.get(selected);
    if (item === undefined) return;
    const group = isOpen(item, open) ? item : parentOf(model, item);
    if (group) toggle(group.key, false);
  };
  const steps: Record<string, () => void> = {
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
  const onKey = (event: KeyboardEvent): void => {
    if (/INPUT|SELECT/.test((event.target as Element).tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
    const arrows = event.target === svg.current && event.key.startsWith("Arrow");
    const step = arrows ? () => pick(neighbour(model, items, scene!, open, selected, event.key)) : steps[event.key];
    if (!step) return;
    event.preventDefault();
    step();
  };
  useEffect(() => {
    const element = svg.current!;
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 200), event.clientX - left, event.clientY - top);
      else view.value = { ...view.peek(), x: view.peek().x - event.deltaX, y: view.peek().y - event.deltaY };
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);
  useLayoutEffect(() => {
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  });
  const drag = (event: PointerEvent): void => {
    const start = { ...view.peek(), px: event.clientX, py: event.clientY };
    const move = (to: PointerEvent) => (view.value = { k: start.k, x: start.x + to.clientX - start.px, y: start.y + to.clientY - start.py });
    const stop = () => (removeEventListener("pointermove", move), removeEventListener("pointerup", stop));
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  };
  const save = async (png: boolean): Promise<void> => {
    const text = svgOf(svg.current!, scene!.width, scene!.height);
    keep(png ? await pngOf(text) : new Blob([text], { type: "image/svg+xml" }), `${name}.${png ? "png" : "svg"}`);
  };
  const item = items.get(selected);
  return (
    <div class="graph">
      <div class="canvas">
        <div class="tools">
          <Search model={model} field={field} onPick={pick} />
          <span class="tally">
            {count(graph.nodes.length, "node")}
            {model.hidden > 0 && `, ${model.hidden.toLocaleString("en")} reshapes left out`}
          </span>
          <button onClick={() => zoom(0.8)} aria-label="Smaller">−</button>
          <button onClick={() => scene && fit(scene)} title="Whole width">fit</button>
          <button onClick={() => zoom(1.25)} aria-label="Larger">+</button>
          <button onClick={() => save(false)}>SVG</button>
          <button onClick={() => save(true)}>PNG</button>
          <button onClick={() => setHelp(!help)} aria-label="Keys" aria-expanded={help}>?</button>
        </div>
        <svg
          ref={svg}
          tabindex={0}
          role="application"
          aria-label="Picture of the graph: arrow keys follow its edges. The outline beside it says the same as text."
          aria-activedescendant={selected && scene?.boxes.some(({ key }) => key === selected) ? `box-${selected}` : undefined}
          onPointerDown={drag}
        >
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

function openOf(model: Model, items: Map<string, Item>, given: string, selected: string): Set<string> {
  const open = new Set(given ? given.split(",").filter((key) => model.groups.has(key)) : openAtFirst(model));
  const item = items.get(selected);
  if (item !== undefined) for (const group of ancestors(model, item)) open.add(group.key);
  for (const key of [...open]) if (ancestors(model, items.get(key)!).some((group) => !open.has(group.key))) open.delete(key);
  return open;
}

function Keys() {
  return (
    <dl class="keys" aria-label="Keys">
      {KEYS.map(([key, what]) => (
        <div key={key}>
          <dt>
            <kbd>{key}</kbd>
          </dt>
          <dd>{what}</dd>
        </div>
      ))}
    </dl>
  );
}

