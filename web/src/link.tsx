import { type ComponentChildren, h } from "preact";
import { go } from "./route";

/** A link to a section. A page in another one's `srcdoc` frame resolves addresses against that one's, so there it goes without. */
export function Link({ to, current, children }: { to: number; current?: boolean; children: ComponentChildren }) {
  const follow = (event: Event): void => {
    if (location.protocol !== "about:") return;
    event.preventDefault();
    go({ s: String(to) }, false);
  };
  return (
    <a href={`#s=${to}`} aria-current={current ? "page" : undefined} onClick={follow}>
      {children}
    </a>
  );
}
