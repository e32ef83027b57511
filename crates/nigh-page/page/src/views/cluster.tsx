// The members of the cluster, how each stands to work, and what an operator does with them.

import { useRef } from "preact/hooks";
import { mayOperate, segment, send } from "../api";
import { age, bytes, clock, count } from "../format";
import type { ClusterStatus, ClusterTable, Level, Member, MemberRow } from "../types";
import { Action, Bar, Facts, Live, Section, State, Table, Title } from "../ui";

interface Page {
    node: string;
    version: string;
    uptime_s: number;
    draining?: { invocations: number; left_s: number };
    levels: Level[];
    cluster?: ClusterStatus;
    members: Record<string, Member>;
    table?: ClusterTable;
    table_missing?: string;
}

/** A member by its figures, and by its row in the cluster's table. */
interface Joined {
    name: string;
    figures: Member;
    row?: MemberRow;
}

export function joined(members: Record<string, Member>, table?: ClusterTable): Joined[] {
    const rows = new Map((table?.members ?? []).map((row) => [row.node, row]));
    const names = [...new Set([...Object.keys(members), ...rows.keys()])].sort();
    return names.map((name) => ({ name, figures: members[name] ?? {}, row: rows.get(name) }));
}

export function ClusterView() {
    return (
        <>
            <Title text="Cluster" />
            <Live<Page> view="cluster">{(page) => <Members {...page} />}</Live>
        </>
    );
}

function act(name: string, action: string) {
    return () => send("POST", `/cluster/nodes/${segment(name)}/${action}`);
}

function counted(number: number, one: string): string {
    return `${count(number)} ${one}${number === 1 ? "" : "s"}`;
}

/** How a member stands to work, and what keeps it from it. */
function StateShown({ member: { figures, row }, began }: { member: Joined; began: number }) {
    const trouble = row?.trouble ?? figures.unanswered ?? figures.trouble;
    return (
        <>
            <Standing figures={figures} row={row} began={began} />
            {trouble && <> <State kind="bad">{trouble}</State></>}
        </>
    );
}

function Standing({ figures, row, began }: { figures: Member; row?: MemberRow; began: number }) {
    switch (row?.state) {
        case "available":
            return figures.draining ? <State kind="warn">ending</State> : <State kind="good">available</State>;
        case "cordoned":
            return <State kind="warn">cordoned</State>;
        case "draining": {
            const left = `${counted(row.homes, "home")}, ${row.invocations == null ? "invocations not known" : counted(row.invocations, "invocation")} left`;
            const moved = Math.max(0, began - row.homes);
            return (
                <>
                    <State kind="busy">draining: {left}</State>
                    {began > 0 && <Bar label={`${moved} of ${began} homes moved`} parts={[{ name: "moved", kind: "used", value: moved }, { name: "left", kind: "free", value: row.homes }]} />}
                </>
            );
        }
        case "drained":
            return <State kind="idle">drained</State>;
        default:
            return figures.draining ? <State kind="warn">ending</State> : <State kind="idle">not known</State>;
    }
}

function Operate({ member: { name, row } }: { member: Joined }) {
    const works = row === undefined || row.state === "available";
    const drains = row?.state === "draining" || row?.state === "drained";
    return (
        <span class="actions">
            {works && <Action key="cordon" label="Cordon" run={act(name, "cordon")} confirm={`Send ${name} no new invocations and homes?`} done="Asked." />}
            {(!works || row === undefined) && <Action key="uncordon" label={row?.state === "draining" ? "Cancel" : "Uncordon"} run={act(name, "uncordon")} done="Asked." />}
            {!drains && <Action key="drain" label="Drain" danger run={act(name, "drain")} confirm={`Also move all homes off ${name}?`} done="Asked." />}
        </span>
    );
}

function Members({ node, cluster, members, table, table_missing, levels, version, uptime_s }: Page) {
    const rows = joined(members, table);
    const versions = new Set(rows.flatMap(({ figures, row }) => figures.version ?? row?.version ?? []));
    const homes = cluster?.homes;
    // The most homes that each draining node had while this was watched: what its progress is measured by.
    const most = useRef<Record<string, number>>({});
    most.current = Object.fromEntries(rows.flatMap(({ name, row }) => (row?.state === "draining" ? [[name, Math.max(row.homes, most.current[name] ?? 0)]] : [])));
    return (
        <>
            <Facts
                rows={[
                    ["this node", `${node}, ${version}, up ${age(uptime_s * 1000)}`],
                    ["cluster", cluster ? `${cluster.name}, ${cluster.coherence}` : "none: this node is alone"],
                    ["NATS servers", cluster?.servers && (cluster.servers.silent_since
                        ? <State kind="bad">silent since {clock(cluster.servers.silent_since)}</State>
                        : <State kind="good">connected to {cluster.servers.connected ?? "none"} of {cluster.servers.configured}</State>)],
                    ["shards", homes && `${homes.own.length} of ${homes.shards} here`],
                    ["without a home", homes && homes.without.length > 0 && <State kind="bad">{homes.without.length} shards</State>],
                    ["versions", versions.size > 1 && <State kind="warn">{[...versions].sort().join(", ")}</State>],
                    ["format", table && String(table.format)],
                ]}
            />
            {table_missing && <p class="cut">States are not known: {table_missing}.</p>}
            {table?.next_format != null && <p class="note">All members can use format {table.next_format}: <code>nigh cluster finalize</code> raises it; then no older Nigh can join.</p>}
            {homes?.troubles.map((trouble) => <p key={trouble.shard} class="cut">Shard {trouble.shard}: {trouble.why}.</p>)}
            <Section name="Members">
                <Table
                    caption="Members"
                    rows={rows}
                    rowKey={({ name }) => name}
                    columns={[
                        { name: "Node", cell: ({ name }) => (name === node ? <b>{name}</b> : name) },
                        { name: "State", cell: (member) => (cluster ? <StateShown member={member} began={most.current[member.name] ?? 0} /> : <State kind="good">available</State>) },
                        { name: "Version", wide: true, cell: ({ figures, row }) => figures.version ?? row?.version ?? "–" },
                        { name: "Up", wide: true, numeric: true, cell: ({ figures }) => (figures.uptime_s === undefined ? "–" : age(figures.uptime_s * 1000)) },
                        { name: "Roles", wide: true, cell: ({ row }) => row?.roles.join(", ") ?? "–" },
                        { name: "Runs", numeric: true, hint: "Invocations that run, and that wait", cell: ({ figures }) => `${count(figures.running)}${figures.waiting ? ` + ${figures.waiting}` : ""}` },
                        { name: "Granted", numeric: true, wide: true, cell: ({ figures }) => (figures.bookable === undefined ? "–" : `${bytes(figures.granted)} of ${bytes(figures.bookable)}`) },
                        { name: "Copies", numeric: true, wide: true, cell: ({ figures }) => (figures.copies === undefined ? "–" : `${count(figures.copies)}, ${bytes(figures.cache_bytes)}`) },
                        { name: "Homes", numeric: true, hint: "Shards whose writes it orders", cell: ({ figures, row }) => count(row?.homes ?? figures.homes) },
                        { name: "Unpushed", numeric: true, wide: true, cell: ({ figures }) => (figures.unpushed === undefined ? "–" : figures.unpushed ? `${count(figures.unpushed)}, ${age(figures.unpushed_oldest_ms)}` : "0") },
                        ...(cluster && mayOperate() ? [{ name: "Operate", cell: (member: Joined) => <Operate member={member} /> }] : []),
                    ]}
                />
                {table?.absent.map((away) => (
                    <p key={away.node}>
                        <State kind="bad">{away.node} is away</State>, and {away.availability} since {clock(away.since)}: it takes no work when it comes back.{" "}
                        {mayOperate() && <Action label="Uncordon" run={act(away.node, "uncordon")} done="Asked." />}
                    </p>
                ))}
            </Section>
            <Section name="Features of this node">
                <Table
                    caption="Features"
                    rows={levels}
                    rowKey={(level) => level.name}
                    columns={[
                        { name: "Feature", cell: (level) => level.name },
                        { name: "", cell: (level) => (level.on ? <State kind="good">on</State> : <State kind="idle">off</State>) },
                        { name: "How, or why not", cell: (level) => level.detail },
                    ]}
                />
            </Section>
        </>
    );
}
