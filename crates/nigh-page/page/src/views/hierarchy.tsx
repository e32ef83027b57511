// The first view: where the data is and where the time goes, level by level.

import type { ComponentChildren } from "preact";
import { get, segment } from "../api";
import { age, bytes, count, percent, rate, span } from "../format";
import { useRates } from "../rates";
import { go, href, route } from "../route";
import type { Explanation, Figures, Hierarchy, Member, Memory, Run, Status } from "../types";
import { Bar, Empty, Facts, Legend, Live, type Part, Pictured, Section, State, Table, Title, useLoaded } from "../ui";
import { type LevelName, levelsOf } from "./levels";
import { Ways } from "./ways";

export function HierarchyView() {
    return (
        <>
            <Title text="Hierarchy" />
            <Live<Hierarchy> view="hierarchy">{(document) => <Levels {...document} />}</Live>
        </>
    );
}

function Levels(document: Hierarchy) {
    const { at, status, llc, running, running_more, time, time_window_s, invalidations, members } = document;
    const { cache, writes, memory } = status;
    const rates = useRates(at, {
        hits: cache.hits,
        misses: cache.misses + cache.past,
        writes: cache.writes,
        evictions: cache.evictions,
        commits: writes.commits,
        yielded: memory?.yielded ?? 0,
        grown: memory?.grown ?? 0,
    });
    const of = (name: string) => rates[name] ?? 0;
    const picked = route.value.query.get("run");
    const run = picked ? running[picked] : undefined;
    // What has ended has a record, which tells its way through the levels.
    const over = picked && !run ? picked : "";
    const { value: ended, error, again } = useLoaded<Explanation | undefined>(over, async () => (over ? get<Explanation>(`/explain/${segment(over)}`) : undefined));
    const way = over && ended ? levelsOf(ended) : {};
    const lit = (level: LevelName) => way[level] ?? (run && now(run, level));
    const pick = (id: string | null) => go(href("hierarchy", [], { run: id && id !== picked ? id : undefined }));
    return (
        <>
            <Time figures={time} seconds={time_window_s} />
            {status.draining && (
                <p class="cut"><strong>Draining:</strong> {count(status.draining.invocations)} invocations have {status.draining.left_s} s left.</p>
            )}
            {over && (
                <p class="note">
                    {ended ? `${ended.activation.function} took ${span(ended.total_us)}; its way is marked below.` : error ? `Its record: ${error}.` : "It has ended."}{" "}
                    <a href={href("invocation", [over])}>Where its time went</a> {error && <button type="button" onClick={again}>Try again</button>}{" "}
                    <button type="button" onClick={() => pick(null)}>Unmark</button>
                </p>
            )}
            <Level name="Last-level cache" lit={lit("cache")} figure={llc.shape && `${llc.shape.ways} ways`} note={llc.level.on ? `policy ${llc.policy}` : "not allocated here"}>
                <Ways llc={llc} picked={run} />
            </Level>
            <Flow up={`${rate(of("hits"))} reads from memory`} moves={of("hits") > 0} />
            <Level name="Memory" lit={lit("memory")} figure={bytes(whole(status))} note={`${count(status.sandboxes.running)} run, ${count(status.sandboxes.waiting)} wait, ${count(status.sandboxes.idle)} idle`}>
                <MemoryBar status={status} running={running} />
                <p class="moves">
                    <Moving rate={of("yielded")}>cache gives sandboxes {bytes(of("yielded"))}/s</Moving>
                    <Moving rate={of("grown")}>grants raised {rate(of("grown"))}</Moving>
                    <Moving rate={of("evictions")}>copies evicted {rate(of("evictions"))}</Moving>
                </p>
                <Running at={at} running={running} more={running_more} picked={picked} pick={pick} />
            </Level>
            <Flow up={`${rate(of("misses"))} reads fetched`} down={`${count(invalidations)} invalidations on their way`} moves={of("misses") > 0 || invalidations > 0} />
            <Level name="Other nodes" lit={lit("fetched")} figure={status.cluster ? count(Object.keys(members).length) : undefined} note={status.cluster && `cluster ${status.cluster.name}`}>
                <Members members={members} alone={!status.cluster} />
            </Level>
            <Flow down={`${rate(of("commits"))} commits`} moves={of("commits") > 0} />
            <Level name="Store" lit={lit("written")} figure={`${count(writes.waiting)} unpushed`} note={bytes(writes.waiting_bytes)}>
                <Store status={status} />
            </Level>
            <Off status={status} />
        </>
    );
}

/** What is known of a running invocation at a level. */
function now(run: Run, level: LevelName): string | undefined {
    if (level === "cache") return run.clos === undefined ? undefined : `runs in class ${run.clos}`;
    if (level === "memory") return `uses ${bytes(run.used)} of ${bytes(run.limit)} granted, ${bytes(run.booked)} booked`;
    return undefined;
}

/** A level; `lit` says what the marked invocation did there. */
function Level({ name, figure, note, lit, children }: { name: string; figure?: string; note?: ComponentChildren; lit?: string; children: ComponentChildren }) {
    return (
        <section class={lit ? "level lit" : "level"} aria-label={name}>
            <div class="level-name">
                <h2>{name}</h2>
                {figure && <b>{figure}</b>}
                {note && <small>{note}</small>}
                {lit && <span class="lit-note"><span aria-hidden="true">▸</span> {lit}</span>}
            </div>
            <div class="level-body">{children}</div>
        </section>
    );
}

/** What moves between two levels. */
function Flow({ up, down, moves }: { up?: string; down?: string; moves: boolean }) {
    return (
        <div class={moves ? "flow moves" : "flow"}>
            {up && <span><span aria-hidden="true">▲</span> {up}</span>}
            {down && <span><span aria-hidden="true">▼</span> {down}</span>}
        </div>
    );
}

function Moving({ rate, children }: { rate: number; children: ComponentChildren }) {
    return rate > 0 ? <span class="moving"><span aria-hidden="true">⇄</span> {children}</span> : null;
}

export function timeParts(figures: Partial<Figures>): Part[] {
    const part = (name: string, kind: string, value = 0): Part => ({ name, kind, value, text: span(value) });
    return [
        part("waiting", "wait", figures.wait_us),
        part("cold starts", "init", figures.init_us),
        part("extract", "extract", figures.extract_us),
        part("transform", "transform", figures.transform_us),
        part("load", "load", figures.load_us),
    ];
}

function Time({ figures, seconds }: { figures: Figures; seconds: number }) {
    const parts = timeParts(figures);
    const all = parts.reduce((sum, part) => sum + part.value, 0);
    return (
        <section class="time" aria-label="Where the time goes">
            <h2>Where the time goes <small>last {seconds / 60} min, this node</small></h2>
            {figures.runs === 0 ? (
                <Empty>No invocation has ended in the last {seconds / 60} minutes.</Empty>
            ) : (
                <Pictured
                    table={
                        <Table
                            caption="Time by what it went to"
                            rowKey={(part: Part) => part.name}
                            rows={parts}
                            columns={[
                                { name: "Part", cell: (part) => part.name },
                                { name: "Time", numeric: true, cell: (part) => part.text },
                                { name: "Share", numeric: true, cell: (part) => percent(part.value, all) },
                            ]}
                        />
                    }
                >
                    <Bar tall parts={parts} label={parts.map((part) => `${part.name} ${percent(part.value, all)}`).join(", ")} />
                    <Legend parts={parts.map((part) => ({ ...part, text: percent(part.value, all) }))} />
                </Pictured>
            )}
            {figures.runs > 0 && <Facts
                rows={[
                    ["runs", `${count(figures.runs)} (${rate(figures.runs / seconds)})`],
                    ["p50", span(figures.p50_us)],
                    ["p99", span(figures.p99_us)],
                    ["cold", percent(figures.cold, figures.runs)],
                    ["reads from memory", percent(figures.hits, figures.hits + figures.misses)],
                    ["errors", figures.errors ? <State kind="bad">{count(figures.errors)}</State> : "0"],
                ]}
            />}
        </section>
    );
}

function whole(status: Status): number {
    return status.memory ? status.memory.booked + status.memory.cache_own : status.sandboxes.memory + status.cache.budget;
}

export function memoryParts(memory: Memory, used: number): Part[] {
    const part = (name: string, kind: string, value: number): Part => ({ name, kind, value, text: bytes(value) });
    const inUse = Math.min(used, memory.granted);
    return [
        part("used by sandboxes", "used", inUse),
        part("granted, not used", "granted", memory.granted - inUse),
        part("copies of objects", "copies", memory.cache_takes),
        part("free for copies", "free", Math.max(0, memory.cache - memory.cache_takes)),
        part("slack for growth", "slack", memory.room),
    ];
}

function MemoryBar({ status, running }: { status: Status; running: Record<string, Run> }) {
    const { memory, sandboxes, cache } = status;
    const used = Object.values(running).reduce((sum, run) => sum + (run.used ?? 0), 0) + sandboxes.idle_held;
    const parts = memory
        ? memoryParts(memory, used)
        : [
              { name: "booked by sandboxes", kind: "granted", value: sandboxes.booked, text: bytes(sandboxes.booked) },
              { name: "free for sandboxes", kind: "slack", value: sandboxes.memory - sandboxes.booked, text: bytes(sandboxes.memory - sandboxes.booked) },
              { name: "copies of objects", kind: "copies", value: cache.kept, text: bytes(cache.kept) },
              { name: "free for copies", kind: "free", value: cache.budget - cache.kept, text: bytes(cache.budget - cache.kept) },
          ];
    const all = parts.reduce((sum, part) => sum + part.value, 0);
    return (
        <Pictured
            table={
                <Table
                    caption="Memory of this node"
                    rowKey={(part: Part) => part.name}
                    rows={parts}
                    columns={[
                        { name: "Part", cell: (part) => part.name },
                        { name: "Bytes", numeric: true, cell: (part) => part.text },
                        { name: "Share", numeric: true, cell: (part) => percent(part.value, all) },
                    ]}
                />
            }
        >
            <Bar tall parts={parts} label={parts.map((part) => `${part.name} ${part.text}`).join(", ")} />
            <Legend parts={parts} />
            <p class="note">
                {count(cache.objects)} objects cached, {percent(cache.hits, cache.hits + cache.misses + cache.past)} of all reads from
                memory; pre-warmed:{" "}
                {status.stems.length === 0
                    ? "none"
                    : status.stems.map((stem) => `${stem.ready} of ${stem.wanted} ${stem.runtime}`).join(", ")}
            </p>
        </Pictured>
    );
}

function Running({ at, running, more, picked, pick }: {
    at: number;
    running: Record<string, Run>;
    more: number;
    picked: string | null;
    pick: (id: string) => void;
}) {
    const rows = Object.entries(running).sort(([, a], [, b]) => a.since - b.since);
    return (
        <>
            <Table
                caption="Running invocations"
                rows={rows}
                rowKey={([id]) => id}
                empty="No invocation runs now."
                onRow={([id]) => pick(id)}
                selected={([id]) => id === picked}
                columns={[
                    {
                        name: "Running",
                        cell: ([id, run]) => (
                            <button type="button" class="link" aria-pressed={id === picked} onClick={(event) => { event.stopPropagation(); pick(id); }}>
                                {run.function}
                            </button>
                        ),
                    },
                    { name: "For", numeric: true, cell: ([, run]) => span(Math.max(0, at - run.since) * 1000) },
                    { name: "Used, granted, booked", cell: ([, run]) => <RunMemory {...run} /> },
                    { name: "Class", hint: "Class of service in the last-level cache", numeric: true, cell: ([, run]) => run.clos ?? "–" },
                    { name: "Start", wide: true, cell: ([, run]) => run.start },
                ]}
            />
            {more > 0 && <p class="note">{count(more)} more run.</p>}
        </>
    );
}

export function RunMemory({ used, limit, booked, predicted }: { used?: number; limit?: number; booked: number; predicted?: number }) {
    const x = (value: number) => Math.min(1000, (1000 * value) / booked);
    const text = [
        used !== undefined && `${bytes(used)} used`,
        limit !== undefined && `${bytes(limit)} granted`,
        `${bytes(booked)} booked`,
        predicted !== undefined && `${bytes(predicted)} predicted`,
    ].filter(Boolean).join(", ");
    return (
        <span class="run-memory">
            <svg class="bar" viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={text}>
                <title>{text}</title>
                <rect class="track" width="1000" height="10" />
                {limit !== undefined && <rect class="part-granted" width={x(limit)} height="10" />}
                {used !== undefined && <rect class="part-used" width={x(used)} height="10" />}
                {predicted !== undefined && <rect class="tick" x={Math.max(0, x(predicted) - 4)} width="8" height="10" />}
            </svg>
            <small>{used !== undefined ? bytes(used) : "–"} / {bytes(limit ?? booked)}</small>
        </span>
    );
}

function Members({ members, alone }: { members: Record<string, Member>; alone: boolean }) {
    const rows = Object.entries(members);
    if (alone) return <Empty>This node is alone: copies are in its own memory and in the store.</Empty>;
    return (
        <Table
            caption="Other nodes"
            rows={rows}
            rowKey={([name]) => name}
            empty="No other node is a member now."
            columns={[
                { name: "Node", cell: ([name, one]) => <>{name}{one.trouble && <> <State kind="bad">{one.trouble}</State></>}</> },
                {
                    name: "Memory",
                    cell: ([, one]) =>
                        one.unanswered ? (
                            <State kind="bad">no answer: {one.unanswered}</State>
                        ) : (
                            <Bar
                                label={`granted ${bytes(one.granted)}, copies ${bytes(one.cache_bytes)}, free for copies ${bytes((one.cache_budget ?? 0) - (one.cache_bytes ?? 0))}`}
                                parts={[
                                    { name: "granted", kind: "granted", value: one.granted ?? 0, text: bytes(one.granted) },
                                    { name: "copies", kind: "copies", value: one.cache_bytes ?? 0, text: bytes(one.cache_bytes) },
                                    { name: "free for copies", kind: "free", value: Math.max(0, (one.cache_budget ?? 0) - (one.cache_bytes ?? 0)) },
                                ]}
                            />
                        ),
                },
                { name: "Copies", numeric: true, cell: ([, one]) => count(one.copies) },
                { name: "Homes", numeric: true, hint: "Shards whose writes it orders", cell: ([, one]) => count(one.homes) },
                { name: "Invalidations", numeric: true, wide: true, hint: "Sent and not acknowledged", cell: ([, one]) => count(one.invalidations) },
                { name: "Unpushed", numeric: true, wide: true, cell: ([, one]) => count(one.unpushed) },
            ]}
        />
    );
}

function Store({ status }: { status: Status }) {
    const { writes } = status;
    const store = status.levels.find((level) => level.name === "store");
    const parts: Part[] = [
        { name: "journal", kind: "copies", value: writes.journal, text: bytes(writes.journal) },
    ];
    return (
        <>
            <Bar parts={parts} whole={writes.journal_max} label={`journal ${bytes(writes.journal)} of ${bytes(writes.journal_max)}`} />
            <Facts
                rows={[
                    ["journal", `${bytes(writes.journal)} of ${bytes(writes.journal_max)}`],
                    ["oldest unpushed", writes.waiting ? age(writes.oldest_ms) : "none"],
                    ["failing", writes.failing ? <State kind="bad">{count(writes.failing)}</State> : "0"],
                    ["conflicts", writes.conflicts ? <State kind="warn">{count(writes.conflicts)}</State> : "0"],
                    ["ephemeral", count(writes.ephemeral)],
                    ["store", store?.detail],
                ]}
            />
        </>
    );
}

function Off({ status }: { status: Status }) {
    const off = status.levels.filter((level) => !level.on);
    if (off.length === 0) return null;
    return (
        <Section name="Off on this machine">
            <Facts rows={off.map((level) => [level.name, level.detail])} />
        </Section>
    );
}
