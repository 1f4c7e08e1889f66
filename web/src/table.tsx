import { type ComponentChildren, h } from "preact";

/** A table that scrolls sideways. A head with `#` is one of numbers, one with `-` is read aloud only. */
export function Table({ label, heads, children }: { label: string; heads: string[]; children: ComponentChildren }) {
  return (
    <div class="wide" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead>
          <tr>
            {heads.map((head) => {
              const text = head.replace(/^-?#?/, "");
              return (
                <th key={head} scope="col" class={/^-?#/.test(head) ? "number" : ""}>
                  {head.startsWith("-") ? <span class="unseen">{text}</span> : text}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
