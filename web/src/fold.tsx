import { type ComponentChildren, h } from "preact";
import { useState } from "preact/hooks";

interface Props {
  class: string;
  id?: string;
  open: boolean;
  summary: ComponentChildren;
  children(): ComponentChildren;
}

/** A part that opens; what is in it is made when it is opened first, so that thousands of them cost little. */
export function Fold({ open, summary, children, ...rest }: Props) {
  const [shown, setShown] = useState(open);
  return (
    <details {...rest} open={shown} onToggle={(event) => setShown(event.currentTarget.open)}>
      <summary>{summary}</summary>
      {shown && children()}
    </details>
  );
}
