// The page of a running node, in a real browser: each view on each screen, what it must never do, and whether it grows while it
// is open. Prints one JSON document; fails if there is a finding.
//
//     node run.mjs --url http://127.0.0.1:9403 --enter LINK [--minutes N] [--shots FOLDER] [--names NAMES.json]
//
// LINK is what `nigh page` prints; without it nobody signs in.
// NAMES.json says what the node has: {"namespace", "function", "invocation", "bucket", "key", "workflow", "execution"}.
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Findings, SCREENS, accessible, launch, open, show, signIn } from "./browser.mjs";

/** What the page may grow by while it is open. */
const HEAP_GROWTH_MAX = 1.5;
const NODES_GROWTH_MAX = 1.2;
/** What the page may take of one core while nobody touches it, in percent. */
const CPU_PERCENT_MAX = 5;
/** The page settles for so long before it is measured. */
const SETTLE_MS = 15_000;

const { values: options } = parseArgs({
    options: {
        url: { type: "string" },
        enter: { type: "string" },
        minutes: { type: "string", default: "0" },
        shots: { type: "string" },
        names: { type: "string" },
    },
});

const names = options.names ? JSON.parse(readFileSync(options.names, "utf8")) : {};
const part = encodeURIComponent;

/** The views of what the node has. */
function views() {
    const { namespace = "default", function: name, invocation, bucket, key, workflow, execution } = names;
    return [
        ["hierarchy", "#/hierarchy"],
        ["functions", "#/functions"],
        name && ["function", `#/function/${part(namespace)}/${part(name)}`],
        invocation && ["invocation", `#/invocation/${part(invocation)}`],
        ["buckets", "#/objects"],
        bucket && ["objects", `#/objects/${part(bucket)}`],
        bucket && key && ["object", `#/objects/${part(bucket)}?key=${part(key)}`],
        ["largest", "#/objects?largest=true"],
        ["workflows", "#/workflows"],
        workflow && ["workflow", `#/workflows/${part(workflow)}`],
        workflow && execution && ["execution", `#/workflows/${part(workflow)}/${part(execution)}`],
        ["cluster", "#/cluster"],
        ["events", "#/events?all=true"],
        ["keys", "#/keys"],
    ].filter(Boolean);
}

/** A failure that a view shows where its content should be. */
async function failure(page) {
    return page.evaluate(() => document.querySelector("main .failure, main .cut")?.textContent ?? null);
}

/** Heap, nodes and processor time of the page, after a collection. */
async function measure(session, page) {
    await page.evaluate(() => globalThis.gc?.());
    await session.send("HeapProfiler.collectGarbage");
    const { metrics } = await session.send("Performance.getMetrics");
    const of = (name) => metrics.find((one) => one.name === name)?.value ?? 0;
    return { heap: of("JSHeapUsedSize"), nodes: of("Nodes"), listeners: of("JSEventListeners"), cpu_s: of("TaskDuration") };
}

/** Leaves the first view open for `minutes`. */
async function leaveOpen(browser, findings, minutes) {
    const page = await open(browser, options.url, "light", findings, signed);
    const session = await page.context().newCDPSession(page);
    await session.send("Performance.enable");
    await show(page, "#/hierarchy");
    await page.waitForTimeout(SETTLE_MS);
    const before = await measure(session, page);
    await page.waitForTimeout(minutes * 60_000);
    const after = await measure(session, page);
    await page.context().close();
    const growth = {
        heap_growth: after.heap / before.heap,
        nodes_growth: after.nodes / before.nodes,
        cpu_percent: (100 * (after.cpu_s - before.cpu_s)) / (minutes * 60),
        minutes,
    };
    if (growth.heap_growth > HEAP_GROWTH_MAX) findings.errors.push(`the heap grew ${growth.heap_growth.toFixed(2)} times`);
    if (growth.nodes_growth > NODES_GROWTH_MAX) findings.errors.push(`the document grew ${growth.nodes_growth.toFixed(2)} times`);
    if (growth.cpu_percent > CPU_PERCENT_MAX) findings.errors.push(`it took ${growth.cpu_percent.toFixed(1)} % of a core`);
    return growth;
}

/** The ways of the keyboard: a view by its letter, the list of keys, and back. */
async function keyboard(page, findings) {
    await show(page, "#/hierarchy");
    await page.keyboard.press("f");
    await page.waitForFunction(() => location.hash === "#/functions");
    await page.keyboard.press("?");
    await page.waitForSelector("dialog[open]");
    await page.keyboard.press("Escape");
    if (await page.locator("dialog[open]").count()) findings.errors.push("Escape does not close the list of keys");
    await page.goBack();
    await page.waitForFunction(() => location.hash === "#/hierarchy");
}

const findings = new Findings();
const browser = await launch();
const signed = options.enter && (await signIn(browser, options.enter));
let shown = 0;
let growth = {};
try {
    for (const screen of Object.keys(SCREENS)) {
        const page = await open(browser, options.url, screen, findings, signed);
        for (const [name, address] of views()) {
            await show(page, address);
            shown += 1;
            const failed = await failure(page);
            if (failed) findings.errors.push(`${name} ${screen}: ${failed}`);
            await accessible(page, `${name} ${screen}`, findings);
            if (options.shots) {
                mkdirSync(options.shots, { recursive: true });
                await page.screenshot({ path: join(options.shots, `${name}-${screen}.png`), fullPage: true });
            }
        }
        if (screen === "light") await keyboard(page, findings);
        await page.context().close();
    }
    const minutes = Number(options.minutes);
    if (minutes > 0) growth = await leaveOpen(browser, findings, minutes);
} finally {
    await browser.close();
}
const found = findings.count();
console.log(JSON.stringify({
    views: shown,
    violations: findings.violations,
    foreign_requests: findings.foreign,
    csp_reports: findings.policy,
    dialogs: findings.dialogs,
    errors: findings.errors,
    heap_growth: growth.heap_growth ?? null,
    nodes_growth: growth.nodes_growth ?? null,
    cpu_percent: growth.cpu_percent ?? null,
    minutes: growth.minutes ?? 0,
}));
process.exit(found ? 1 : 0);
