// The admin API of the node that serves this page.

import { signal } from "@preact/signals";

export class ApiError extends Error {
    constructor(
        readonly status: number,
        message: string,
    ) {
        super(message);
    }
}

export interface Session {
    role: "view" | "operate";
    access_key?: string | null;
    expires_in_s?: number | null;
}

/** Who is signed in: undefined until that is known, null if nobody is. */
export const session = signal<Session | null | undefined>(undefined);

export const mayOperate = () => session.value?.role === "operate";

type Query = Record<string, string | number | boolean | undefined | null>;

export function url(path: string, query: Query = {}): string {
    const parts = Object.entries(query)
        .filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false)
        .map(([name, value]) => `${name}=${encodeURIComponent(String(value))}`);
    return `/v1${path}${parts.length ? `?${parts.join("&")}` : ""}`;
}

/** One segment of a path. */
export const segment = encodeURIComponent;

export async function request(path: string, query: Query = {}, init: RequestInit = {}): Promise<Response> {
    let response: Response;
    try {
        response = await fetch(url(path, query), { credentials: "same-origin", cache: "no-store", ...init });
    } catch {
        throw new ApiError(0, "the node does not answer");
    }
    if (response.ok) return response;
    if (response.status === 401) session.value = null;
    const words = (await response.text().catch(() => "")).slice(0, 500).trim();
    throw new ApiError(response.status, words || `the node answered ${response.status} ${response.statusText}`);
}

export async function get<T>(path: string, query: Query = {}): Promise<T> {
    return (await request(path, query)).json() as Promise<T>;
}

/** Sends `body`; JSON unless it is text or a file. Returns the answer, if there is one. */
export async function send<T>(method: string, path: string, query: Query = {}, body?: unknown): Promise<T | undefined> {
    const init: RequestInit = { method };
    if (body instanceof Blob) {
        init.body = body;
        init.headers = { "content-type": body.type || "application/octet-stream" };
    } else if (body !== undefined) {
        init.body = typeof body === "string" ? body : JSON.stringify(body);
        init.headers = { "content-type": "application/json" };
    }
    const response = await request(path, query, init);
    const text = await response.text();
    return text ? (JSON.parse(text) as T) : undefined;
}

export async function whoAmI(): Promise<void> {
    try {
        session.value = await get<Session>("/session");
    } catch (error) {
        if (error instanceof ApiError && error.status === 401) session.value = null;
        else throw error;
    }
}

/** Signs in with an access key; the browser keeps a cookie that scripts cannot read. */
export async function signIn(key: string, secret: string): Promise<void> {
    const credentials = new TextEncoder().encode(`${key}:${secret}`);
    const basic = btoa(String.fromCharCode(...credentials));
    const response = await request("/session", {}, { method: "POST", headers: { authorization: `Basic ${basic}` } });
    session.value = (await response.json()) as Session;
}

export async function signOut(): Promise<void> {
    await request("/session", {}, { method: "DELETE" }).catch(() => undefined);
    session.value = null;
}
