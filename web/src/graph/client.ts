import { type Container, type Placed, layOut } from "./layout";

// The page's script is also its worker's: a strict policy allows no other file, and one text needs no second copy of the layout.
const own = typeof document === "undefined" ? "" : (document.currentScript?.textContent ?? "");
const waiting = new Map<number, (placed: Placed[]) => void>();
const jobs = new Map<number, Container[]>();
let next = 0;
let worker: Worker | null | undefined;

export function serve(): void {
  self.onmessage = ({ data }: MessageEvent<[number, Container[]]>) => self.postMessage([data[0], layOut(data[1])]);
}

export function laidOut(containers: Container[]): Promise<Placed[]> {
  worker ??= worker === undefined ? start() : null;
  return new Promise((resolve) => {
    const id = next++;
    waiting.set(id, resolve);
    jobs.set(id, containers);
    if (worker) worker.postMessage([id, containers]);
    else finish(id);
  });
}

function start(): Worker | null {
  try {
    const types = (self as any).trustedTypes;
    const policy = types?.createPolicy("pullback", { createScriptURL: (url: string) => url });
    const url = URL.createObjectURL(new Blob([own], { type: "text/javascript" }));
    const made = new Worker(policy ? policy.createScriptURL(url) : url);
    made.onmessage = ({ data }: MessageEvent<[number, Placed[]]>) => finish(...data);
    made.onerror = (event) => {
      event.preventDefault();
      worker = null;
      for (const id of [...waiting.keys()]) finish(id);
    };
    return made;
  } catch {
    return null;
  }
}

/** Answer a request; where no worker may be had (in another page's frame), by work of this thread. */
function finish(id: number, placed?: Placed[]): void {
  const containers = jobs.get(id)!;
  const resolve = waiting.get(id)!;
  jobs.delete(id);
  waiting.delete(id);
  if (placed) resolve(placed);
  else setTimeout(() => resolve(layOut(containers)));
}
