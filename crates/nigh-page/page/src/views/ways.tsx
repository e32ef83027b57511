// The ways of the last-level cache: who may use each, and how loaded it is.

import { count } from "../format";
import type { Clos, Llc, Run } from "../types";
import { Empty, Pictured, Table } from "../ui";

const LETTERS = { default: "D", insensitive: "I", sensitive: "S", cluster: "C" };

function waysOf(mask: number, ways: number): number[] {
    return Array.from({ length: ways }, (_, way) => way).filter((way) => (mask >>> way) & 1);
}

/** Ways as text: 0–3, 8. */
export function waysText(mask: number, ways: number): string {
    const runs: [number, number][] = [];
    for (const way of waysOf(mask, ways)) {
        const last = runs.at(-1);
        if (last && last[1] === way - 1) last[1] = way;
        else runs.push([way, way]);
    }
    return runs.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`)).join(", ");
}

export function Ways({ llc, picked }: { llc: Llc; picked?: Run }) {
    const ways = llc.shape?.ways ?? 0;
    if (ways === 0) return <Empty>{llc.level.detail}</Empty>;
    const most = Math.max(1, ...llc.way_loads);
    const uses = new Map((llc.uses ?? []).map((use) => [`${use.namespace}/${use.function}`, use]));
    return (
        <Pictured
            table={
                <Table
                    caption="Classes of service"
                    rows={llc.classes}
                    rowKey={(one: Clos) => String(one.clos)}
                    columns={[
                        { name: "Class", cell: (one) => `${one.clos} ${one.kind}` },
                        { name: "Ways", cell: (one) => waysText(one.mask, ways) },
                        { name: "Running", numeric: true, cell: (one) => count(one.running) },
                        { name: "Load", numeric: true, cell: (one) => one.load.toFixed(2) },
                    ]}
                />
            }
        >
            <div class={llc.level.on ? "ways" : "ways planned"}>
                <span class="ways-name">load of each way</span>
                <svg viewBox={`0 0 ${ways * 10} 12`} preserveAspectRatio="none" role="img" aria-label="Load of each way">
                    {llc.way_loads.map((load, way) => {
                        const height = (11 * load) / most;
                        return (
                            <g key={way}>
                                <rect class="track" x={way * 10 + 0.6} y="0" width="8.8" height="12" />
                                <rect class="part-used" x={way * 10 + 0.6} y={12 - height} width="8.8" height={height}>
                                    <title>{`way ${way}: ${load.toFixed(2)}`}</title>
                                </rect>
                            </g>
                        );
                    })}
                </svg>
                <span class="ways-figure">most {most.toFixed(1)}</span>
                {llc.classes.map((one) => {
                    const mine = picked?.clos === one.clos;
                    return [
                        <span key={`n${one.clos}`} class={mine ? "ways-name mine" : "ways-name"}>
                            <b>{LETTERS[one.kind]}{one.clos}</b> {one.kind}
                        </span>,
                        <svg
                            key={`w${one.clos}`}
                            class={mine ? "mine" : undefined}
                            viewBox={`0 0 ${ways * 10} 12`}
                            preserveAspectRatio="none"
                            role="img"
                            aria-label={`class ${one.clos}, ${one.kind}: ways ${waysText(one.mask, ways)}`}
                        >
                            {Array.from({ length: ways }, (_, way) => (
                                <rect
                                    key={way}
                                    class={(one.mask >>> way) & 1 ? `way ${one.kind}${one.running ? " busy" : ""}` : "track"}
                                    x={way * 10 + 0.6}
                                    y="1"
                                    width="8.8"
                                    height="10"
                                />
                            ))}
                        </svg>,
                        <span key={`f${one.clos}`} class="ways-figure">{one.running ? `${one.running} run` : "–"}</span>,
                    ];
                })}
            </div>
            {!llc.level.on && <p class="note">Planned only: {llc.level.detail}.</p>}
            {picked && picked.clos === undefined && <p class="note">{picked.function} is in no class.</p>}
            {uses.size > 0 && (
                <p class="note">
                    Occupancy:{" "}
                    {[...uses.values()].slice(0, 8).map((use) =>
                        `${use.function} ${typeof use.occupancy_bytes === "number" ? `${(use.occupancy_bytes / 1048576).toFixed(1)} MiB` : use.occupancy_bytes}`,
                    ).join(", ")}
                </p>
            )}
        </Pictured>
    );
}
