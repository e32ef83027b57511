// A page whose machine has another date than the node, and gets others while it is open: the page is never cut off, goes on to
// receive, and shows ages by the node's clock. Says `held`; fails with what did not hold.
//
//     node clock.mjs URL LINK EXECUTION STARTED
//
// EXECUTION is the address of one that waits, so that its view does not change; it began at STARTED, in milliseconds since 1970.
import { setTimeout as sleep } from "node:timers/promises";
import { Findings, launch, open, show, signIn } from "./browser.mjs";

const HOUR_MS = 3_600_000;
/** The page draws an age each second; the machine may be busy. */
const LATE_S = 20;
/** How far the page's clock is ahead of the node's, and for how long: the page looks at its clock every 5 s, and takes a stream
 *  on which nothing comes for 45 s for cut off. */
const PHASES = [
    [HOUR_MS, 12_000],
    [-HOUR_MS, 12_000],
    [0, 55_000],
];
const LOOK_MS = 500;
const RECEIVES_MS = 30_000;

const [base, link, execution, started] = process.argv.slice(2);

function must(holds, what) {
    if (!holds) throw new Error(what);
}

/** The seconds of an age as the page writes it. */
function seconds(age) {
    const units = { s: 1, min: 60, h: 3600, d: 86_400 };
    const parts = [...age.matchAll(/(\d+) (s|min|h|d)(?= |$)/g)];
    must(parts.length > 0 && !age.includes("-"), `an age is shown as “${age}”`);
    return parts.reduce((sum, [, number, unit]) => sum + Number(number) * units[unit], 0);
}

/** For how long the page says that the execution has run. */
function runningFor(page) {
    return page.evaluate(() => {
        const facts = [...document.querySelectorAll("dl.facts > div")];
        return facts.find((fact) => fact.querySelector("dt").textContent === "running for")?.querySelector("dd").textContent ?? "";
    });
}

/** From now on the page notes whether it has said that it is cut off. */
function noteCuts(page) {
    return page.evaluate(() => {
        window.cuts = [];
        const look = () => {
            const said = document.body.textContent.match(/.{0,20}cut off.{0,80}/i);
            if (said) window.cuts.push(said[0]);
        };
        new MutationObserver(look).observe(document.body, { subtree: true, childList: true, characterData: true });
    });
}

async function isNotCut(page) {
    const cuts = await page.evaluate(() => window.cuts);
    must(cuts.length === 0, `the page said: ${cuts[0]}`);
}

const findings = new Findings();
const browser = await launch();
try {
    const page = await open(browser, base, "light", findings, await signIn(browser, link));
    await page.clock.install({ time: Date.now() + PHASES[0][0] });
    await show(page, execution);
    await noteCuts(page);
    for (const [ahead, lasts] of PHASES) {
        await page.clock.setSystemTime(Date.now() + ahead);
        const moved = await page.evaluate(() => Date.now());
        must(Math.abs(moved - Date.now() - ahead) < 1000 * LATE_S, `the page's clock was not moved: ${moved}`);
        for (const until = Date.now() + lasts; Date.now() < until; await sleep(LOOK_MS)) {
            await isNotCut(page);
            const [shown, age] = [seconds(await runningFor(page)), (Date.now() - Number(started)) / 1000];
            must(Math.abs(shown - age) < LATE_S, `${ahead} ms ahead: an age of ${age} s is shown as ${shown} s`);
        }
    }
    await show(page, "#/hierarchy");
    for (const [ahead] of PHASES) {
        await page.clock.setSystemTime(Date.now() + ahead);
        const text = () => page.evaluate(() => document.querySelector("main").textContent);
        const before = await text();
        const until = Date.now() + RECEIVES_MS;
        while ((await text()) === before) {
            must(Date.now() < until, `${ahead} ms ahead: nothing of a busy node changes`);
            await sleep(LOOK_MS);
        }
        await isNotCut(page);
    }
    must(findings.count() === 0, JSON.stringify(findings));
    console.log("held");
} finally {
    await browser.close();
}
