// The states of a machine in layers, and what an execution's history says of each.

export interface StateDefinition {
    Type: string;
    Next?: string;
    Default?: string;
    Choices?: { Next?: string }[];
    Catch?: { Next?: string }[];
    Branches?: Definition[];
    Iterator?: Definition;
    ItemProcessor?: Definition;
}

export interface Definition {
    StartAt: string;
    States: Record<string, StateDefinition>;
}

export interface HistoryEvent {
    id: number;
    previousEventId: number;
    timestamp: number;
    type: string;
    [details: string]: unknown;
}

export interface Node {
    name: string;
    type: string;
    row: number;
    column: number;
}

function next(state: StateDefinition): string[] {
    const all = [state.Next, ...(state.Choices ?? []).map((one) => one.Next), state.Default, ...(state.Catch ?? []).map((one) => one.Next)];
    return [...new Set(all.filter((name): name is string => typeof name === "string"))];
}

/** The machines inside a state: the branches of Parallel, the iterator of Map. */
function inner(state: StateDefinition): Definition[] {
    return [...(state.Branches ?? []), ...[state.ItemProcessor ?? state.Iterator].filter((one): one is Definition => one !== undefined)];
}

/** Each state below all that lead to it, except by a way back; what runs inside a state stands between it and the next. */
export function graph(definition: Definition): { nodes: Node[]; edges: { from: string; to: string; back: boolean }[]; columns: number; rows: number } {
    const states = new Map<string, StateDefinition>();
    const ways = new Map<string, string[]>();
    const collect = (machine: Definition, after: string[]) => {
        for (const [name, state] of Object.entries(machine.States)) {
            if (states.has(name)) continue;
            const within = inner(state);
            const to = next(state);
            states.set(name, state);
            ways.set(name, within.length ? within.map((one) => one.StartAt) : to.length ? to : after);
            for (const one of within) collect(one, to);
        }
    };
    collect(definition, []);

    const edges: { from: string; to: string; back: boolean }[] = [];
    const rows = new Map<string, number>();
    const under: string[] = [];
    const order: string[] = [];
    const visit = (name: string) => {
        under.push(name);
        for (const to of ways.get(name) ?? []) {
            if (!states.has(to)) continue;
            const back = under.includes(to);
            edges.push({ from: name, to, back });
            if (!back && !order.includes(to)) visit(to);
        }
        under.pop();
        order.push(name);
    };
    if (states.has(definition.StartAt)) visit(definition.StartAt);
    for (const name of order.toReversed()) {
        const row = rows.get(name) ?? 0;
        rows.set(name, row);
        for (const edge of edges) if (edge.from === name && !edge.back) rows.set(edge.to, Math.max(rows.get(edge.to) ?? 0, row + 1));
    }
    const width: number[] = [];
    const nodes = order.toReversed().map((name): Node => {
        const row = rows.get(name) ?? 0;
        const column = width[row] ?? 0;
        width[row] = column + 1;
        return { name, type: states.get(name)?.Type ?? "", row, column };
    });
    return { nodes, edges, columns: Math.max(1, ...width.map((one) => one ?? 0)), rows: Math.max(1, width.length) };
}

/** The state that an event names. */
export function statesOf(event: HistoryEvent): string | undefined {
    const entered = event.stateEnteredEventDetails as { name?: string } | undefined;
    const exited = event.stateExitedEventDetails as { name?: string } | undefined;
    return entered?.name ?? exited?.name;
}

export interface Visit {
    state: "running" | "done" | "failed";
    entered: number;
    retries: number;
    /** The time of all visits that have ended. */
    millis?: number;
    /** When the visit that has not ended began, in milliseconds. */
    since?: number;
}

/** What the history says of each state. */
export function visits(history: HistoryEvent[]): Map<string, Visit> {
    const found = new Map<string, Visit>();
    const since = new Map<string, number>();
    const stateOf = new Map<number, string>();
    for (const event of history) {
        const named = statesOf(event);
        const name = named ?? stateOf.get(event.previousEventId);
        if (name !== undefined) stateOf.set(event.id, name);
        if (name === undefined) continue;
        const visit = found.get(name) ?? { state: "running", entered: 0, retries: 0 };
        found.set(name, visit);
        if (event.type.endsWith("StateEntered")) {
            visit.entered += 1;
            visit.state = "running";
            since.set(name, event.timestamp);
            visit.since = event.timestamp * 1000;
        } else if (event.type.endsWith("StateExited")) {
            visit.state = "done";
            visit.since = undefined;
            visit.millis = (visit.millis ?? 0) + (event.timestamp - (since.get(name) ?? event.timestamp)) * 1000;
        } else if (/(Failed|TimedOut|Aborted)$/.test(event.type)) {
            visit.state = "failed";
        } else if (/(Scheduled|Started)$/.test(event.type) && visit.state === "failed") {
            visit.state = "running";
            visit.retries += 1;
        }
    }
    return found;
}
