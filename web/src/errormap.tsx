import { h } from "preact";
import { measured } from "./format";
import type { ErrorMap } from "./types";

const LIMIT = 560;
const STEPS = 5;

/** A gradient as a grid of its elements, the wrong ones coloured by how far they are off; more than two dimensions as panels side by side. */
export function ErrorPicture({ map }: { map: ErrorMap }) {
  const total = map.shape.reduce((a, b) => a * b, 1);
  const cells = map.grid ? map.grid.share.map((share) => Math.ceil(share * STEPS)) : cellsOf(map, total);
  if (!cells) return <span>{`${map.wrong} of ${total} elements are wrong`}</span>;
  const columns = map.grid?.columns ?? map.shape.at(-1) ?? 1;
  const rows = map.grid?.rows ?? (map.shape.length > 1 ? map.shape.at(-2)! : 1);
  const panels = Math.max(1, cells.length / Math.max(1, rows * columns));
  const step = Math.max(3, Math.min(16, Math.floor(LIMIT / Math.max(1, columns))));
  const perRow = Math.max(1, Math.min(panels, Math.floor(LIMIT / (columns * step + 10))));
  const width = perRow * (columns * step + 10) - 10;
  const height = Math.ceil(panels / perRow) * (rows * step + 10) - 10;
  const name = map.name ?? "gradient";
  const label = `${name} [${map.shape.join(", ")}]: ${map.wrong} of ${total} elements are wrong`;
  return (
    <figure class="errormap">
      <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
        {cells.map((shade, i) => {
          const panel = Math.floor(i / (rows * columns));
          const x = (panel % perRow) * (columns * step + 10) + (i % columns) * step;
          const y = Math.floor(panel / perRow) * (rows * step + 10) + (Math.floor(i / columns) % rows) * step;
          return (
            <rect key={i} class={`e${shade}`} x={x} y={y} width={step - 1} height={step - 1}>
              {shade > 0 && <title>{titleOf(map, i)}</title>}
            </rect>
          );
        })}
      </svg>
      <figcaption>
        {label}
        {map.grid && `; a cell is ${Math.ceil(total / cells.length)} elements or fewer, stronger where more of them are wrong`}
        {map.error && "; stronger where further off"}
      </figcaption>
    </figure>
  );
}

function cellsOf(map: ErrorMap, total: number): number[] | null {
  if (!map.where) return null;
  const cells = new Array<number>(total).fill(0);
  const largest = Math.max(...(map.error ?? []).filter((error) => error !== null));
  map.where.forEach((at, i) => {
    const error = map.error?.[i] ?? largest;
    cells[at] = Math.max(1, Math.ceil(STEPS + Math.log10(error / largest)) || STEPS);
  });
  return cells;
}

function titleOf(map: ErrorMap, index: number): string {
  if (map.grid) return `${Math.round(map.grid.share[index] * 100)} % wrong`;
  const at: number[] = [];
  for (let i = map.shape.length - 1, rest = index; i >= 0; rest = Math.floor(rest / map.shape[i]), i--) at.unshift(rest % map.shape[i]);
  const error = map.error?.[map.where!.indexOf(index)];
  return `[${at.join(", ")}]${error === undefined ? "" : error === null ? " is not finite" : ` differs by ${measured(error)}`}`;
}
