import { h } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { type Item, type Model, isOpen, keyOf, linesOf, titleOf } from "./model";

interface Props {
  model: Model;
  open: Set<string>;
  selected: string;
  onPick(key: string): void;
  onToggle(key: string, open: boolean): void;
}

interface Row {
  item: Item;
  level: number;
}

/** The graph as a tree: everything that the picture shows, for those who read or listen instead of look. */
export function Outline({ model, open, selected, onPick, onToggle }: Props) {
  const list = useRef<HTMLUListElement>(null);
  const rows: Row[] = [];
  const collect = (items: Item[], level: number): void => {
    for (const item of items) {
      rows.push({ item, level });
      if (isOpen(item, open)) collect(item.items, level + 1);
    }
  };
  collect(model.items, 1);
  const current = Math.max(0, rows.findIndex(({ item }) => keyOf(item) === selected));
  useEffect(() => {
    list.current?.children[current]?.scrollIntoView({ block: "nearest" });
  }, [selected]);
  const move = (index: number): void => {
    const row = rows[Math.min(rows.length - 1, Math.max(0, index))];
    onPick(keyOf(row.item));
    (list.current?.children[rows.indexOf(row)] as HTMLElement | undefined)?.focus();
  };
  const onKey = (event: KeyboardEvent): void => {
    const { item, level } = rows[current];
    const opened = isOpen(item, open);
    const parent = rows.slice(0, current).findLastIndex((row) => row.level < level);
    const steps: Record<string, () => void> = {
      ArrowDown: () => move(current + 1),
      ArrowUp: () => move(current - 1),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      ArrowRight: () => (opened ? move(current + 1) : onToggle(keyOf(item), true)),
      ArrowLeft: () => (opened ? onToggle(keyOf(item), false) : parent >= 0 && move(parent)),
      Enter: () => (typeof item === "number" ? onPick(keyOf(item)) : onToggle(keyOf(item), !opened)),
    };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    step();
  };
  return (
    <ul class="outline" role="tree" aria-label="Outline of the graph" ref={list} onKeyDown={onKey}>
      {rows.map(({ item, level }, i) => (
        <li
          key={keyOf(item)}
          role="treeitem"
          aria-level={level}
          aria-selected={keyOf(item) === selected}
          aria-expanded={typeof item === "number" ? undefined : isOpen(item, open)}
          tabIndex={i === current ? 0 : -1}
          class={typeof item === "number" ? model.nodes[item].kind : "group"}
          style={{ paddingLeft: `${(level - 1) * 14 + 8}px` }}
          onClick={() => onPick(keyOf(item))}
          onDblClick={() => typeof item !== "number" && onToggle(item.key, !isOpen(item, open))}
        >
          <span class="twig" aria-hidden="true" onClick={() => typeof item !== "number" && onToggle(item.key, !isOpen(item, open))}>
            {typeof item === "number" ? "" : isOpen(item, open) ? "▾" : "▸"}
          </span>
          <b>{titleOf(model, item)}</b> <small>{typeof item === "number" ? model.nodes[item].values.join(", ") : linesOf(model, item)[0]?.[0]}</small>
        </li>
      ))}
    </ul>
  );
}
