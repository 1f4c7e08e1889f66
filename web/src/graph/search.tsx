import { h } from "preact";
import type { RefObject } from "preact";
import { useMemo, useState } from "preact/hooks";
import { place } from "../format";
import { type Item, type Model, keyOf, titleOf } from "./model";

const SHOWN = 30;

interface Entry {
  item: Item;
  text: string;
}

function indexOf(model: Model): Entry[] {
  const nodes = model.nodes.map((node, item): Entry => {
    const parts = [node.name, ...node.values, ...node.parameters.map((p) => p.name), ...node.saved.map((s) => s.name), place(node.forward), place(node.backward)];
    return { item, text: parts.join("\n").toLowerCase() };
  });
  return [...[...model.groups.values()].map((item) => ({ item, text: item.title.toLowerCase() })), ...nodes];
}

export function Search({ model, field, onPick }: { model: Model; field: RefObject<HTMLInputElement | null>; onPick(key: string): void }) {
  const [wanted, setWanted] = useState("");
  const [chosen, setChosen] = useState(0);
  const entries = useMemo(() => (wanted ? indexOf(model) : []), [model, wanted !== ""]);
  const found = useMemo(() => entries.filter(({ text }) => text.includes(wanted.toLowerCase())), [entries, wanted]);
  const shown = found.slice(0, SHOWN);
  const take = (entry: Entry | undefined): void => {
    if (!entry) return;
    onPick(keyOf(entry.item));
    setWanted("");
    field.current!.blur();
    document.querySelector<SVGElement>(".canvas > svg")!.focus();
  };
  const onKey = (event: KeyboardEvent): void => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) setChosen((chosen + step + shown.length) % Math.max(1, shown.length));
    else if (event.key === "Enter") take(shown[chosen]);
    else if (event.key === "Escape") (setWanted(""), field.current!.blur());
    else return;
    event.preventDefault();
  };
  return (
    <div class="search">
      <input
        ref={field}
        type="search"
        placeholder="Search  /"
        aria-label="Search the graph"
        role="combobox"
        list={undefined}
        aria-expanded={wanted !== ""}
        aria-controls="found"
        aria-activedescendant={shown[chosen] ? `found-${chosen}` : undefined}
        value={wanted}
        onInput={(event) => (setWanted(event.currentTarget.value), setChosen(0))}
        onKeyDown={onKey}
      />
      <div id="found" class="found" hidden={!wanted}>
        <ul role="listbox" aria-label="Found">
          {shown.map((entry, i) => (
            <li key={keyOf(entry.item)} id={`found-${i}`} role="option" aria-selected={i === chosen} onClick={() => take(entry)}>
              <b>{titleOf(model, entry.item)}</b>
              <small>{typeof entry.item === "number" ? [model.nodes[entry.item].values[0], ...model.nodes[entry.item].parameters.map((p) => p.name)].join("  ") : ""}</small>
            </li>
          ))}
        </ul>
        <p role="status">{found.length > SHOWN ? `${found.length.toLocaleString("en")} found, the first ${SHOWN} are shown` : `${found.length} found`}</p>
      </div>
    </div>
  );
}
