// Pictures to keep: the drawing with its colours written into it, so that it needs no style sheet.

const TAKEN = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-family", "font-size", "font-weight"];
const MARGIN = 16;

export function svgOf(svg: SVGSVGElement, width: number, height: number): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const from = [...svg.querySelectorAll("*")];
  [...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(from[i]);
    for (const name of TAKEN) element.setAttribute(name, style.getPropertyValue(name));
    for (const name of ["class", "role", "aria-label", ...(element.tagName === "marker" ? [] : ["id"])]) element.removeAttribute(name);
  });
  for (const { name } of [...copy.attributes]) copy.removeAttribute(name);
  const paper = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  const full = [width + 2 * MARGIN, height + 2 * MARGIN].map(Math.ceil);
  const set = (element: Element, values: Record<string, string | number>) => Object.entries(values).forEach(([k, v]) => element.setAttribute(k, String(v)));
  set(copy, { xmlns: "http://www.w3.org/2000/svg", width: full[0], height: full[1], viewBox: `${-MARGIN} ${-MARGIN} ${full[0]} ${full[1]}` });
  set(paper, { x: -MARGIN, y: -MARGIN, width: full[0], height: full[1], fill: getComputedStyle(document.body).backgroundColor });
  copy.querySelector(":scope > g")!.removeAttribute("transform");
  copy.prepend(paper);
  return new XMLSerializer().serializeToString(copy);
}

export async function pngOf(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const scale = Math.min(2, 8000 / Math.max(image.width, image.height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width * scale, image.height * scale].map(Math.ceil);
  canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture is too large"))), "image/png"));
}

export function keep(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
