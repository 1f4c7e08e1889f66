import { Fragment, h } from "preact";
import type { ReadonlySignal } from "@preact/signals";
import { type Group, type Item, type Model, linesOf, titleOf } from "./model";
import { LEADING, PAD, TEXT, TITLE, widthOf } from "./plan";
import type { Frame, Scene, Wire } from "./scene";

interface Props {
  model: Model;
  items: Map<string, Item>;
  scene: Scene;
  selected: string;
  badges: Map<string, number>;
  transform: ReadonlySignal<string>;
  onPick(key: string, toggle: boolean): void;
}

/** The picture itself. Frames lie below wires, wires below boxes; what belongs to the selected box is drawn last and stronger. */
export function Picture({ model, items, scene, selected, badges, transform, onPick }: Props) {
  const touches = (wire: Wire) => wire.from === selected || wire.to === selected;
  const near = selected ? scene.wires.filter(touches) : [];
  const frames = scene.boxes.filter((box) => box.open).map((box): Open => ({ model, box, selected, onPick, group: items.get(box.key) as Group }));
  return (
    <g transform={transform}>
      {frames.map((frame) => <OpenFrame key={frame.box.key} {...frame} />)}
      {scene.wires.filter((wire) => !near.includes(wire)).map((wire) => <Line key={`${wire.flow}${wire.from}${wire.to}`} wire={wire} tone="wire" />)}
      {near.map((wire) => <Line key={`${wire.flow}${wire.from}${wire.to}`} wire={wire} tone="wire near" />)}
      {frames.map((frame) => <Crest key={frame.box.key} {...frame} />)}
      {scene.boxes.filter((box) => !box.open).map((box) => <Closed key={box.key} {...{ model, box, selected, badges, onPick }} item={items.get(box.key)!} />)}
    </g>
  );
}

function Line({ wire, tone }: { wire: Wire; tone: string }) {
  const width = widthOf(wire.label, TEXT) + 6;
  return (
    <g class={`${tone} d${wire.depth % 2}`}>
      <path d={wire.path} marker-end={wire.end ? `url(#arrow${tone === "wire" ? "" : "-near"})` : undefined} />
      {wire.at && (
        <>
          <rect class="halo" x={wire.at[0] - width / 2} y={wire.at[1] - 8} width={width} height={16} rx={3} />
          <text class="value" x={wire.at[0]} y={wire.at[1] + 4} text-anchor="middle">
            {wire.label}
          </text>
        </>
      )}
    </g>
  );
}

type Open = { model: Model; box: Frame; group: Group; selected: string; onPick: Props["onPick"] };

function OpenFrame({ model, box, group, selected, onPick }: Open) {
  return (
    <g id={`box-${box.key}`} class={`frame d${box.depth % 2}${selected === box.key ? " on" : ""}`} role="img" aria-label={titleOf(model, group)}>
      <rect x={box.x} y={box.y} width={box.width} height={box.height} rx={9} onClick={() => onPick(box.key, false)} onDblClick={() => onPick(box.key, true)} />
    </g>
  );
}

/** The title of an open group lies above the wires that come in under it. */
function Crest({ model, box, group, onPick }: Open) {
  const title = titleOf(model, group);
  return (
    <g class={`crest d${(box.depth + 1) % 2}`}>
      <rect class="halo" x={box.x + 8} y={box.y + 9} width={widthOf(title, TITLE) + 32} height={18} rx={3} />
      <Toggle x={box.x + 19} y={box.y + 18} open onClick={() => onPick(box.key, true)} />
      <text class="title" x={box.x + 34} y={box.y + 22}>
        {title}
      </text>
    </g>
  );
}

function Closed({ model, box, item, selected, badges, onPick }: { model: Model; box: Frame; item: Item } & Pick<Props, "selected" | "badges" | "onPick">) {
  const group = typeof item !== "number";
  const kind = group ? (item.times > 1 ? "group many" : "group") : model.nodes[item].kind;
  const badge = badgeOf(model, item, badges);
  const middle = box.x + box.width / 2;
  const top = box.y + 8 + TITLE - 2;
  return (
    <g
      id={`box-${box.key}`}
      class={`box ${kind}${selected === box.key ? " on" : ""}`}
      role="img"
      aria-label={[titleOf(model, item), ...linesOf(model, item).map(([text]) => text)].join(", ")}
      onClick={() => onPick(box.key, false)}
      onDblClick={() => onPick(box.key, true)}
    >
      {kind === "group many" && <rect class="shade" x={box.x + 5} y={box.y + 5} width={box.width} height={box.height} rx={7} />}
      <rect x={box.x} y={box.y} width={box.width} height={box.height} rx={7} />
      {group && <Toggle x={box.x + 17} y={top - 4} open={false} onClick={() => onPick(box.key, true)} />}
      <text class="title" x={group ? box.x + 31 : middle} y={top} text-anchor={group ? "start" : "middle"}>
        {titleOf(model, item)}
      </text>
      {linesOf(model, item).map(([text, tone], i) => (
        <text key={i} class={tone} x={group ? box.x + PAD : middle} y={top + (i + 1) * LEADING + (group ? 2 : 0)} text-anchor={group ? "start" : "middle"}>
          {text}
        </text>
      ))}
      {badge > 0 && (
        <g class="badge">
          <circle cx={box.x + box.width} cy={box.y} r={9} />
          <text x={box.x + box.width} y={box.y + 4} text-anchor="middle">
            {badge}
          </text>
        </g>
      )}
    </g>
  );
}

function badgeOf(model: Model, item: Item, badges: Map<string, number>): number {
  const [first, end] = typeof item === "number" ? [item, item + 1] : [item.first, item.first + item.size];
  const subjects = model.nodes.slice(first, end).flatMap((node) => node.subject ?? []);
  return [...new Set(subjects)].reduce((sum, subject) => sum + (badges.get(subject) ?? 0), 0);
}

function Toggle({ x, y, open, onClick }: { x: number; y: number; open: boolean; onClick(): void }) {
  const click = (event: Event) => {
    event.stopPropagation();
    onClick();
  };
  return (
    <g class="toggle" onClick={click}>
      <circle cx={x} cy={y} r={8} />
      <path d={`M${x - 4} ${y}h8${open ? "" : `M${x} ${y - 4}v8`}`} />
    </g>
  );
}
