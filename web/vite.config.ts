import { defineConfig, type Plugin } from "vite";

// uPlot hangs every path builder and its calendar on one object, where no bundler sees that they are not used. The version is locked.
const UNUSED: [RegExp, string][] = [
  [/^\s*\(paths\.(stepped|bars|spline) .*\n/gm, ""],
  [/^\s*uPlot\.(fmtDate|tzDate) .*\n/gm, ""],
  [/= (genTimeStuffs\(.*\));/g, "= /* @__PURE__ */ $1;"],
  [/\bisTime( +)= .*;/g, "isTime$1= false;"],
  [/^\s*const _time(AxisSplits|AxisVals|SeriesVal) .*\n/gm, ""],
];

function trimmed(): Plugin {
  return {
    name: "trim-uplot",
    enforce: "pre",
    transform(code, id) {
      if (!id.endsWith("uPlot.esm.js")) return null;
      for (const [pattern, replacement] of UNUSED) {
        if (code.search(pattern) < 0) this.error(`uPlot has changed: ${pattern} is not in it`);
        code = code.replace(pattern, replacement);
      }
      return { code, map: null };
    },
  };
}

// One classic script and one style sheet, without file names that change: the page embeds both, and its script is its own worker.
export default defineConfig({
  plugins: [trimmed()],
  build: {
    outDir: process.env.PAGE_OUT ?? "../src/pullback/report/_web",
    emptyOutDir: false,
    target: "es2022",
    modulePreload: false,
    reportCompressedSize: false,
    lib: { entry: "src/main.tsx", formats: ["iife"], name: "pullback", fileName: () => "page.js", cssFileName: "page" },
  },
});
