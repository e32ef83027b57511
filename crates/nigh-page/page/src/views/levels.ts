// What an ended invocation did at each level of the hierarchy, by its record.

import { bytes, count, span } from "../format";
import type { Explanation } from "../types";

export type LevelName = "cache" | "memory" | "fetched" | "written";

interface Calls {
    number: number;
    micros: number;
    bytes: number;
}

function words(did: string, calls: Calls): string | undefined {
    if (calls.number === 0) return undefined;
    return `${did} ${count(calls.number)}, ${span(calls.micros)}${calls.bytes ? `, ${bytes(calls.bytes)}` : ""}`;
}

/** Reads that were hits are memory's, all others were fetched from another node or the store. A level that it did not touch is left out. */
export function levelsOf({ steps, shares, activation }: Explanation): Partial<Record<LevelName, string>> {
    const sum = (is: (step: Explanation["steps"][number]) => boolean): Calls => {
        const found = steps.filter(is);
        return { number: found.length, micros: found.reduce((all, step) => all + step.took_us, 0), bytes: found.reduce((all, step) => all + step.bytes, 0) };
    };
    const isHit = (what: string) => what.startsWith("hit ");
    const computed = (activation.duration_us * shares.transform) / 100;
    return {
        cache: computed > 0 ? `computed for ${span(computed)}` : undefined,
        memory: words("reads served:", sum((step) => step.kind === "read" && isHit(step.what))),
        fetched: words("reads fetched from a node or the store:", sum((step) => step.kind === "read" && /^(miss|past) /.test(step.what))),
        written: words("writes:", sum((step) => step.kind === "write")),
    };
}
