// The page's files from its sources: node ui/build.mjs [DIRECTORY]; default ui/dist.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "dist");
mkdirSync(out, { recursive: true });
await build({
  entryPoints: { page: join(here, "src/main.ts") },
  bundle: true, minify: true, target: "es2022", format: "iife", outfile: join(out, "page.js"), charset: "ascii", legalComments: "inline",
});
await build({ entryPoints: [join(here, "src/page.css")], bundle: true, minify: true, outfile: join(out, "page.css") });
copyFileSync(join(here, "src/page.html"), join(out, "page.html"));

// A report's document: the same script and style stand in it, allowed by what they are and nothing else.
let report = readFileSync(join(here, "src/report.html"), "utf8");
for (const [marker, file, end] of [["@STYLE_HASH@", "page.css", /<\/style/i], ["@SCRIPT_HASH@", "page.js", /<\/script|<!--/i]]) {
  const text = readFileSync(join(out, file));
  if (end.test(text.toString())) throw new Error(`${file} holds what ends its element`);
  report = report.replace(marker, `sha256-${createHash("sha256").update(text).digest("base64")}`);
}
writeFileSync(join(out, "report.html"), report);
