import { createHash } from "node:crypto";
import { readdirSync, readFileSync, statSync } from "node:fs";
import { defineConfig, type Plugin } from "vite";

// What hangs on one object of a library, where no bundler sees that nobody uses it: of uPlot helpers, the calendar, arcsinh scales, changes of series, and the builders of bars, steps and splines,
// and all graph algorithms of dagre but two. The versions are locked; a pattern that finds nothing ends the build.
const UNUSED: Record<string, [RegExp, string][]> = {
  "uPlot.esm.js": [
    [/^\s*\(paths\.(stepped|bars|spline) .*\n/gm, ""],
    [/^\s*uPlot\.(fmtDate|tzDate|join|addGap|clipGaps|rangeNum|rangeLog|rangeAsinh|pxRatio) .*\n/gm, ""],
    [/= (genTimeStuffs\(.*\));/g, "= /* @__PURE__ */ $1;"],
    [/\bisTime( +)= .*;/g, "isTime$1= false;"],
    [/^\s*const _time(AxisSplits|AxisVals|SeriesVal) .*\n/gm, ""],
    [/^\s*self\.(addSeries|delSeries|addBand|setBand|delBand|batch|posToIdx) = .*\n/gm, ""],
    [/\b(sc\.)?distr == 4\b|sc\.distr == 3 && sc\.log == 2\b/g, "false"],
  ],
  "dagre.esm.js": [
    [/\b(CycleException|bellmanFord|components|dijkstra|dijkstraAll|findCycles|floydWarshall|isAcyclic|prim|shortestPaths|tarjan|topsort):\(\)=>[\w$]+,?/g, ""],
    [/\b(read|write):\(\)=>[\w$]+,?/g, ""],
  ],
};

function trimmed(): Plugin {
  return {
    name: "trim-libraries",
    enforce: "pre",
    transform(code, id) {
      for (const [pattern, replacement] of UNUSED[id.split("/").pop()!] ?? []) {
        if (code.search(pattern) < 0) this.error(`${id} has changed: ${pattern} is not in it`);
        code = code.replace(pattern, replacement);
      }
      return { code, map: null };
    },
  };
}

const INSIDE = ["@dagrejs/dagre", "@preact/signals", "preact", "uplot"];
const SOURCES = ["package-lock.json", "tsconfig.json", "vite.config.ts", "src"];

/** The licences of what is inside, and a hash of all sources, by which a test without Node sees that the built files are of these sources. */
function accompanied(): Plugin {
  return {
    name: "accompany",
    generateBundle() {
      const licences = INSIDE.map((name) => `${name}\n\n${readFileSync(`node_modules/${name}/LICENSE`, "utf-8").trim()}\n`);
      this.emitFile({ type: "asset", fileName: "LICENSES.txt", source: licences.join("\n\n") });
      const hash = createHash("sha256");
      for (const name of filesOf(SOURCES)) hash.update(`${name}\0`).update(readFileSync(name)).update("\0");
      this.emitFile({ type: "asset", fileName: "sources.sha256", source: `${hash.digest("hex")}\n` });
    },
  };
}

function filesOf(names: string[]): string[] {
  return names.flatMap((name) => (statSync(name).isDirectory() ? filesOf(readdirSync(name).sort().map((entry) => `${name}/${entry}`)) : [name]));
}

// One classic script and one style sheet, without file names that change: the page embeds both, and its script is its own worker.
export default defineConfig({
  plugins: [trimmed(), accompanied()],
  build: {
    outDir: process.env.PAGE_OUT ?? "../src/pullback/report/_web",
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    reportCompressedSize: false,
    lib: { entry: "src/main.tsx", formats: ["iife"], name: "pullback", fileName: () => "page.js", cssFileName: "page" },
  },
});
