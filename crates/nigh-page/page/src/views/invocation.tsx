// One invocation: each part of its time, each data call, and why it got what it got.

import { useEffect } from "preact/hooks";
import { get, segment } from "../api";
import { bytes, clock, percent, shortId, span } from "../format";
import { unwatch } from "../live";
import { href, route } from "../route";
import type { Explanation } from "../types";
import { Bar, Facts, Failure, Legend, Loading, Pictured, Section, State, Table, Title, useLoaded } from "../ui";
import { RunMemory } from "./hierarchy";

type Step = Explanation["steps"][number];

export function InvocationView() {
    const [id = ""] = route.value.parts;
    useEffect(unwatch, []);
    const { value, error, again } = useLoaded(id, () => get<Explanation>(`/explain/${segment(id)}`));
    return (
        <>
            <Title text={`Invocation ${shortId(id)}`}>
                {value && <a href={href("function", [value.activation.namespace, value.activation.function])}>{value.activation.function}</a>}
            </Title>
            {error ? <Failure text={error} retry={again} /> : value ? <Page {...value} /> : <Loading />}
        </>
    );
}

const KINDS: Record<Step["kind"], [string, string]> = {
    wait: ["wait", "waiting"],
    init: ["init", "cold start"],
    run: ["transform", "handler"],
    read: ["extract", "read"],
    write: ["load", "write"],
};

/** How a data call was served, in words that say why. */
function served(what: string): string {
    const [word = "", ...rest] = what.split(" ");
    const object = rest.join(" ");
    const why: Record<string, string> = {
        hit: "from memory",
        miss: "fetched, and cached",
        past: "streamed past the cache",
        metadata: "metadata",
        write: "written",
        delete: "deleted",
        failed: "failed",
    };
    return why[word] ? `${object} – ${word}: ${why[word]}` : what;
}

function outcome(explanation: Explanation) {
    const { kind, error_type, message, reason } = explanation.activation.outcome;
    if (kind === "answered") return <State kind="good">answered</State>;
    const text = kind.replaceAll("_", " ");
    return <State kind="bad">{[text, error_type, message ?? reason].filter(Boolean).join(": ")}</State>;
}

function exceeded({ setting, limit_us, booked }: NonNullable<Explanation["activation"]["exceeded"]>): string {
    const limit = limit_us === undefined ? (booked === undefined ? "" : ` of ${bytes(booked)}`) : ` of ${span(limit_us)}`;
    return `${setting.replaceAll("_", " ")}${limit}`;
}

function Page(explanation: Explanation) {
    const { activation, steps, shares, total_us, hit_percent, cost } = explanation;
    const parts = (["extract", "transform", "load"] as const).map((name) => ({ name, kind: name, value: shares[name], text: `${shares[name].toFixed(0)} %` }));
    return (
        <>
            <Facts
                rows={[
                    ["outcome", outcome(explanation)],
                    ["took", span(total_us)],
                    ["waited", span(activation.wait_us)],
                    ["cold start", activation.init_us ? span(activation.init_us) : "none"],
                    ["handler", span(activation.duration_us)],
                    ["reads from memory", hit_percent == null ? "none read" : `${hit_percent.toFixed(0)} % of ${activation.hits + activation.misses}`],
                    ["memory", <RunMemory used={activation.peak_memory ?? undefined} limit={activation.granted} booked={activation.booked} predicted={activation.predicted_memory ?? undefined} />],
                    ["billed", `${cost.billed_gb_s.toFixed(4)} GB·s, ${cost.used_gb_s == null ? "use not measured" : `${percent(cost.used_gb_s, cost.billed_gb_s)} of it used`}`],
                    ["requested", clock(activation.start)],
                    ["attempt", activation.attempt > 1 ? String(activation.attempt) : ""],
                    ["exceeded", activation.exceeded && exceeded(activation.exceeded)],
                    ["id", <code>{activation.id}</code>],
                    ["trace", activation.trace_id && <code>{activation.trace_id}</code>],
                ]}
            />
            <Section name="Where its time went" note={<>from the request to the answer; <a href={href("hierarchy", [], { run: activation.id })}>in the hierarchy</a></>}>
                <Waterfall steps={steps} total={total_us} />
                {activation.data_calls_omitted > 0 && <p class="note">{activation.data_calls_omitted} more data calls are counted and not listed.</p>}
                <h3>Of the handler</h3>
                <Bar parts={parts} whole={100} label={parts.map((part) => `${part.name} ${part.text}`).join(", ")} />
                <Legend parts={parts} />
            </Section>
            <Section name="Why there and with what">
                <Facts
                    rows={[
                        ["sandbox", activation.placement],
                        ...activation.notes.map((note): [string, string] => {
                            const [name = "", ...rest] = note.split(": ");
                            return rest.length ? [name, rest.join(": ")] : ["note", note];
                        }),
                        ["grant raised", activation.memory.grown ? `${activation.memory.grown} times` : ""],
                        ["waited for the cache", activation.memory.waited_us ? span(activation.memory.waited_us) : ""],
                        ["short of memory", activation.memory.came_short ? "it reached a limit below what it booked" : ""],
                    ]}
                />
            </Section>
            {(activation.stack_trace?.length ?? 0) > 0 && (
                <Section name="Stack">
                    <pre tabIndex={0}>{activation.stack_trace?.join("\n")}</pre>
                </Section>
            )}
            <Section name="Log" note={activation.log_omitted ? `${bytes(activation.log_omitted)} before this are not kept` : undefined}>
                <pre tabIndex={0} class="log">{activation.log.trimEnd() || "It printed nothing."}</pre>
            </Section>
        </>
    );
}

function Waterfall({ steps, total }: { steps: Step[]; total: number }) {
    const x = (micros: number) => (1000 * micros) / Math.max(1, total);
    const ticks = [0, 0.25, 0.5, 0.75, 1];
    return (
        <Pictured
            table={
                <Table
                    caption="Steps"
                    rows={steps}
                    rowKey={(step) => `${step.at_us} ${step.kind} ${step.what}`}
                    columns={[
                        { name: "Step", cell: (step) => KINDS[step.kind][1] },
                        { name: "What", cell: (step) => served(step.what) },
                        { name: "Begins after", numeric: true, cell: (step) => span(step.at_us) },
                        { name: "Took", numeric: true, cell: (step) => span(step.took_us) },
                        { name: "Bytes", numeric: true, cell: (step) => (step.bytes ? bytes(step.bytes) : "–") },
                    ]}
                />
            }
        >
            <div class="waterfall" role="list" aria-label="Steps in the order of their beginnings">
                <div class="axis" aria-hidden="true">
                    {ticks.map((tick) => <span key={tick}>{span(total * tick)}</span>)}
                </div>
                {steps.map((step) => (
                    <div class="step" role="listitem" key={`${step.at_us} ${step.kind} ${step.what}`}>
                        <span class="step-name" title={served(step.what)}>{step.kind === "read" || step.kind === "write" ? served(step.what) : KINDS[step.kind][1]}</span>
                        <svg viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true">
                            {ticks.map((tick) => <rect key={tick} class="grid" x={Math.min(999, tick * 1000)} width="1" height="10" />)}
                            <rect class={`part-${KINDS[step.kind][0]}`} x={Math.min(997, x(step.at_us))} width={Math.max(3, x(step.took_us))} y="1.5" height="7" />
                        </svg>
                        <span class="step-took">{span(step.took_us)}{step.bytes > 0 && <small> {bytes(step.bytes)}</small>}</span>
                    </div>
                ))}
            </div>
        </Pictured>
    );
}
