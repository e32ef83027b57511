// The functions of a namespace: what runs, how long, and where the time goes.

import { useState } from "preact/hooks";
import { bytes, count, percent, rate, span } from "../format";
import { namespace } from "../namespace";
import { go, href, route } from "../route";
import type { FunctionList, ListedFunction } from "../types";
import { Bar, Legend, Live, State, Table, Title } from "../ui";
import { RunMemory, timeParts } from "./hierarchy";

const ORDERS: [string, string][] = [
    ["time", "most time"],
    ["runs", "most runs"],
    ["errors", "most errors"],
    ["slowest", "slowest (p99)"],
    ["name", "name"],
];

/** The ways that a function needs; a dash if this version of its code has not been profiled. */
export function waysNeed({ ways }: ListedFunction): string {
    if (!ways) return "–";
    return ways.least === ways.most ? String(ways.most) : `${ways.least}–${ways.most}`;
}

export function FunctionsView() {
    const { query } = route.value;
    const [sort, after] = [query.get("sort") ?? "time", query.get("after") ?? undefined];
    const ns = namespace.value;
    const [name, setName] = useState("");
    return (
        <>
            <Title text="Functions">
                <label>
                    First{" "}
                    <select value={sort} onChange={(event) => go(href("functions", [], { sort: event.currentTarget.value }))}>
                        {ORDERS.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
                    </select>
                </label>
                <form
                    onSubmit={(event) => {
                        event.preventDefault();
                        if (name.trim()) go(href("function", [ns, name.trim()]));
                    }}
                >
                    <input aria-label="Open a function by its name" placeholder="open by name" value={name} onInput={(event) => setName(event.currentTarget.value)} />
                </form>
            </Title>
            <Live<FunctionList> view="functions" params={{ namespace: ns, sort, after }}>{(list) => <List list={list} sort={sort} />}</Live>
        </>
    );
}

function List({ list, sort }: { list: FunctionList; sort: string }) {
    const rows = list.order.flatMap((name): [string, ListedFunction][] => {
        const one = list.functions[name];
        return one ? [[name, one]] : [];
    });
    const most = Math.max(1, ...rows.map(([, one]) => timeParts(one).reduce((sum, part) => sum + part.value, 0)));
    return (
        <>
            <Legend parts={timeParts({}).map(({ name, kind, value }) => ({ name, kind, value }))} />
            <Table
                caption={`Functions of ${list.namespace}, last ${list.window_s / 60} minutes`}
                rows={rows}
                rowKey={([name]) => name}
                empty={<>No functions in namespace {list.namespace} yet: <code>nigh init NAME</code>, then <code>nigh deploy</code>.</>}
                columns={[
                    { name: "Function", cell: ([name, one]) => <><a href={href("function", [list.namespace, name])}>{name}</a>{one.running > 0 && <> <State kind="busy">{one.running}</State></>}</> },
                    { name: "Rate", numeric: true, cell: ([, one]) => rate((one.runs ?? 0) / list.window_s) },
                    { name: "p50", numeric: true, wide: true, cell: ([, one]) => (one.runs ? span(one.p50_us) : "–") },
                    { name: "p99", numeric: true, cell: ([, one]) => (one.runs ? span(one.p99_us) : "–") },
                    {
                        name: "Time of all runs",
                        cell: ([, one]) => {
                            const parts = timeParts(one);
                            const all = parts.reduce((sum, part) => sum + part.value, 0);
                            return one.runs ? (
                                <span class="time-cell">
                                    <Bar whole={most} parts={parts} label={parts.map((part) => `${part.name} ${percent(part.value, all)}`).join(", ")} />
                                    <small>{span(all)}</small>
                                </span>
                            ) : "–";
                        },
                    },
                    { name: "Cold", numeric: true, wide: true, cell: ([, one]) => percent(one.cold ?? 0, one.runs ?? 0) },
                    { name: "From memory", numeric: true, wide: true, hint: "Reads served from memory", cell: ([, one]) => percent(one.hits ?? 0, (one.hits ?? 0) + (one.misses ?? 0)) },
                    { name: "Peak, granted, booked", wide: true, cell: ([, one]) => (one.runs ? <RunMemory used={one.peak} limit={one.granted} booked={one.memory} predicted={one.predicted} /> : bytes(one.memory)) },
                    { name: "Off by", numeric: true, wide: true, hint: "Mean error of the predicted memory", cell: ([, one]) => (one.prediction_error === undefined ? "–" : `${(one.prediction_error * 100).toFixed(0)} %`) },
                    { name: "Ways", numeric: true, wide: true, hint: "Ways of the last-level cache that it needs, over the profiled inputs", cell: ([, one]) => waysNeed(one) },
                    { name: "Errors", numeric: true, cell: ([, one]) => (one.errors ? <State kind="bad">{count(one.errors)}</State> : one.runs ? "0" : "–") },
                ]}
            />
            <p class="note">
                {count(rows.length)} of {count(list.total)} functions, figures of this node.{" "}
                {list.next ? <a href={href("functions", [], { sort: "name", after: list.next })}>More by name</a>
                    : sort !== "name" && rows.length < list.total && <a href={href("functions", [], { sort: "name" })}>All by name</a>}
            </p>
        </>
    );
}
