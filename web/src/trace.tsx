import { Fragment, h } from "preact";
import { useState } from "preact/hooks";
import { Arrow } from "./arrow";
import { Fold } from "./fold";
import { count, duration, place, significant } from "./format";
import { go, param } from "./route";
import { Table } from "./table";
import type { Stats, Step, Trace } from "./types";

const START = 84;
const DRAWN = 100;
const COLUMN = 176;
const OPEN_UP_TO = 10;
const STEP_HEADS = ["-#number", "step", "name", "value", "#norm", "#zero", "#time", "-remarks"];
const WORDS: Record<string, string> = { zero: "becomes zero", NaN: "becomes NaN", Inf: "becomes Inf", None: "is None, although it is needed", cut: "the way is cut" };

interface Call {
  number: number;
  name: string;
  apply: Step[];
  backward: Step[];
}

function callsOf(trace: Trace): Call[] {
  const calls = new Map<number, Call>();
  for (const step of trace.steps) {
    const call = calls.get(step.call) ?? { number: step.call, name: step.function, apply: [], backward: [] };
    call[step.phase].push(step);
    calls.set(step.call, call);
  }
  return [...calls.values()].sort((a, b) => a.number - b.number);
}

export function TraceView({ trace }: { trace: Trace }) {
  const [onlyMarked, setOnlyMarked] = useState(false);
  const calls = callsOf(trace);
  const marked = trace.steps.filter((step) => step.mark);
  const groups = [...calls.map((call): [Call, Step[]] => [call, call.apply]), ...backwardOrder(trace, calls)];
  const shown = groups.map(([call, steps]): [Call, Step[]] => [call, onlyMarked ? steps.filter((step) => step.mark) : steps]).filter(([, steps]) => steps.length);
  return (
    <div class="trace">
      {calls.length ? <Timeline calls={calls} /> : <p class="empty">No custom Function is applied.</p>}
      {trace.error && <p class="raised">raised {trace.error}</p>}
      <div class="filters">
        {marked.length > 0 ? (
          <button class="chip error" aria-pressed={onlyMarked} onClick={() => setOnlyMarked(!onlyMarked)}>
            only the {count(marked.length, "marked step")}
          </button>
        ) : trace.gradients.every(({ mark }) => !mark) && (
          <span class="tally">No gradient becomes zero, NaN, Inf or None on its way.</span>
        )}
      </div>
      {shown.map(([call, steps]) => (
        <Steps key={`${steps[0].phase}${call.number}${onlyMarked}`} {...{ call, steps }} several={calls.length > 1} open={onlyMarked || groups.length <= OPEN_UP_TO || steps.some((s) => s.mark)} />
      ))}
      {trace.gradients.length > 0 && <Gradients trace={trace} />}
    </div>
  );
}

function backwardOrder(trace: Trace, calls: Call[]): [Call, Step[]][] {
  const order = [...new Set(trace.steps.filter((step) => step.phase === "backward").map((step) => step.call))];
  return order.map((number) => {
    const call = calls.find((c) => c.number === number)!;
    return [call, call.backward];
  });
}

/** Forward from left to right, backward from right to left below it; every call of a Function is one column. */
function Timeline({ calls }: { calls: Call[] }) {
  const shown = calls.filter((call, i) => i < DRAWN || i >= calls.length - DRAWN || call.backward.some((step) => step.mark));
  const longest = Math.max(...calls.flatMap((call) => [spent(call.apply), spent(call.backward)]), 1e-9);
  const width = START + shown.length * COLUMN;
  const label = `Timeline: ${count(calls.length, "call")}, forward from left to right, backward from right to left`;
  return (
    <div class="timeline" tabIndex={0} role="region" aria-label={label}>
      <svg width={width} height={196} viewBox={`0 0 ${width} 196`} role="group" aria-label={label}>
        <defs>
          <Arrow id="flow" />
          <Arrow id="flow-lost" />
        </defs>
        <text class="lane" x={0} y={50}>forward</text>
        <text class="lane" x={0} y={138}>backward</text>
        {shown.slice(1).map((call, i) => (
          <g key={call.number}>
            <path class="flow" d={`M${START + i * COLUMN + 142} 46h${COLUMN - 145}`} marker-end="url(#flow)" />
            <Return x={START + i * COLUMN + 145} lost={lost(call.backward)} />
          </g>
        ))}
        {(["apply", "backward"] as const).map((phase) => (
          <g key={phase} role="group" aria-label={phase}>
            {shown.map((call, i) => (
              <Moment key={call.number} {...{ call, phase, longest }} x={START + i * COLUMN} y={phase === "apply" ? 18 : 106} />
            ))}
          </g>
        ))}
      </svg>
      {shown.length < calls.length && <p class="tally">{count(calls.length - shown.length, "call")} in the middle left out</p>}
    </div>
  );
}

const spent = (steps: Step[]): number => steps.reduce((sum, step) => sum + (step.seconds ?? 0), 0);
/** Whether no gradient, or none that is of use, leaves this backward. */
const lost = (steps: Step[]): boolean =>
  steps.some((step) => step.mark) || steps.every(({ what, stats }) => what !== "returns" || stats?.zeros === stats?.elements);

function Return({ x, lost }: { x: number; lost: boolean }) {
  return <path class={`flow${lost ? " lost" : ""}`} d={`M${x + COLUMN - 145} 134H${x}`} marker-end={`url(#flow${lost ? "-lost" : ""})`} />;
}

function Moment({ call, phase, x, y, longest }: { call: Call; phase: Step["phase"]; x: number; y: number; longest: number }) {
  const steps = call[phase];
  const marks = [...new Set(steps.flatMap((step) => (step.mark ? [step.mark] : [])))];
  const none = !steps.length || steps[0].what === "never runs";
  const raised = steps.some((step) => step.what === "raises");
  const seconds = spent(steps);
  const flow = [...steps].reverse().find((step) => step.stats && (step.what === "returns" || step.what === "result"));
  const text = none ? "never runs" : raised ? "raises" : flow ? `‖${flow.name}‖ ${size(flow.stats!)}` : "";
  const target = steps[0] && `${phase}-${call.number}`;
  return (
    <a class={`moment${marks.length || raised ? " marked" : ""}${none ? " none" : ""}`} href={target && `#${target}`} onClick={(event) => jump(event, target)}>
      <rect class="back" x={x} y={y} width={142} height={56} rx={6} />
      <rect class="bar" x={x + 10} y={y + 48} width={(122 * seconds) / longest} height={3} rx={1.5} />
      <text class="title" x={x + 10} y={y + 18}>{cut(call.name, 16)}</text>
      <text class="small" x={x + 10} y={y + 38}>{cut(text, 19)}</text>
      {!none && (
        <text class="small" x={x + 132} y={y + 18} text-anchor="end">
          {call.name.length < 10 ? duration(seconds) : ""}
        </text>
      )}
      {marks.length > 0 && (
        <text class="mark" x={x} y={y + 72}>{cut(marks.map((mark) => WORDS[mark]).join(", "), 24)}</text>
      )}
    </a>
  );
}

const cut = (text: string, limit: number): string => (text.length > limit ? `${text.slice(0, limit - 1)}…` : text);

function jump(event: Event, target: string | undefined): void {
  event.preventDefault();
  if (target) go({ at: target });
  const element = document.getElementById(target ?? "") as HTMLDetailsElement | null;
  if (!element) return;
  element.open = true;
  element.scrollIntoView({ block: "start" });
  element.querySelector("summary")!.focus();
}

function Steps({ call, steps, several, open }: { call: Call; steps: Step[]; several: boolean; open: boolean }) {
  const { phase } = steps[0];
  const where = steps.find((step) => step.location)?.location;
  const marks = steps.filter((step) => step.mark).length;
  const id = `${phase}-${call.number}`;
  const summary = (
    <>
      <b>
        {call.name}.{phase}
      </b>
      {several && <span> call {call.number}</span>} <small>{place(where)}</small>
      {marks > 0 && <span class="tag error">{count(marks, "mark")}</span>}
    </>
  );
  return (
    <Fold class="steps" id={id} open={open || param("at") === id} summary={summary}>
      {() => (
        <Table label={`${call.name}.${phase}`} heads={STEP_HEADS}>
              {steps.map((step) => (
                <Row key={step.number} step={step} />
              ))}
            </Table>
      )}
    </Fold>
  );
}

function Row({ step }: { step: Step }) {
  const { stats } = step;
  const remarks = [step.what === "forward" ? "" : step.text, stats?.strides && `strides ${stats.strides}`, stats?.nan && `${count(stats.nan, "NaN")}`, stats?.inf && `${stats.inf} Inf`];
  return (
    <tr class={step.mark ? "marked" : ""}>
      <td class="number">{step.number}</td>
      <td>{step.what}</td>
      <td>
        <code>{step.name}</code>
      </td>
      <td>{stats?.value}</td>
      <td class="number">{finite(stats)}</td>
      <td class="number">{share(stats)}</td>
      <td class="number">{step.seconds === null ? "" : duration(step.seconds)}</td>
      <td>
        {step.mark && <span class="tag error">{WORDS[step.mark]}</span>} {remarks.filter(Boolean).join(", ")}
      </td>
    </tr>
  );
}

const size = ({ nan, inf, norm }: Stats): string => (nan ? "NaN" : inf ? "Inf" : significant(norm));
const finite = (stats: Stats | null): string => (stats && stats.elements > stats.nan + stats.inf ? significant(stats.norm) : "");

function share(stats: Stats | null): string {
  if (!stats?.zeros) return "";
  return stats.zeros === stats.elements ? "all" : `${stats.zeros.toLocaleString("en")} of ${stats.elements.toLocaleString("en")}`;
}

function Gradients({ trace }: { trace: Trace }) {
  return (
    <section>
      <h2>Gradients of the sum of the outputs</h2>
      <Table label="Gradients" heads={["of", "value", "#norm", "#zero", "-remarks"]}>
            {trace.gradients.map(({ name, stats, mark, remark }) => (
              <tr key={name} class={mark ? "marked" : ""}>
                <th scope="row">
                  <code>{name}</code>
                </th>
                <td>{stats?.value}</td>
                <td class="number">{finite(stats)}</td>
                <td class="number">{share(stats)}</td>
                <td>{remark}</td>
              </tr>
            ))}
          </Table>
    </section>
  );
}
