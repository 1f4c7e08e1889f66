import { Fragment, h } from "preact";
import { count, place, size } from "./format";
import { go, param } from "./route";
import { Table } from "./table";
import { type Rect, squarified } from "./treemap";
import type { Block, Holder, Saved } from "./types";

const WIDTH = 960;
const HEIGHT = 320;
const HEAD = 22;
const DRAWN = 300;
const LISTED = 500;
const WAYS: Record<string, string> = { packed: "packed by a saved-tensor hook", ctx: "on ctx, unseen by saved-tensor hooks" };

interface Owner {
  name: string;
  bytes: number;
  cells: Cell[];
}

/** A block, or all blocks of an owner that are too many to draw one by one. */
interface Cell {
  name: string;
  bytes: number;
  tone: string;
  about: string;
  index: number;
}

const ownerOf = (block: Block): string => [...new Set(block.holders.map((holder) => holder.node))].join(" + ");

function ownersOf(saved: Saved): Owner[] {
  const owners = new Map<string, Owner>();
  const rests = new Map<string, Block[]>();
  saved.blocks.forEach((block, index) => {
    if (!block.bytes) return;
    const name = ownerOf(block);
    const owner = owners.get(name) ?? { name, bytes: 0, cells: [] };
    owner.bytes += block.bytes;
    if (index < DRAWN) owner.cells.push(cellOf(block, index));
    else rests.get(name)?.push(block) ?? rests.set(name, [block]);
    owners.set(name, owner);
  });
  for (const [name, blocks] of rests) {
    const bytes = blocks.reduce((sum, block) => sum + block.bytes, 0);
    const about = `${size(bytes)} in ${count(blocks.length, "smaller block")}`;
    owners.get(name)!.cells.push({ name: count(blocks.length, "block"), bytes, tone: "rest", about, index: -1 });
  }
  for (const { cells } of owners.values()) cells.sort((a, b) => b.bytes - a.bytes);
  return [...owners.values()].sort((a, b) => b.bytes - a.bytes);
}

export function SavedView({ saved }: { saved: Saved }) {
  if (!saved.blocks.length) return <p class="empty">Nothing is kept for backward.</p>;
  const rest = saved.blocks.length - LISTED;
  return (
    <div class="saved">
      <p class="lead">
        <b>{size(saved.bytes)}</b> in {count(saved.blocks.length, "block")}, of which <b>{size(saved.extra)}</b> would be free without this graph
      </p>
      <Treemap saved={saved} />
      <p class="legend">
        <span class="swatch extra" /> kept by the graph alone <span class="swatch ctx" /> hidden on ctx <span class="swatch anyway" /> lives anyway
      </p>
      <Table label="Blocks of memory" heads={["#bytes", "-share", "kept by", "as", "tensor", "remarks"]}>
            {saved.blocks.slice(0, LISTED).map((block, i) => (
              <Rows key={i} block={block} index={i} share={block.bytes / (saved.blocks[0].bytes || 1)} />
            ))}
          </Table>
      {rest > 0 && <p class="foot">and {count(rest, "smaller block")}</p>}
    </div>
  );
}

function cellOf(block: Block, index: number): Cell {
  const about = `${size(block.bytes)}  ${block.holders.map((h) => `${h.node} ${h.name} ${h.value}`).join("; ")}`;
  return { name: block.holders[0].name, bytes: block.bytes, tone: toneOf(block), about, index };
}

function toneOf(block: Block): string {
  if (block.anyway) return "anyway";
  return block.holders.some((holder) => holder.how === "ctx") ? "ctx" : "extra";
}

function Treemap({ saved }: { saved: Saved }) {
  const owners = ownersOf(saved);
  const places = squarified(owners.map((owner) => owner.bytes), { x: 0, y: 0, width: WIDTH, height: HEIGHT });
  return (
    <div class="treemap">
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={`Treemap: ${owners.slice(0, 10).map((owner) => `${owner.name} ${size(owner.bytes)}`).join(", ")}`}>
        {owners.map((owner, i) => (
          <Owned key={owner.name} owner={owner} at={places[i]} />
        ))}
      </svg>
    </div>
  );
}

function Owned({ owner, at }: { owner: Owner; at: Rect }) {
  const headed = at.width > 46 && at.height > 44;
  const inner = { x: at.x + 2, y: at.y + (headed ? HEAD : 2), width: Math.max(0, at.width - 4), height: Math.max(0, at.height - (headed ? HEAD + 2 : 4)) };
  const places = squarified(owner.cells.map((cell) => cell.bytes), inner);
  return (
    <g>
      <rect class="owner" x={at.x + 1} y={at.y + 1} width={Math.max(0, at.width - 2)} height={Math.max(0, at.height - 2)} rx={4}>
        <title>{`${owner.name}: ${size(owner.bytes)}`}</title>
      </rect>
      {headed && (
        <text class="head" x={at.x + 8} y={at.y + 16}>
          {fitting(`${owner.name}  ${size(owner.bytes)}`, at.width - 14, 7.3)}
        </text>
      )}
      {owner.cells.map((cell, i) => (
        <Tile key={cell.index} cell={cell} at={places[i]} />
      ))}
    </g>
  );
}

function Tile({ cell, at }: { cell: Cell; at: Rect }) {
  const name = fitting(cell.name, at.width - 12, 6.8);
  const wide = at.width > 30 && at.height > 20;
  return (
    <g class={`cell ${cell.tone}${param("b") === String(cell.index) ? " on" : ""}`} onClick={() => go({ b: String(cell.index) })}>
      <rect x={at.x + 1} y={at.y + 1} width={Math.max(0, at.width - 2)} height={Math.max(0, at.height - 2)} rx={3}>
        <title>{cell.about}</title>
      </rect>
      {wide && (
        <text x={at.x + 7} y={at.y + 16}>
          {name}
        </text>
      )}
      {wide && at.height > 36 && (
        <text class="small" x={at.x + 7} y={at.y + 31}>
          {fitting(size(cell.bytes), at.width - 12, 6.8)}
        </text>
      )}
    </g>
  );
}

function fitting(text: string, room: number, advance: number): string {
  const limit = Math.floor(room / advance);
  if (text.length <= limit) return text;
  return limit < 5 ? "" : `${text.slice(0, limit - 1)}…`;
}

function Rows({ block, index, share }: { block: Block; index: number; share: number }) {
  const remarks = (holder: Holder): string =>
    [
      holder.bytes < block.bytes && `a view of ${size(holder.bytes)}`,
      WAYS[holder.how],
      holder.times > 1 && `in ${holder.times} nodes`,
      block.anyway && `lives anyway: ${block.anyway}`,
      place(holder.location),
    ]
      .filter(Boolean)
      .join(", ");
  return (
    <>
      {block.holders.map((holder, i) => (
        <tr key={i} class={`${i ? "more" : ""} ${param("b") === String(index) ? "on" : ""}`}>
          <td class="number">{i ? "" : size(block.bytes)}</td>
          <td>{i ? "" : <meter class={toneOf(block)} value={share} aria-label="share of the largest" />}</td>
          <td>{holder.node}</td>
          <td>
            <code>{holder.name}</code>
          </td>
          <td>{holder.value}</td>
          <td>{remarks(holder)}</td>
        </tr>
      ))}
    </>
  );
}
