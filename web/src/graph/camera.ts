import { useComputed, useSignal } from "@preact/signals";
import type { RefObject } from "preact";
import { useEffect } from "preact/hooks";
import type { Frame, Scene } from "./scene";

const READABLE = 0.55;
const EDGE = 24;

/** Where a picture is looked at from: moved by the wheel and by dragging, never by itself more than it takes to show what is selected. */
export function useCamera(svg: RefObject<SVGSVGElement | null>) {
  const view = useSignal({ x: 0, y: 0, k: 1 });
  const transform = useComputed(() => `translate(${view.value.x} ${view.value.y}) scale(${view.value.k})`);
  const room = () => [svg.current!.clientWidth, svg.current!.clientHeight];

  /** Show the whole width, and no smaller than can be read; the whole height too where that is enough. */
  const fit = (scene: Scene): void => {
    const [width, height] = room();
    const whole = Math.min(1, width / scene.width, height / scene.height);
    const k = whole > READABLE ? whole : Math.min(1, Math.max(READABLE, width / scene.width));
    view.value = { x: (width - scene.width * k) / 2, y: Math.max(0, (height - scene.height * k) / 2), k };
  };
  const reveal = (box: Frame): void => {
    const [width, height] = room();
    const { x, y, k } = view.peek();
    const into = (at: number, extent: number, space: number, shift: number): number => {
      const [near, far] = [at * k + shift, (at + extent) * k + shift];
      if (near >= EDGE && far <= space - EDGE) return shift;
      return extent * k > space - 2 * EDGE ? EDGE - at * k : space / 2 - (at + extent / 2) * k;
    };
    view.value = { k, x: into(box.x, box.width, width, x), y: into(box.y, Math.min(box.height, 60), height, y) };
  };
  const zoom = (factor: number, cx = room()[0] / 2, cy = room()[1] / 2): void => {
    const { x, y, k } = view.peek();
    const next = Math.min(3, Math.max(0.05, k * factor));
    view.value = { k: next, x: cx - ((cx - x) * next) / k, y: cy - ((cy - y) * next) / k };
  };
  const drag = (event: PointerEvent): void => {
    const start = { ...view.peek(), px: event.clientX, py: event.clientY };
    const move = (to: PointerEvent) => (view.value = { k: start.k, x: start.x + to.clientX - start.px, y: start.y + to.clientY - start.py });
    const stop = () => (removeEventListener("pointermove", move), removeEventListener("pointerup", stop));
    addEventListener("pointermove", move);
    addEventListener("pointerup", stop);
  };
  useEffect(() => {
    const element = svg.current!;
    const wheel = (event: WheelEvent): void => {
      event.preventDefault();
      const { left, top } = element.getBoundingClientRect();
      const { x, y, k } = view.peek();
      if (event.ctrlKey || event.metaKey) zoom(Math.exp(-event.deltaY / 200), event.clientX - left, event.clientY - top);
      else view.value = { k, x: x - event.deltaX, y: y - event.deltaY };
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, []);
  return { transform, fit, reveal, zoom, drag };
}
