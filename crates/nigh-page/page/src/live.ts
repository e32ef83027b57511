// One view kept up to date by one stream of server-sent events. A tab has one stream: watching another view ends the one
// before, and a hidden tab has none.

import { signal } from "@preact/signals";
import { ApiError, get, url } from "./api";
import { apply, type Json } from "./patch";

/** loading: nothing came yet. live: up to date. cut: what is shown is old. failed: the node says that this cannot be shown. */
export type Connection = "loading" | "live" | "cut" | "failed";

export type Params = Record<string, string | number | boolean | undefined>;

export const connection = signal<Connection>("loading");
/** Since when nothing came, by `performance.now()`, if the connection is cut. */
export const cutSince = signal<number | null>(null);
/** Why there is nothing, or nothing new. */
export const trouble = signal<string | null>(null);
/** The last document, and the view and parameters that it is of. */
export const live = signal<{ of: string; document: Json } | null>(null);

export function keyOf(view: string, params: Params): string {
    return JSON.stringify([view, params]);
}

const RETRY_MS = 2000;
/** The node sends an empty message when a view has not changed for 15 s. */
const SILENT_MS = 45_000;
const LOOK_MS = 5000;
/** The date may gain or lose so much between two looks before the stream is opened again. */
const JUMP_MS = 10_000;

/** The view and parameters that are watched. */
export const watching = signal<string | null>(null);

let source: EventSource | null = null;
let watched: { key: string; view: string; params: Params } | null = null;
let retry: number | undefined;
/** When the last message came, by `performance.now()`: somebody may move the date of this machine. */
let heard = 0;
/** The node's time in the last message that had one, and when that came. */
let told: { time: number; at: number } | null = null;

/** The time by the node's clock, in milliseconds since 1970; by this machine's until the node has told its own. */
export function nodeTime(): number {
    return told ? told.time + performance.now() - told.at : Date.now();
}

function cut(why: string | null) {
    if (connection.value !== "cut") cutSince.value = performance.now();
    connection.value = live.value === null ? "loading" : "cut";
    if (why) trouble.value = why;
}

function close() {
    source?.close();
    source = null;
    window.clearTimeout(retry);
}

function open() {
    close();
    if (!watched || document.hidden) return;
    const { key, view, params } = watched;
    const stream = new EventSource(url("/live", { view, ...params }));
    source = stream;
    stream.onmessage = (event) => {
        if (source !== stream) return;
        const message = JSON.parse(event.data) as { snapshot?: Json; patch?: Json; trouble?: string | null; time?: number };
        heard = performance.now();
        if (message.time !== undefined) told = { time: message.time, at: heard };
        if (message.snapshot !== undefined) live.value = { of: key, document: message.snapshot };
        if (message.patch !== undefined) live.value = { of: key, document: apply(live.value?.document, message.patch) };
        if (message.trouble !== undefined) trouble.value = message.trouble;
        connection.value = "live";
        cutSince.value = null;
    };
    stream.onerror = () => {
        if (source !== stream) return;
        if (stream.readyState === EventSource.CLOSED) void refused();
        else cut("the node does not answer; the page tries again");
    };
}

/** The browser gave up on the stream because of the node's answer: asks for the reason, as streams do not tell it. */
async function refused() {
    const current = watched;
    close();
    if (!current) return;
    try {
        const document = await get<Json>(`/views/${current.view}`, current.params);
        if (watched !== current) return;
        live.value = { of: current.key, document };
        cut("the node has no place for another live view; close one, the page tries again");
    } catch (error) {
        if (watched !== current) return;
        const { status, message } = error instanceof ApiError ? error : new ApiError(0, String(error));
        if (status >= 400 && status < 500 && status !== 429) {
            connection.value = "failed";
            trouble.value = message;
            return;
        }
        cut(message);
    }
    retry = window.setTimeout(open, RETRY_MS);
}

/** Watches a view from now on; the same view with the same parameters goes on. */
export function watch(view: string, params: Params = {}): void {
    const key = keyOf(view, params);
    if (watched?.key === key) return;
    watched = { key, view, params };
    watching.value = key;
    live.value = null;
    trouble.value = null;
    cutSince.value = null;
    connection.value = "loading";
    open();
}

/** Watches nothing. */
export function unwatch(): void {
    watched = null;
    watching.value = null;
    close();
}

/** Tries again at once. */
export function again(): void {
    if (connection.value === "failed") connection.value = "loading";
    open();
}

document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (watched && connection.value !== "failed") open();
});
window.addEventListener("pagehide", close);
let looked = { date: Date.now(), at: performance.now() };
window.setInterval(() => {
    const now = { date: Date.now(), at: performance.now() };
    // The date was moved, or the machine slept, which performance.now() does not count: the stream may be dead.
    const jumped = Math.abs(now.date - looked.date - (now.at - looked.at)) > JUMP_MS;
    looked = now;
    if (!source || connection.value !== "live") return;
    const silent = now.at - heard > SILENT_MS;
    if (silent) cut("the node has sent nothing for a while");
    if (silent || jumped) open();
}, LOOK_MS);
