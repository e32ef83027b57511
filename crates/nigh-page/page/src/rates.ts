// Rates of counters: each look is compared with one some seconds before.

import { useRef } from "preact/hooks";

const LOOKS = 8;

/** How much each counter has grown a second, over the last looks; 0 until there are two. */
export function useRates(at: number, counters: Record<string, number>): Record<string, number> {
    const looks = useRef<{ at: number; counters: Record<string, number> }[]>([]);
    const last = looks.current.at(-1);
    // Times and counters that go back are those of a restarted node.
    if (last && (at < last.at || Object.keys(counters).some((name) => (counters[name] ?? 0) < (last.counters[name] ?? 0)))) {
        looks.current = [];
    }
    if (!last || at > last.at || looks.current.length === 0) {
        looks.current.push({ at, counters });
        if (looks.current.length > LOOKS) looks.current.shift();
    }
    const first = looks.current[0];
    const seconds = first ? (at - first.at) / 1000 : 0;
    const rates: Record<string, number> = {};
    for (const name of Object.keys(counters)) {
        rates[name] = first && seconds > 0 ? ((counters[name] ?? 0) - (first.counters[name] ?? 0)) / seconds : 0;
    }
    return rates;
}
