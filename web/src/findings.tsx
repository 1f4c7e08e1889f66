import { Fragment, h } from "preact";
import { useState } from "preact/hooks";
import { ErrorPicture } from "./errormap";
import { Fold } from "./fold";
import { count, labelsOf, measured, place } from "./format";
import { Link } from "./link";
import { go, param } from "./route";
import { Table } from "./table";
import type { Evidence, Finding, Findings, Severity } from "./types";

const SEVERITIES: Severity[] = ["error", "warning", "note"];
const OPEN_UP_TO = 12;

export function FindingsView({ data, views }: { data: Findings; views(subject: string): [string, number][] }) {
  const { report } = data;
  const order = new Map(report.subjects.map((subject, i) => [subject, i]));
  const rank = (finding: Finding) => (order.get(finding.subject) ?? order.size) * 4 + SEVERITIES.indexOf(finding.severity);
  const hidden = new Set(param("hide").split(","));
  const wanted = (finding: Finding) =>
    !hidden.has(finding.severity) && matches(finding, "code", param("code")) && matches(finding, "subject", param("of")) && contains(finding, param("q"));
  const all = report.findings.map((finding, i) => ({ finding, source: data.sources[i] ?? [] })).sort((a, b) => rank(a.finding) - rank(b.finding));
  const shown = all.filter(({ finding }) => wanted(finding));
  const errors = all.filter(({ finding }) => finding.severity === "error").length;
  const subjects = [...new Set(shown.map(({ finding }) => finding.subject))];
  return (
    <div class="findings">
      <Filters data={data} hidden={hidden} shown={shown.length} />
      {subjects.map((subject) => (
        <section key={subject}>
          <h2>
            {subject}
            {views(subject).map(([name, index]) => (
              <Link key={index} to={index}>
                {name}
              </Link>
            ))}
          </h2>
          {shown
            .filter(({ finding }) => finding.subject === subject)
            .map(({ finding, source }, i) => (
              <Card key={`${finding.code}${i}`} {...{ finding, source }} doc={data.codes[finding.code]} open={all.length <= OPEN_UP_TO || (finding.severity === "error" && errors <= OPEN_UP_TO)} />
            ))}
        </section>
      ))}
      {!shown.length && <p class="empty">{all.length ? "No finding passes the filters." : report.ok ? "Nothing was found." : "Nothing was found, and nothing was checked."}</p>}
      {report.checks.length > 0 && <Checks data={data} />}
    </div>
  );
}

const matches = (finding: Finding, key: "code" | "subject", wanted: string): boolean => !wanted || finding[key] === wanted;

function contains(finding: Finding, wanted: string): boolean {
  const text = [finding.code, finding.name, finding.subject, finding.message, finding.cause, finding.fix, place(finding.location)].join("\n");
  return text.toLowerCase().includes(wanted.toLowerCase());
}

function Filters({ data, hidden, shown }: { data: Findings; hidden: Set<string>; shown: number }) {
  const { findings, subjects } = data.report;
  const codes = [...new Set(findings.map((finding) => finding.code))].sort();
  const flip = (severity: Severity): void => {
    const next = new Set([...hidden].filter(Boolean));
    if (!next.delete(severity)) next.add(severity);
    go({ hide: [...next].join(",") });
  };
  return (
    <div class="filters" role="search" aria-label="Filter findings">
      {SEVERITIES.map((severity) => {
        const number = findings.filter((finding) => finding.severity === severity).length;
        return (
          <button key={severity} class={`chip ${severity}`} aria-pressed={!hidden.has(severity)} disabled={!number} onClick={() => flip(severity)}>
            {count(number, severity)}
          </button>
        );
      })}
      <Choice name="code" label="all codes" values={codes.map((code) => [code, `${code} ${findings.find((f) => f.code === code)!.name}`])} />
      {subjects.length > 1 && <Choice name="of" label="all subjects" values={[...labelsOf(subjects)]} />}
      <input type="search" placeholder="Text" aria-label="Text in findings" value={param("q")} onInput={(event) => go({ q: event.currentTarget.value })} />
      <span class="tally" role="status">
        {shown === findings.length ? "" : `${shown} of ${findings.length} shown`}
      </span>
    </div>
  );
}

function Choice({ name, label, values }: { name: string; label: string; values: string[][] }) {
  return (
    <select aria-label={label} value={param(name)} onChange={(event) => go({ [name]: event.currentTarget.value })}>
      <option value="">{label}</option>
      {values.map(([value, text]) => (
        <option key={value} value={value}>
          {text}
        </option>
      ))}
    </select>
  );
}

function Card({ finding, source, doc, open }: { finding: Finding; source: [number, string][]; doc?: string; open: boolean }) {
  const { cause, fix, repro, upstream, attachments, location } = finding;
  const summary = (
    <>
      <span class={`tag ${finding.severity}`}>{finding.severity}</span> <code>{finding.code}</code> <span class="name">{finding.name}</span>
      <b>{finding.message}</b>
    </>
  );
  return (
    <Fold class={`card ${finding.severity}`} {...{ open, summary }}>
      {() => (
        <div class="body">
          {location && <p class="where">{place(location)}</p>}
          {source.length > 0 && <Source lines={source} at={location!.line} />}
          <dl>
            {finding.evidence.length > 0 && (
              <Part term="evidence">
                {finding.evidence.map((evidence, i) => (
                  <Observation key={i} evidence={evidence} />
                ))}
              </Part>
            )}
            {attachments.gradient && (
              <Part term="where">
                <ErrorPicture map={attachments.gradient} />
              </Part>
            )}
            {typeof attachments.output === "string" && (
              <Part term="output">
                <pre class="printed">{attachments.output}</pre>
              </Part>
            )}
            {cause && (
              <Part term="cause">
                {cause} <small>{finding.certain ? "proved by an experiment" : "likely"}</small>
              </Part>
            )}
            {fix && (
              <Part term="fix">
                <span class="fix">{fix}</span>
              </Part>
            )}
            {upstream && <Part term="upstream">{upstream}</Part>}
            {repro && (
              <Part term="repro">
                <Command text={repro} />
              </Part>
            )}
            {doc && (
              <Part term="more">
                <Fold class="doc" open={false} summary={`What ${finding.code} is about`}>
                  {() => <pre>{doc}</pre>}
                </Fold>
              </Part>
            )}
          </dl>
        </div>
      )}
    </Fold>
  );
}

function Part({ term, children }: { term: string; children: preact.ComponentChildren }) {
  return (
    <>
      <dt>{term}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Source({ lines, at }: { lines: [number, string][]; at: number }) {
  return (
    <pre class="source">
      {lines.map(([number, text]) => (
        <span key={number} class={number === at ? "at" : ""}>
          <i>{number}</i>
          {text}
          {"\n"}
        </span>
      ))}
    </pre>
  );
}

function Observation({ evidence }: { evidence: Evidence }) {
  const { error, tolerance } = evidence;
  return (
    <div class="evidence">
      {evidence.text && <p>{evidence.text}</p>}
      <table>
        <tbody>
          {evidence.got && <Number name="got" text={evidence.got} />}
          {evidence.expected && <Number name="expected" text={evidence.expected} />}
          {error !== null && <Number name="differs by" text={measured(error)} />}
          {tolerance !== null && <Number name="tolerance" text={measured(tolerance)} why={evidence.why_tolerance} />}
        </tbody>
      </table>
    </div>
  );
}

function Number({ name, text, why }: { name: string; text: string; why?: string }) {
  return (
    <tr>
      <th scope="row">{name}</th>
      <td>
        <code>{text}</code> {why && <small>{why}</small>}
      </td>
    </tr>
  );
}

function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = () => void navigator.clipboard?.writeText(text).then(() => setCopied(true));
  return (
    <span class="command">
      <code>{text}</code>
      <button onClick={copy} aria-label={`Copy: ${text}`}>
        {copied ? "copied" : "copy"}
      </button>
    </span>
  );
}

function Checks({ data }: { data: Findings }) {
  const { checks, subjects, environment } = data.report;
  const labels = labelsOf(subjects);
  const statuses = ["pass", "fail", "waste", "declared", "unsupported", "skipped", "error"].filter((status) => checks.some((run) => run.status === status));
  return (
    <section class="checks">
      <h2>What ran</h2>
      <Table label="What ran" heads={["subject", ...statuses.map((status) => `#${status}`)]}>
            {subjects.map((subject) => {
              const own = checks.filter((run) => run.subject === subject);
              return (
                <tr key={subject}>
                  <th scope="row">{labels.get(subject)}</th>
                  {statuses.map((status) => {
                    const runs = own.filter((run) => run.status === status);
                    return (
                      <td key={status} class={`number ${status}`} title={runs.map((run) => `${run.code} ${run.reason}`.trim()).join("\n")}>
                        {runs.length || ""}
                      </td>
                    );
                  })}
                </tr>
              );
            })}
          </Table>
      <p class="foot">
        {Object.entries(environment)
          .filter(([, value]) => ["string", "number"].includes(typeof value))
          .map(([name, value]) => `${name} ${value}`)
          .join("   ")}
      </p>
    </section>
  );
}
