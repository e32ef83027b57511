// One function: its last runs over time, how they are distributed, its logs, and a test run.

import { useState } from "preact/hooks";
import { mayOperate, request, segment, send } from "../api";
import { Chart } from "../chart";
import { age, bytes, clock, count, percent, rate, shortId, span } from "../format";
import { href, route } from "../route";
import type { EndedRun, FunctionPage } from "../types";
import { Action, Bar, Empty, Facts, Failure, Legend, Live, Pictured, Section, State, Table, Title, useLoaded } from "../ui";
import { waysNeed } from "./functions";
import { RunMemory, timeParts } from "./hierarchy";

export function FunctionView() {
    const [ns = "default", name = ""] = route.value.parts;
    return (
        <>
            <Title text={name}>
                <a href={href("functions")}>All functions</a>
            </Title>
            <Live<FunctionPage> view="function" params={{ namespace: ns, function: name }}>{(page) => <Page {...page} />}</Live>
        </>
    );
}

type Named = [string, EndedRun];

function Page(page: FunctionPage) {
    const runs = Object.entries(page.last_runs).sort(([, a], [, b]) => a.ended_ms - b.ended_ms);
    const parts = timeParts(page);
    const all = parts.reduce((sum, part) => sum + part.value, 0);
    return (
        <>
            {page.description && <p class="note">{page.description}</p>}
            <Facts
                rows={[
                    ["rate", rate((page.runs ?? 0) / page.window_s)],
                    ["p50", runs.length ? span(page.p50_us) : "–"],
                    ["p99", runs.length ? span(page.p99_us) : "–"],
                    ["cold", percent(page.cold ?? 0, page.runs ?? 0)],
                    ["from memory", percent(page.hits ?? 0, (page.hits ?? 0) + (page.misses ?? 0))],
                    ["errors", page.errors ? <State kind="bad">{count(page.errors)}</State> : "0"],
                    ["running", count(page.running)],
                    ["runtime", page.runtime],
                    ["handler", page.handler],
                    ["booked", bytes(page.memory)],
                    ["cache ways", page.ways ? waysNeed(page) : "not profiled"],
                    ["timeout", age(page.timeout_ms)],
                    ["code", `${bytes(page.code_size)}, ${page.code_sha256.slice(0, 12)}`],
                    ["changed", clock(page.modified)],
                    ["variables", page.environment.join(", ") || "none"],
                    ["layers", page.layers ? String(page.layers) : ""],
                    ["reserved", page.reserved === undefined ? "" : String(page.reserved)],
                ]}
            />
            <Section name="Where its time goes" note={`last ${page.window_s / 60} min, this node`}>
                {runs.length === 0 ? (
                    <Empty>It has not run in the last {page.window_s / 60} minutes.</Empty>
                ) : (
                    <>
                        <Bar tall parts={parts} label={parts.map((part) => `${part.name} ${percent(part.value, all)}`).join(", ")} />
                        <Legend parts={parts.map((part) => ({ ...part, text: percent(part.value, all) }))} />
                        <div class="pair">
                            <Pictured table={<Runs ns={page.namespace} runs={runs.slice(-100)} />}>
                                <OverTime runs={runs} />
                            </Pictured>
                            <Distribution runs={runs} />
                        </div>
                    </>
                )}
            </Section>
            <Section name="Last runs" note="newest first">
                <Runs ns={page.namespace} runs={runs.slice(-25)} />
            </Section>
            <div class="pair">
                <Test ns={page.namespace} name={page.name} />
                <Logs ns={page.namespace} name={page.name} />
            </div>
        </>
    );
}

function OverTime({ runs }: { runs: Named[] }) {
    const of = (read: (run: EndedRun) => number) => runs.map(([, run]) => read(run));
    return (
        <Chart
            label="Extract, transform and load of each run over time"
            seconds={of((run) => run.ended_ms / 1000)}
            series={[
                { name: "extract", colour: "--extract", values: of((run) => run.phases.extract_us), points: true },
                { name: "transform", colour: "--transform", values: of((run) => run.phases.transform_us), points: true },
                { name: "load", colour: "--load", values: of((run) => run.phases.load_us), points: true },
                { name: "cold start", colour: "--init", values: runs.map(([, run]) => run.init_us || null), points: true },
            ]}
        />
    );
}

const BINS = 24;

/** Durations in bins of equal ratio, cold starts on top. */
export function bins(runs: EndedRun[]): { from: number; to: number; warm: number; cold: number }[] {
    const all = runs.map((run) => Math.max(1, run.duration_us));
    const [low, high] = [Math.log(Math.min(...all)), Math.log(Math.max(...all) * 1.0001)];
    const width = Math.max((high - low) / BINS, 1e-9);
    const found = Array.from({ length: BINS }, (_, at) => ({ from: Math.exp(low + at * width), to: Math.exp(low + (at + 1) * width), warm: 0, cold: 0 }));
    for (const run of runs) {
        const at = Math.min(BINS - 1, Math.max(0, Math.floor((Math.log(Math.max(1, run.duration_us)) - low) / width)));
        const bin = found[at];
        if (bin) bin[run.start === "warm" ? "warm" : "cold"] += 1;
    }
    return found;
}

function Distribution({ runs }: { runs: Named[] }) {
    const found = bins(runs.map(([, run]) => run));
    const most = Math.max(...found.map((bin) => bin.warm + bin.cold));
    return (
        <Pictured
            table={
                <Table
                    caption="Distribution of durations"
                    rows={found.filter((bin) => bin.warm + bin.cold > 0)}
                    rowKey={(bin) => String(bin.from)}
                    columns={[
                        { name: "Duration", cell: (bin) => `${span(bin.from)} to ${span(bin.to)}` },
                        { name: "Warm", numeric: true, cell: (bin) => count(bin.warm) },
                        { name: "Cold", numeric: true, cell: (bin) => count(bin.cold) },
                    ]}
                />
            }
        >
            <figure class="histogram">
                <svg viewBox={`0 0 ${BINS * 10} 100`} preserveAspectRatio="none" role="img" aria-label="Distribution of durations">
                    {found.map((bin, at) => {
                        const [warm, cold] = [(98 * bin.warm) / most, (98 * bin.cold) / most];
                        return (
                            <g key={at}>
                                <title>{`${span(bin.from)} to ${span(bin.to)}: ${bin.warm} warm, ${bin.cold} cold`}</title>
                                <rect class="part-transform" x={at * 10 + 0.5} width="9" y={100 - warm} height={warm} />
                                <rect class="part-init" x={at * 10 + 0.5} width="9" y={100 - warm - cold} height={cold} />
                            </g>
                        );
                    })}
                </svg>
                <figcaption><span>{span(found[0]?.from)}</span><span>duration of the handler, warm and cold; at most {count(most)} runs a bar</span><span>{span(found.at(-1)?.to)}</span></figcaption>
            </figure>
        </Pictured>
    );
}

function Runs({ ns, runs }: { ns: string; runs: Named[] }) {
    return (
        <Table
            caption="Runs"
            rows={runs.toReversed()}
            rowKey={([id]) => id}
            empty="None in memory of this node."
            columns={[
                { name: "Invocation", cell: ([key, run]) => { const id = key.slice(0, key.lastIndexOf("-")); return <a href={href("invocation", [id])} title={`${id} of ${ns}`}>{shortId(id)}{run.attempt > 1 && ` (attempt ${run.attempt})`}</a>; } },
                { name: "Ended", cell: ([, run]) => clock(run.ended_ms) },
                { name: "Took", numeric: true, cell: ([, run]) => span(run.duration_us) },
                {
                    name: "Wait, start, E, T, L",
                    cell: ([, run]) => {
                        const parts = timeParts({ wait_us: run.wait_us, init_us: run.init_us, ...run.phases });
                        return <Bar parts={parts} label={parts.map((part) => `${part.name} ${part.text}`).join(", ")} />;
                    },
                },
                { name: "Start", cell: ([, run]) => run.start },
                { name: "Hits", numeric: true, wide: true, cell: ([, run]) => `${run.hits} of ${run.hits + run.misses}` },
                { name: "Peak, granted, booked", wide: true, cell: ([, run]) => <RunMemory used={run.peak} limit={run.granted} booked={run.booked} predicted={run.predicted} /> },
                { name: "", cell: ([, run]) => (run.failed ? <State kind="bad">failed</State> : <State kind="good">answered</State>) },
            ]}
        />
    );
}

interface Answer {
    id: string;
    function_error?: string | null;
    payload: unknown;
    log: string;
    duration_us: number;
    init_us?: number | null;
}

function Test({ ns, name }: { ns: string; name: string }) {
    const [input, setInput] = useState("{}");
    const [answer, setAnswer] = useState<Answer | undefined>();
    const run = async () => {
        JSON.parse(input);
        setAnswer(await send<Answer>("POST", `/functions/${segment(ns)}/${segment(name)}/invoke`, {}, input));
    };
    return (
        <Section name="Test run">
            <textarea aria-label="Input, JSON" rows={5} value={input} spellcheck={false} onInput={(event) => setInput(event.currentTarget.value)} />
            <p><Action label="Invoke" run={run} disabled={!mayOperate()} />{!mayOperate() && " This needs the role operate."}</p>
            {answer && (
                <div role="status">
                    <p>
                        {answer.function_error ? <State kind="bad">{answer.function_error}</State> : <State kind="good">answered</State>} in{" "}
                        {span(answer.duration_us)}{answer.init_us ? `, cold start ${span(answer.init_us)}` : ""}: <a href={href("invocation", [answer.id])}>where its time went</a>
                    </p>
                    <pre tabIndex={0}>{JSON.stringify(answer.payload, null, 2)}</pre>
                </div>
            )}
        </Section>
    );
}

interface LogEntry {
    id: string;
    start: string;
    outcome: string;
    duration_us: number;
    log: string;
}

async function loadLogs(ns: string, name: string): Promise<LogEntry[]> {
    const response = await request("/logs", { namespace: ns, function: name, limit: 20 });
    const lines = (await response.text()).split("\n").filter(Boolean);
    return lines.map((line) => JSON.parse(line) as LogEntry).filter((entry) => entry.id).reverse();
}

function Logs({ ns, name }: { ns: string; name: string }) {
    const { value, error, again } = useLoaded(`${ns}/${name}`, () => loadLogs(ns, name));
    return (
        <Section name="Logs" note={<button type="button" onClick={again}>Load again</button>}>
            {error && <Failure text={error} retry={again} />}
            {value?.length === 0 && <Empty>No invocation has printed anything.</Empty>}
            <div class="logs" tabIndex={0} role="region" aria-label="Logs">
                {value?.map((entry) => (
                    <article key={entry.id}>
                        <h3><a href={href("invocation", [entry.id])}>{clock(entry.start)}</a> {entry.outcome}, {span(entry.duration_us)}</h3>
                        <pre tabIndex={0}>{entry.log.trimEnd()}</pre>
                    </article>
                ))}
            </div>
        </Section>
    );
}
