// State machines, their executions, and one execution: its states as a graph, and the time in each.

import { age, clock, count } from "../format";
import { namespace } from "../namespace";
import { href, route } from "../route";
import { Empty, Facts, Live, Pictured, Section, Since, State, Table, Title } from "../ui";
import { type Definition, type HistoryEvent, type Visit, graph, statesOf, visits } from "./graph";

interface Machines {
    namespace: string;
    machines: Record<string, { kind: string; created: number; updated: number }>;
    next?: string;
}

interface Listed {
    status: string;
    started: number;
    stopped?: number;
    error?: string;
    cause?: string;
}

interface Machine {
    namespace: string;
    name: string;
    kind: string;
    definition: string;
    executions: Record<string, Listed>;
    more: boolean;
    unanswered: Record<string, string>;
}

interface Execution extends Listed {
    namespace: string;
    workflow: string;
    name: string;
    definition: string;
    input: string;
    output?: string;
    history: Record<string, HistoryEvent>;
    history_omitted: number;
}

export function WorkflowsView() {
    const [workflow, execution] = route.value.parts;
    const after = route.value.query.get("after") ?? undefined;
    const ns = namespace.value;
    return (
        <>
            <Title text={execution ?? workflow ?? "Workflows"}>
                {workflow && (
                    <nav class="crumbs" aria-label="Workflows">
                        <a href={href("workflows")}>Workflows</a>
                        {execution && <a href={href("workflows", [workflow])}>{workflow}</a>}
                    </nav>
                )}
            </Title>
            <Live<Machines | Machine | Execution> view="workflows" params={{ namespace: ns, workflow, execution, after }}>
                {(document) => ("machines" in document ? <MachineList {...document} /> : "executions" in document ? <OneMachine {...document} /> : <OneExecution {...document} />)}
            </Live>
        </>
    );
}

export function status(status: string) {
    const kind = { RUNNING: "busy", SUCCEEDED: "good", FAILED: "bad", TIMED_OUT: "bad", ABORTED: "warn" }[status] ?? "idle";
    return <State kind={kind as "busy" | "good" | "bad" | "warn" | "idle"}>{status.toLowerCase().replace("_", " ")}</State>;
}

function MachineList({ machines, namespace: ns, next }: Machines) {
    return (
        <>
            <Table
                caption={`State machines of ${ns}`}
                rows={Object.entries(machines)}
                rowKey={([name]) => name}
                empty={<>No state machines in namespace {ns} yet: <code>nigh init NAME --template workflow</code>.</>}
                columns={[
                    { name: "State machine", cell: ([name]) => <a href={href("workflows", [name])}>{name}</a> },
                    { name: "Kind", cell: ([, one]) => one.kind.toLowerCase() },
                    { name: "Changed", cell: ([, one]) => clock(one.updated) },
                ]}
            />
            {next && <p><a href={href("workflows", [], { after: next })}>Next page</a></p>}
        </>
    );
}

function definitionOf(text: string): Definition | null {
    try {
        return JSON.parse(text) as Definition;
    } catch {
        return null;
    }
}

function OneMachine(machine: Machine) {
    const rows = Object.entries(machine.executions).sort(([, a], [, b]) => b.started - a.started);
    const definition = definitionOf(machine.definition);
    const silent = Object.entries(machine.unanswered);
    return (
        <>
            {silent.map(([node, why]) => <p key={node} class="cut">{node} runs the executions and does not answer: {why}.</p>)}
            <Section name="Executions" note={machine.more ? `the last ${rows.length}` : undefined}>
                <Table
                    caption="Executions"
                    rows={rows}
                    rowKey={([name]) => name}
                    empty={silent.length ? "They are unknown now." : "It has not been started yet."}
                    columns={[
                        { name: "Execution", cell: ([name]) => <a href={href("workflows", [machine.name, name])}>{name}</a> },
                        { name: "Status", cell: ([, one]) => status(one.status) },
                        { name: "Began", cell: ([, one]) => clock(one.started) },
                        { name: "Took", numeric: true, cell: ([, one]) => (one.stopped ? age(one.stopped - one.started) : "–") },
                        { name: "Error", wide: true, cell: ([, one]) => [one.error, one.cause].filter(Boolean).join(": ") },
                    ]}
                />
            </Section>
            <Section name="States">
                {definition ? <Graph definition={definition} history={[]} live={false} /> : <pre tabIndex={0}>{machine.definition}</pre>}
            </Section>
        </>
    );
}

function OneExecution(execution: Execution) {
    const history = Object.values(execution.history).sort((a, b) => a.id - b.id);
    const definition = definitionOf(execution.definition);
    return (
        <>
            <Facts
                rows={[
                    ["status", status(execution.status)],
                    ["began", clock(execution.started)],
                    [execution.stopped ? "took" : "running for", execution.stopped ? age(execution.stopped - execution.started) : <Since from={execution.started} />],
                    ["error", [execution.error, execution.cause].filter(Boolean).join(": ")],
                ]}
            />
            <Section name="States">
                {definition ? <Graph definition={definition} history={history} live={execution.status === "RUNNING"} /> : <Empty>Its definition cannot be read.</Empty>}
            </Section>
            <div class="pair">
                <Section name="Input"><pre tabIndex={0}>{execution.input}</pre></Section>
                <Section name="Output"><pre tabIndex={0}>{execution.output ?? "None."}</pre></Section>
            </div>
            <Section name="History" note={execution.history_omitted ? `${count(execution.history_omitted)} earlier events are not shown` : undefined}>
                <Table
                    caption="History"
                    rows={history.toReversed().slice(0, 200)}
                    rowKey={(event) => String(event.id)}
                    columns={[
                        { name: "No.", numeric: true, cell: (event) => event.id },
                        { name: "Event", cell: (event) => event.type },
                        { name: "State", cell: (event) => statesOf(event) ?? "" },
                        { name: "At", cell: (event) => clock(event.timestamp * 1000) },
                    ]}
                />
            </Section>
        </>
    );
}

const [WIDTH, HEIGHT, GAP] = [190, 46, 26];

/** The time in a state: of the visits that have ended, and of the one that goes on while the execution runs. */
function TimeIn({ visit, live, none }: { visit?: Visit; live: boolean; none: string }) {
    if (live && visit?.since !== undefined) return <Since from={visit.since - (visit.millis ?? 0)} />;
    return <>{visit?.millis === undefined ? none : age(visit.millis)}</>;
}

function Graph({ definition, history, live }: { definition: Definition; history: HistoryEvent[]; live: boolean }) {
    const { nodes, edges, columns, rows } = graph(definition);
    const seen = visits(history);
    const [width, height] = [columns * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP];
    const x = (column: number) => GAP + column * (WIDTH + GAP);
    const y = (row: number) => GAP / 2 + row * (HEIGHT + GAP);
    const at = new Map(nodes.map((node) => [node.name, node]));
    return (
        <Pictured
            table={
                <Table
                    caption="States"
                    rows={nodes}
                    rowKey={(node) => node.name}
                    columns={[
                        { name: "State", cell: (node) => node.name },
                        { name: "Type", cell: (node) => node.type },
                        { name: "Entered", numeric: true, cell: (node) => count(seen.get(node.name)?.entered ?? 0) },
                        { name: "Retries", numeric: true, cell: (node) => count(seen.get(node.name)?.retries ?? 0) },
                        { name: "Time", numeric: true, cell: (node) => <TimeIn visit={seen.get(node.name)} live={live} none="–" /> },
                    ]}
                />
            }
        >
            <div class="scroll" tabIndex={0} role="region" aria-label="Graph of states">
                <svg class="graph" width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="img" aria-label="Graph of states">
                    {edges.map(({ from, to, back }) => {
                        const [a, b] = [at.get(from), at.get(to)];
                        if (!a || !b) return null;
                        const [x1, y1, x2, y2] = [x(a.column) + WIDTH / 2, y(a.row) + HEIGHT, x(b.column) + WIDTH / 2, y(b.row)];
                        // A way over several rows passes beside what stands between.
                        const aside = x(a.column) + WIDTH + GAP / 2;
                        const path = back
                            ? `M${x(a.column)} ${y(a.row) + HEIGHT / 2} C${x(a.column) - 24} ${y(a.row)} ${x(b.column) - 24} ${y(b.row) + HEIGHT} ${x(b.column)} ${y(b.row) + HEIGHT / 2}`
                            : b.row - a.row > 1
                              ? `M${x1} ${y1} C${x1} ${y1 + GAP} ${aside} ${y1} ${aside} ${y1 + GAP} L${aside} ${y2 - GAP} C${aside} ${y2} ${x2} ${y2 - GAP} ${x2} ${y2 - 2}`
                              : `M${x1} ${y1} C${x1} ${y1 + GAP} ${x2} ${y2 - GAP} ${x2} ${y2 - 2}`;
                        return <path key={`${from} ${to}`} class={back ? "edge back" : "edge"} d={path} />;
                    })}
                    {nodes.map((node) => {
                        const visit = seen.get(node.name);
                        const state = visit ? visit.state : "idle";
                        return (
                            <g key={node.name} class={`node ${state}`} transform={`translate(${x(node.column)} ${y(node.row)})`}>
                                <title>{`${node.name}, ${node.type}: ${visit ? `${visit.state}, entered ${visit.entered} times` : "not entered"}`}</title>
                                <rect width={WIDTH} height={HEIGHT} rx="4" />
                                <text x="10" y="19">{node.name.length > 24 ? `${node.name.slice(0, 23)}…` : node.name}</text>
                                <text x="10" y="36" class="dim">{node.type} <TimeIn visit={visit} live={live} none="" />{visit?.retries ? ` · ${visit.retries} retries` : ""}</text>
                                <text x={WIDTH - 18} y="19">{{ done: "✓", failed: "✕", running: "▸", idle: "" }[state]}</text>
                            </g>
                        );
                    })}
                </svg>
            </div>
        </Pictured>
    );
}
