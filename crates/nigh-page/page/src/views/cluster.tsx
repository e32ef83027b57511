// The members of the cluster, and what an operator does with them.

import { mayOperate, segment, send } from "../api";
import { age, bytes, clock, count } from "../format";
import type { ClusterStatus, Level, Member } from "../types";
import { Action, Facts, Live, Section, State, Table, Title } from "../ui";

interface Page {
    node: string;
    version: string;
    uptime_s: number;
    draining?: { invocations: number; left_s: number };
    levels: Level[];
    cluster?: ClusterStatus;
    members: Record<string, Member>;
}

export function ClusterView() {
    return (
        <>
            <Title text="Cluster" />
            <Live<Page> view="cluster">{(page) => <Members {...page} />}</Live>
        </>
    );
}

function Members({ node, cluster, members, levels, version, uptime_s }: Page) {
    const versions = new Set(Object.values(members).flatMap((one) => (one.version ? [one.version] : [])));
    const roles = new Map((cluster?.members ?? []).map((one) => [one.node, one]));
    const act = (name: string, action: string) => () => send("POST", `/cluster/nodes/${segment(name)}/${action}`);
    const homes = cluster?.homes;
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
                ]}
            />
            {homes?.troubles.map((trouble) => <p key={trouble.shard} class="cut">Shard {trouble.shard}: {trouble.why}.</p>)}
            <Section name="Members">
                <Table
                    caption="Members"
                    rows={Object.entries(members)}
                    rowKey={([name]) => name}
                    columns={[
                        { name: "Node", cell: ([name]) => (name === node ? <b>{name}</b> : name) },
                        {
                            name: "State",
                            cell: ([, one]) => one.unanswered ? <State kind="bad">{one.unanswered}</State> : one.draining ? <State kind="warn">draining</State> : <State kind="good">serves</State>,
                        },
                        { name: "Version", wide: true, cell: ([, one]) => one.version ?? "–" },
                        { name: "Up", wide: true, numeric: true, cell: ([, one]) => (one.uptime_s === undefined ? "–" : age(one.uptime_s * 1000)) },
                        { name: "Roles", wide: true, cell: ([name]) => roles.get(name)?.roles.join(", ") ?? "–" },
                        { name: "Runs", numeric: true, cell: ([, one]) => `${count(one.running)}${one.waiting ? ` + ${one.waiting}` : ""}` },
                        { name: "Granted", numeric: true, cell: ([, one]) => (one.unanswered ? "–" : `${bytes(one.granted)} of ${bytes(one.bookable)}`) },
                        { name: "Copies", numeric: true, cell: ([, one]) => (one.unanswered ? "–" : `${count(one.copies)}, ${bytes(one.cache_bytes)}`) },
                        { name: "Homes", numeric: true, cell: ([, one]) => count(one.homes) },
                        { name: "Unpushed", numeric: true, wide: true, cell: ([, one]) => (one.unanswered ? "–" : one.unpushed ? `${count(one.unpushed)}, ${age(one.unpushed_oldest_ms)}` : "0") },
                        ...(cluster && mayOperate()
                            ? [{
                                name: "Operate",
                                cell: ([name]: [string, Member]) => (
                                    <span class="actions">
                                        <Action label="Cordon" run={act(name, "cordon")} confirm={`${name} takes no new work?`} done="Cordoned." />
                                        <Action label="Uncordon" run={act(name, "uncordon")} done="Takes work." />
                                        <Action label="Drain" danger run={act(name, "drain")} confirm={`Move everything off ${name}?`} done="Draining." />
                                    </span>
                                ),
                            }]
                            : []),
                    ]}
                />
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
