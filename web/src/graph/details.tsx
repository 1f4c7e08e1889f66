import { Fragment, h } from "preact";
import { count, place, size } from "../format";
import { go } from "../route";
import { type Item, type Model, isOpen, linesOf, titleOf } from "./model";

interface Props {
  model: Model;
  item: Item | undefined;
  badges: Map<string, number>;
  open: Set<string>;
  onToggle(key: string, open: boolean): void;
}

const KINDS = { op: "operator", function: "custom Function", leaf: "leaf", output: "output" };

export function Details({ model, item, badges, open, onToggle }: Props) {
  if (item === undefined) return <div class="details hint">Select a box to see what it is, what it uses and what it keeps for backward.</div>;
  if (typeof item !== "number") {
    return (
      <div class="details">
        <h2>{titleOf(model, item)}</h2>
        {linesOf(model, item).map(([text]) => (
          <p key={text}>{text}</p>
        ))}
        <button onClick={() => onToggle(item.key, !isOpen(item, open))}>{isOpen(item, open) ? "Collapse (c)" : "Expand (e)"}</button>
      </div>
    );
  }
  const node = model.nodes[item];
  const found = badges.get(node.subject ?? "") ?? 0;
  return (
    <div class="details">
      <h2>{node.name}</h2>
      <p>{KINDS[node.kind]}</p>
      {found > 0 && <button onClick={() => go({ s: "0", q: node.subject! }, false)}>{count(found, "finding")}</button>}
      <dl>
        {node.values.map((value, i) => (
          <Pair key={i} term={node.values.length > 1 ? `result ${i}` : "result"} text={value} />
        ))}
        {node.forward && <Pair term="forward" text={place(node.forward)} />}
        {node.backward && <Pair term="backward" text={place(node.backward)} />}
        {node.parameters.map((p, i) => (
          <Pair key={`p${i}`} term={p.name} text={p.value} />
        ))}
        {node.saved.map((s, i) => (
          <Pair key={`s${i}`} term={`keeps ${s.name}`} text={`${s.value}, ${size(s.bytes)}`} />
        ))}
      </dl>
    </div>
  );
}

function Pair({ term, text }: { term: string; text: string }) {
  return (
    <>
      <dt>{term}</dt>
      <dd>{text}</dd>
    </>
  );
}
