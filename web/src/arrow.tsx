import { h } from "preact";
/** The head of an arrow, for `marker-end`. */
export function Arrow({ id }: { id: string }) {
  return (
    <marker id={id} class={id} viewBox="0 0 8 8" refX="7.4" refY="4" markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="9" orient="auto">
      <path d="M0 .6 8 4 0 7.4Z" />
    </marker>
  );
}
