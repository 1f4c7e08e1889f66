import { h, type RefObject } from "preact";
import { count } from "../format";
import { keep, pngOf, svgOf } from "./export";
import type { Model } from "./model";
import type { Scene } from "./scene";
import { Search } from "./search";

const KEYS: [string, string][] = [
  ["/", "search"],
  ["↑ ↓ ← →", "go along edges, and to what stands beside"],
  ["e", "expand"],
  ["c", "collapse, or the group around"],
  ["0", "whole width"],
  ["+ −", "larger, smaller"],
  ["?", "these keys"],
];

interface Props {
  model: Model;
  name: string;
  scene: Scene | null;
  svg: RefObject<SVGSVGElement | null>;
  field: RefObject<HTMLInputElement | null>;
  help: boolean;
  /** What a key does, for those who point instead. */
  press(key: string): void;
  onPick(key: string): void;
}

export function Toolbar({ model, name, scene, svg, field, help, press, onPick }: Props) {
  const save = async (png: boolean): Promise<void> => {
    const text = svgOf(svg.current!, scene!.width, scene!.height);
    keep(png ? await pngOf(text) : new Blob([text], { type: "image/svg+xml" }), `${name}.${png ? "png" : "svg"}`);
  };
  return (
    <div class="tools">
      <Search model={model} field={field} onPick={onPick} />
      <span class="tally">
        {count(model.count, "node")}
        {model.hidden > 0 && `, ${model.hidden.toLocaleString("en")} reshapes left out`}
      </span>
      <button onClick={() => press("-")} aria-label="Smaller">−</button>
      <button onClick={() => press("0")} title="Whole width">fit</button>
      <button onClick={() => press("+")} aria-label="Larger">+</button>
      <button onClick={() => save(false)}>SVG</button>
      <button onClick={() => save(true)}>PNG</button>
      <button onClick={() => press("?")} aria-label="Keys" aria-expanded={help}>?</button>
    </div>
  );
}

export function Keys() {
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
