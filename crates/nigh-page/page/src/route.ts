// The address of a view, after the #: `#/function/default/wordcount`. Every view has one, so links, Back and reload work.

import { signal } from "@preact/signals";

export interface Route {
    view: string;
    parts: string[];
    query: URLSearchParams;
}

function read(): Route {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
    const parts = path.split("/").filter(Boolean).map(decoded);
    return { view: parts.shift() ?? "hierarchy", parts, query: new URLSearchParams(query) };
}

function decoded(part: string): string {
    try {
        return decodeURIComponent(part);
    } catch {
        return part;
    }
}

export const route = signal<Route>(read());
window.addEventListener("hashchange", () => {
    route.value = read();
});

export function href(view: string, parts: string[] = [], query: Record<string, string | undefined> = {}): string {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
    const text = search.toString();
    return `#/${[view, ...parts].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(to: string): void {
    location.hash = to.replace(/^#/, "");
}
