// The data that a page shows; written by pullback, read here. `schema` is raised when a reader of the old form would misread the new one.

export interface Page {
  schema: number;
  title: string;
  sections: Section[];
}

export type Section = (Findings | Graph | Trace | Saved | Chart) & Heading;

/** What a section is called, and the subject under which it is listed. */
export interface Heading {
  title?: string;
  subject?: string;
}

export interface Place {
  path: string;
  line: number;
}

export type Severity = "error" | "warning" | "note";

export interface Evidence {
  text: string;
  got: string;
  expected: string;
  error: number | null;
  tolerance: number | null;
  why_tolerance: string;
}

/** Where a wrong gradient is wrong: flat indices, or a grid of shares where there are too many elements to list. */
export interface ErrorMap {
  name?: string;
  shape: number[];
  wrong: number;
  where?: number[];
  /** By how much; null where it is not finite. */
  error?: (number | null)[];
  tolerance?: number;
  grid?: { rows: number; columns: number; share: number[] };
}

export interface Finding {
  code: string;
  name: string;
  severity: Severity;
  status: string;
  subject: string;
  message: string;
  location: Place | null;
  evidence: Evidence[];
  cause: string | null;
  certain: boolean;
  fix: string | null;
  repro: string | null;
  upstream: string | null;
  attachments: { gradient?: ErrorMap; output?: string; [name: string]: unknown };
}

export interface CheckRun {
  code: string;
  subject: string;
  status: string;
  reason: string;
  seconds: number;
}

export interface Findings {
  kind: "findings";
  report: { ok: boolean; subjects: string[]; findings: Finding[]; checks: CheckRun[]; environment: Record<string, unknown> };
  /** For every finding the lines around its place; empty where they cannot be read. */
  sources: [number, string][][];
  /** For every code that is found its documentation. */
  codes: Record<string, string>;
}

export interface GraphNode {
  kind: "op" | "function" | "leaf" | "output";
  name: string;
  /** Qualified name of a custom Function, as findings call it. */
  subject?: string;
  values: string[];
  sources: [number, number][];
  parameters: { name: string; value: string }[];
  saved: { name: string; value: string; bytes: number }[];
  forward: Place | null;
  backward: Place | null;
}

/** A number is a place in `shown`; a group stands for `size * times` places from `first` and lists those of its first copy. */
export type TreeItem = number | { title: string; times: number; first: number; size: number; chained: boolean; items: TreeItem[] };

export interface Graph {
  kind: "graph";
  nodes: GraphNode[];
  outputs: [number, number][];
  /** Indices of the nodes that are shown; all of them where it is missing. A node that is not shown has one source. */
  shown?: number[];
  tree?: TreeItem[];
}

export interface Stats {
  value: string;
  strides: string;
  requires_grad: boolean;
  norm: number;
  elements: number;
  zeros: number;
  nan: number;
  inf: number;
}

export interface Step {
  number: number;
  phase: "apply" | "backward";
  function: string;
  call: number;
  what: string;
  name: string;
  text: string;
  stats: Stats | null;
  seconds: number | null;
  at: number;
  location: Place | null;
  mark: "" | "zero" | "NaN" | "Inf" | "None" | "cut";
}

export interface Trace {
  kind: "trace";
  error: string;
  steps: Step[];
  gradients: { name: string; stats: Stats | null; mark: string; remark: string }[];
}

export interface Holder {
  node: string;
  name: string;
  how: string;
  value: string;
  bytes: number;
  times: number;
  location: Place | null;
}

export interface Block {
  bytes: number;
  anyway: string;
  holders: Holder[];
}

export interface Saved {
  kind: "saved";
  bytes: number;
  extra: number;
  blocks: Block[];
}

export interface Axis {
  label: string;
  log: boolean;
}

export interface Series {
  name: string;
  x: (number | null)[];
  y: (number | null)[];
  low?: (number | null)[] | null;
  high?: (number | null)[] | null;
}

export interface Chart {
  kind: "chart";
  title: string;
  note: string;
  x: Axis;
  y: Axis;
  series: Series[];
}
