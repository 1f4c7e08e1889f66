export interface Rect {
  x: number;
  y: number;
  width: number;
  height: number;
}

/** Rectangles of the given areas (largest first) that fill one, as near to squares as rows allow (Bruls, Huizing, van Wijk 2000). */
export function squarified(values: number[], whole: Rect): Rect[] {
  const total = values.reduce((a, b) => a + b, 0);
  const scale = total ? (whole.width * whole.height) / total : 0;
  const areas = values.map((value) => value * scale);
  const found: Rect[] = [];
  let { x, y, width, height } = whole;
  for (let start = 0; start < areas.length; ) {
    const side = Math.min(width, height);
    let [end, sum] = [start + 1, areas[start]];
    const worst = (row: number[], area: number) => Math.max((side * side * Math.max(...row)) / area ** 2, area ** 2 / (side * side * Math.min(...row)));
    while (end < areas.length && worst(areas.slice(start, end + 1), sum + areas[end]) <= worst(areas.slice(start, end), sum)) sum += areas[end++];
    const thick = side > 0 ? sum / side : 0;
    let offset = 0;
    for (const area of areas.slice(start, end)) {
      const long = thick > 0 ? area / thick : 0;
      found.push(width < height ? { x: x + offset, y, width: long, height: thick } : { x, y: y + offset, width: thick, height: long });
      offset += long;
    }
    if (width < height) [y, height] = [y + thick, height - thick];
    else [x, width] = [x + thick, width - thick];
    start = end;
  }
  return found;
}
