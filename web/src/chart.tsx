import { h } from "preact";
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { duration, significant } from "./format";
import { Table } from "./table";
import { dark } from "./theme";
import type { Axis, Chart } from "./types";

const COLOURS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"];
const HEIGHT = 420;

export function ChartView({ chart }: { chart: Chart }) {
  const holder = useRef<HTMLDivElement>(null);
  const scheme = dark.value;
  useEffect(() => {
    const element = holder.current!;
    const plot = new uPlot(optionsOf(chart, element.clientWidth), dataOf(chart), element);
    const resized = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      plot.destroy();
    };
  }, [chart, scheme]);
  return (
    <figure class="chart">
      <figcaption>{chart.note}</figcaption>
      <div ref={holder} class="plot" role="img" aria-label={`${chart.y.label} over ${chart.x.label}; the numbers stand below`} />
      <details>
        <summary>Numbers</summary>
        <Numbers chart={chart} />
      </details>
    </figure>
  );
}

/** All series over the union of their x; null where a series has no point. */
function dataOf(chart: Chart): uPlot.AlignedData {
  const finite = (x: number | null): x is number => x !== null && Number.isFinite(x) && (!chart.x.log || x > 0);
  const xs = [...new Set(chart.series.flatMap((series) => series.x.filter(finite)))].sort((a, b) => a - b);
  const columns = chart.series.flatMap((series) => [series.y, ...(banded(series) ? [series.low!, series.high!] : [])].map((values) => ({ series, values })));
  return [
    xs,
    ...columns.map(({ series, values }) => {
      const known = new Map(series.x.map((x, i) => [x, values[i]]));
      return xs.map((x) => {
        const y = known.get(x) ?? null;
        return y !== null && Number.isFinite(y) && (!chart.y.log || y > 0) ? y : null;
      });
    }),
  ];
}

/** Whether all points lie at one x, where there are no lines to see. */
const alone = (chart: Chart): boolean => new Set(chart.series.flatMap((series) => series.x)).size === 1;

/** The range of x that has the lone value in its middle. */
function around(chart: Chart): uPlot.Range.MinMax {
  const x = chart.series[0].x[0] ?? 1;
  return chart.x.log ? [x / 10, x * 10] : [x - (Math.abs(x) || 1), x + (Math.abs(x) || 1)];
}

const banded = (series: Chart["series"][number]): boolean => Boolean(series.low && series.high);

function optionsOf(chart: Chart, width: number): uPlot.Options {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const series: uPlot.Series[] = [{ label: chart.x.label, value: shown }];
  const bands: uPlot.Band[] = [];
  chart.series.forEach((own, i) => {
    const stroke = colour(COLOURS[i % COLOURS.length]);
    const dash = i >= COLOURS.length ? [6, 4] : undefined;
    series.push({ label: own.name, stroke, width: 2, dash, spanGaps: true, points: { show: true, size: alone(chart) ? 9 : 6, fill: alone(chart) ? stroke : colour("--bg") }, value: shown });
    if (!banded(own)) return;
    const at = series.length;
    for (const bound of ["low", "high"]) series.push({ label: `${own.name} ${bound}`, class: "bound", width: 0, stroke: "transparent", points: { show: false }, spanGaps: true, value: shown });
    bands.push({ series: [at + 1, at], fill: `${stroke}2e` });
  });
  const axis = (about: Axis): uPlot.Axis => ({
    label: about.label === "seconds" ? "time" : about.label,
    stroke: colour("--soft"),
    font: "12px system-ui, sans-serif",
    labelFont: "13px system-ui, sans-serif",
    grid: { stroke: colour("--line"), width: 0.5 },
    ticks: { stroke: colour("--line"), width: 1 },
    values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : about.label === "seconds" ? duration(tick) : short(tick))),
  });
  return {
    width,
    height: HEIGHT,
    series,
    bands,
    scales: { x: { time: false, distr: chart.x.log ? 3 : 1, ...(alone(chart) ? { range: around(chart) } : {}) }, y: { distr: chart.y.log ? 3 : 1 } },
    axes: [{ ...axis(chart.x), size: 44 }, { ...axis(chart.y), size: 64 }],
    legend: { live: true },
    cursor: { drag: { x: true, y: false }, focus: { prox: 24 } },
    focus: { alpha: 0.35 },
  };
}

const shown = (_: uPlot, value: number | null): string => (value === null ? "–" : significant(value));

function short(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e9 || (size > 0 && size < 1e-3)) return value.toExponential(0);
  return size >= 1e6 ? `${significant(value / 1e6)}M` : size >= 1e4 ? `${significant(value / 1e3)}k` : significant(value);
}

function Numbers({ chart }: { chart: Chart }) {
  return (
    <Table label="Numbers" heads={["series", `#${chart.x.label}`, `#${chart.y.label}`, "#from", "#to"]}>
          {chart.series.flatMap((series) =>
            series.x.map((x, i) => (
              <tr key={`${series.name}${i}`}>
                <td>{series.name}</td>
                {[x, series.y[i], series.low?.[i], series.high?.[i]].map((value, j) => (
                  <td key={j} class="number">
                    {value === null || value === undefined ? "" : significant(value)}
                  </td>
                ))}
              </tr>
            )),
          )}
        </Table>
  );
}
