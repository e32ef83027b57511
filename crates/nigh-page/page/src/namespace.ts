// The namespace whose functions, objects and events are shown; kept in this browser.

import { signal } from "@preact/signals";
import { get } from "./api";

const KEPT = "nigh-namespace";
export const namespaces = signal<string[]>([]);
export const namespace = signal("default");

export function choose(name: string) {
    namespace.value = name;
    try {
        localStorage.setItem(KEPT, name);
    } catch {
        // It lasts as long as the tab then.
    }
}

/** What can be chosen; the node's first namespace if it does not tell more. */
export async function loadNamespaces(): Promise<void> {
    const status = await get<{ endpoints: { namespace: string } }>("/status");
    let all = [status.endpoints.namespace];
    try {
        const listed = await get<unknown>("/namespaces");
        const rows = Array.isArray(listed) ? listed : Object.values((listed as { namespaces?: unknown[] }).namespaces ?? []);
        const names = rows.map((row) => (typeof row === "string" ? row : (row as { name?: string; namespace?: string }).name ?? (row as { namespace?: string }).namespace));
        all = [...new Set([...all, ...names.filter((name): name is string => typeof name === "string")])].sort();
    } catch {
        // A node of an earlier version has no such list.
    }
    namespaces.value = all;
    let kept: string | null = null;
    try {
        kept = localStorage.getItem(KEPT);
    } catch {
        // Nothing is kept in this browser.
    }
    namespace.value = kept && all.includes(kept) ? kept : status.endpoints.namespace;
}
