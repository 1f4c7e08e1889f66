import { h } from "preact";
import { useEffect } from "preact/hooks";
import { ChartView } from "./chart";
import { FindingsView } from "./findings";
import { labelsOf } from "./format";
import { GraphView } from "./graph/view";
import { Link } from "./link";
import { go, route, section as chosen } from "./route";
import { SavedView } from "./saved";
import { TraceView } from "./trace";
import type { Page, Section } from "./types";

const NAMES: Record<string, string> = { findings: "Findings", graph: "Graph", trace: "Trace", saved: "Saved memory", chart: "Chart" };

const nameOf = (section: Section): string => section.title ?? NAMES[section.kind] ?? section.kind;

export function PageView({ page }: { page: Page }) {
  void route.value;
  const index = Math.min(page.sections.length - 1, Math.max(0, chosen.value));
  const section = page.sections[index];
  useEffect(() => {
    document.title = page.sections.length > 1 ? `${nameOf(section)} · ${page.title}` : page.title;
  }, [index]);
  return (
    <div class={`page ${section?.kind ?? ""}`}>
      <header>
        <h1>{page.title}</h1>
        {page.sections.length > 1 && <Contents page={page} index={index} />}
      </header>
      <main>{section ? <View key={index} {...{ page, section }} /> : <p class="empty">This page has no sections.</p>}</main>
    </div>
  );
}

function Contents({ page, index }: { page: Page; index: number }) {
  const entries = page.sections.map((section, i) => ({ section, i }));
  const subjects = [...new Set(page.sections.flatMap((section) => section.subject ?? []))];
  const labels = labelsOf(subjects);
  const subject = page.sections[index].subject ?? subjects[0];
  const link = ({ section, i }: (typeof entries)[number]) => (
    <Link key={i} to={i} current={i === index}>
      {nameOf(section)}
    </Link>
  );
  const first = (wanted: string) => String(page.sections.findIndex((section) => section.subject === wanted));
  return (
    <nav aria-label="Sections">
      {entries.filter(({ section }) => !section.subject || subjects.length < 2).map(link)}
      {subjects.length > 1 && (
        <select aria-label="Subject" value={subject} onChange={(event) => go({ s: first(event.currentTarget.value) }, false)}>
          {subjects.map((name) => (
            <option key={name} value={name}>
              {labels.get(name)}
            </option>
          ))}
        </select>
      )}
      {entries.filter(({ section }) => subjects.length > 1 && section.subject === subject).map(link)}
    </nav>
  );
}

/** The other views of a subject, by name and index. */
function viewsOf(page: Page, subject: string): [string, number][] {
  return page.sections.flatMap((section, i): [string, number][] => (section.subject === subject && section.kind !== "findings" ? [[nameOf(section), i]] : []));
}

function View({ page, section }: { page: Page; section: Section }) {
  switch (section.kind) {
    case "findings":
      return <FindingsView data={section} views={(subject) => viewsOf(page, subject)} />;
    case "graph":
      return <GraphView graph={section} name={section.subject ?? "graph"} badges={badgesOf(page)} />;
    case "trace":
      return <TraceView trace={section} />;
    case "saved":
      return <SavedView saved={section} />;
    case "chart":
      return <ChartView chart={section} />;
    default:
      return <pre class="printed">{JSON.stringify(section, null, 1)}</pre>;
  }
}

/** How many findings, notes aside, each Function has anywhere in the page, by its qualified name. */
function badgesOf(page: Page): Map<string, number> {
  const badges = new Map<string, number>();
  for (const section of page.sections) {
    if (section.kind !== "findings") continue;
    for (const { subject, severity } of section.report.findings) if (severity !== "note") badges.set(subject, (badges.get(subject) ?? 0) + 1);
  }
  return badges;
}
