// The page in a real browser (Debian's Chromium), watched: whatever it asks another host for, whatever its policy forbids,
// each error of its scripts and each dialog is noted.
import { chromium } from "playwright-core";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

export const CHROMIUM = process.env.NIGH_TEST_CHROMIUM ?? "/usr/bin/chromium";

/** Light and dark on a desk, and the narrowest screen that the page is made for. */
export const SCREENS = {
    light: { viewport: { width: 1280, height: 900 }, colorScheme: "light" },
    dark: { viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
    narrow: { viewport: { width: 380, height: 800 }, colorScheme: "light" },
};

export async function launch() {
    return chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--js-flags=--expose-gc"] });
}

/** What must not happen. */
export class Findings {
    foreign = [];
    policy = [];
    errors = [];
    dialogs = [];
    violations = [];

    count() {
        return this.foreign.length + this.policy.length + this.errors.length + this.dialogs.length + this.violations.length;
    }
}

/** The cookies of whoever opens `link`, for `open`. */
export async function signIn(browser, link) {
    const context = await browser.newContext();
    await (await context.newPage()).goto(link, { waitUntil: "load" });
    const signed = await context.storageState();
    await context.close();
    return signed;
}

/** A page at `base`, whose misdeeds go to `findings`, signed in by `storageState`. */
export async function open(browser, base, screen, findings, storageState) {
    const context = await browser.newContext({ ...SCREENS[screen], baseURL: base, reducedMotion: "reduce", storageState });
    const host = new URL(base).host;
    await context.addInitScript(() => {
        window.addEventListener("securitypolicyviolation", (event) => {
            console.error(`POLICY ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile ?? ""}`);
        });
    });
    const page = await context.newPage();
    page.on("request", (request) => {
        const url = new URL(request.url());
        if (url.protocol !== "data:" && url.host !== host) findings.foreign.push(request.url());
    });
    page.on("console", (message) => {
        if (message.type() !== "error") return;
        const text = message.text();
        // A refusal of the API is an answer, and a stream ends when its view is left or the node stops.
        if (/^Failed to load resource/.test(text)) return;
        if (/POLICY|Content Security Policy/.test(text)) findings.policy.push(text);
        else findings.errors.push(text);
    });
    page.on("pageerror", (error) => findings.errors.push(String(error)));
    page.on("dialog", (dialog) => {
        findings.dialogs.push(dialog.message());
        void dialog.dismiss();
    });
    return page;
}

/** Shows a view and waits until it is there: a live stream, or a document that was loaded. */
export async function show(page, address) {
    await page.goto(`/${address}`, { waitUntil: "load" });
    await page.waitForSelector("main h1");
    await page.waitForFunction(() => !document.querySelector("main .loading"), null, { timeout: 20_000 });
    await page.waitForTimeout(700);
}

/** What axe finds against WCAG 2.1 AA, by rule and place. */
export async function accessible(page, name, findings) {
    await page.evaluate(axe);
    const found = await page.evaluate(async () => {
        const result = await window.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"] });
        return result.violations.map((one) => ({ id: one.id, help: one.help, nodes: one.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary?.split("\n")[1] ?? ""}`) }));
    });
    for (const one of found) findings.violations.push({ view: name, ...one });
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 1) findings.violations.push({ view: name, id: "scrolls-sideways", help: `the page is ${wide} pixels wider than the screen`, nodes: [] });
}
