/** The head of an arrow, for `marker-end`. */
export function Arrow({ id }: { id: string }) {
  return (
    <marker id={id} class={id} viewBox="0 0 8 8" refX="7.4" refY="4" markerWidth="7" markerHeight="7" orient="auto">
      <path d="M0 .6 8 4 0 7.4Z" />
    </marker>
  );
}
