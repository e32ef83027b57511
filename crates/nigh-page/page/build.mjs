// Builds the page: one script, one style sheet, the document and its icon, each compressed by gzip, into ../dist or the
// folder that is named. The result depends on the source alone.
import { build } from "esbuild";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const into = process.argv[2] ?? join(here, "../dist");
const result = await build({
    absWorkingDir: here,
    entryPoints: { page: "src/main.tsx" },
    outdir: into,
    write: false,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    jsx: "automatic",
    jsxImportSource: "preact",
    logLevel: "warning",
});
const files = new Map(result.outputFiles.map((file) => [file.path.split("/").pop(), Buffer.from(file.contents)]));
for (const name of ["index.html", "icon.svg"]) files.set(name, readFileSync(join(here, "src", name)));

mkdirSync(into, { recursive: true });
let wire = 0;
for (const [name, bytes] of files) {
    const gzip = gzipSync(bytes, { level: 9 });
    wire += gzip.length;
    writeFileSync(join(into, `${name}.gz`), gzip);
    console.log(`${name}.gz`.padEnd(16), String(bytes.length).padStart(8), String(gzip.length).padStart(8));
}
console.log("on the wire".padEnd(25), String(wire).padStart(8));
