// What the views are made of.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ApiError } from "./api";
import { age } from "./format";
import { type Params, again, connection, cutSince, keyOf, live, nodeTime, trouble, watch, watching } from "./live";

export function Title({ text, children }: { text: string; children?: ComponentChildren }) {
    useEffect(() => {
        document.title = `${text} · Nigh`;
    }, [text]);
    return (
        <header class="title">
            <h1 tabIndex={-1} id="title">{text}</h1>
            {children}
        </header>
    );
}

export function Section({ name, note, children }: { name: string; note?: ComponentChildren; children: ComponentChildren }) {
    return (
        <section class="section">
            <h2>
                {name} {note !== undefined && <small>{note}</small>}
            </h2>
            {children}
        </section>
    );
}

/** Nothing is there, and that is fine. */
export function Empty({ children }: { children: ComponentChildren }) {
    return <p class="empty">{children}</p>;
}

export function Failure({ text, retry }: { text: string; retry?: () => void }) {
    return (
        <div class="failure" role="alert">
            <strong>Not shown.</strong> {text}
            {retry && <button type="button" onClick={retry}>Try again</button>}
        </div>
    );
}

export function Loading() {
    return (
        <p class="loading" role="status">
            <span class="pulse" aria-hidden="true" /> Asking the node…
        </p>
    );
}

/** The watched view: loading, refused, or shown, marked as old while the connection is cut. */
export function Live<T>({ view, params = {}, children }: { view: string; params?: Params; children: (document: T) => ComponentChildren }) {
    const key = keyOf(view, params);
    useEffect(() => watch(view, params), [key]);
    // Until the effect has run, what is there is of the view before.
    if (watching.value !== key) return <Loading />;
    const document = live.value?.of === key ? (live.value.document as T) : null;
    if (connection.value === "failed") return <Failure text={trouble.value ?? "the node refused"} retry={again} />;
    if (document === null) {
        return trouble.value ? <Failure text={trouble.value} retry={again} /> : <Loading />;
    }
    const old = connection.value === "cut";
    return (
        <>
            {old && (
                <p class="cut" role="status">
                    <strong>Cut off</strong> for <CutFor />: what is below is old
                    {trouble.value ? ` (${trouble.value})` : ""}. <button type="button" onClick={again}>Try now</button>
                </p>
            )}
            {!old && trouble.value && <p class="cut" role="status"><strong>Old figures.</strong> {trouble.value}</p>}
            <div class={old ? "old" : undefined}>{children(document)}</div>
        </>
    );
}

/** Draws the component again each second. */
function useEachSecond() {
    const [, tick] = useState(0);
    useEffect(() => {
        const timer = window.setInterval(() => tick((n) => n + 1), 1000);
        return () => window.clearInterval(timer);
    }, []);
}

/** The time since a date of the node, which grows. */
export function Since({ from }: { from: number }) {
    useEachSecond();
    return <>{age(nodeTime() - from)}</>;
}

/** How long the connection has been cut. */
export function CutFor() {
    useEachSecond();
    return <>{cutSince.value === null ? age(0) : age(performance.now() - cutSince.value)}</>;
}

export interface Column<T> {
    name: string;
    /** Said of the column where its name is not enough. */
    hint?: string;
    numeric?: boolean;
    /** Left out on narrow screens. */
    wide?: boolean;
    cell: (row: T) => ComponentChildren;
}

export function Table<T>({
    caption,
    columns,
    rows,
    rowKey,
    empty = "Nothing here.",
    onRow,
    selected,
}: {
    caption: string;
    columns: Column<T>[];
    rows: T[];
    rowKey: (row: T) => string;
    empty?: ComponentChildren;
    onRow?: (row: T) => void;
    selected?: (row: T) => boolean;
}) {
    if (rows.length === 0) return <Empty>{empty}</Empty>;
    const kind = (column: Column<T>) => [column.numeric && "number", column.wide && "wide"].filter(Boolean).join(" ") || undefined;
    return (
        <div class="scroll" tabIndex={0} role="region" aria-label={caption}>
            <table>
                <caption class="hidden">{caption}</caption>
                <thead>
                    <tr>
                        {columns.map((column) => (
                            <th key={column.name} scope="col" class={kind(column)} title={column.hint}>{column.name}</th>
                        ))}
                    </tr>
                </thead>
                <tbody>
                    {rows.map((row) => (
                        <tr
                            key={rowKey(row)}
                            class={selected?.(row) ? "selected" : undefined}
                            onClick={onRow && (() => onRow(row))}
                        >
                            {columns.map((column) => (
                                <td key={column.name} class={kind(column)}>{column.cell(row)}</td>
                            ))}
                        </tr>
                    ))}
                </tbody>
            </table>
        </div>
    );
}

/** A picture, and the same as a table below it. */
export function Pictured({ table, children }: { table: ComponentChildren; children: ComponentChildren }) {
    const [shown, show] = useState(false);
    return (
        <div class="pictured">
            {children}
            <details onToggle={(event) => show((event.currentTarget as HTMLDetailsElement).open)}>
                <summary>As a table</summary>
                {shown && table}
            </details>
        </div>
    );
}

export interface Part {
    name: string;
    value: number;
    /** The class that colours it: see `.part-*` in page.css. */
    kind: string;
    text?: string;
}

/** Parts of a whole as one bar. */
export function Bar({ parts, whole, label, tall }: { parts: Part[]; whole?: number; label: string; tall?: boolean }) {
    const sum = whole ?? parts.reduce((total, part) => total + part.value, 0);
    let at = 0;
    return (
        <svg class={tall ? "bar tall" : "bar"} viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={label}>
            <rect class="track" x="0" y="0" width="1000" height="10" />
            {sum > 0 && parts.map((part) => {
                const width = Math.max(0, Math.min(1000 - at, (1000 * part.value) / sum));
                const x = at;
                at += width;
                return width > 0.2 && (
                    <rect key={part.name} class={`part-${part.kind}`} x={x} y="0" width={width} height="10">
                        <title>{`${part.name}: ${part.text ?? part.value}`}</title>
                    </rect>
                );
            })}
        </svg>
    );
}

export function Legend({ parts }: { parts: Part[] }) {
    return (
        <ul class="legend">
            {parts.map((part) => (
                <li key={part.name}>
                    <svg class="swatch" viewBox="0 0 10 10" aria-hidden="true"><rect class={`part-${part.kind}`} width="10" height="10" /></svg>
                    {part.name} {part.text !== undefined && <b>{part.text}</b>}
                </li>
            ))}
        </ul>
    );
}

export function Facts({ rows }: { rows: [string, ComponentChildren][] }) {
    return (
        <dl class="facts">
            {rows.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false).map(([name, value]) => (
                <div key={name}>
                    <dt>{name}</dt>
                    <dd>{value}</dd>
                </div>
            ))}
        </dl>
    );
}

/** A word with a mark, so that it does not depend on colour. */
export function State({ kind, children }: { kind: "good" | "bad" | "warn" | "idle" | "busy"; children: ComponentChildren }) {
    const mark = { good: "✓", bad: "✕", warn: "!", idle: "–", busy: "▸" }[kind];
    return <span class={`state ${kind}`}><span aria-hidden="true">{mark}</span> {children}</span>;
}

/** A button for something that the admin API does; says what went wrong beside it. */
export function Action({
    label,
    run,
    confirm,
    danger,
    disabled,
    done,
}: {
    label: string;
    run: () => Promise<unknown>;
    /** Asked before it is done. */
    confirm?: string;
    danger?: boolean;
    disabled?: boolean;
    done?: string;
}) {
    const [state, set] = useState<{ busy?: boolean; asks?: boolean; error?: string; done?: boolean }>({});
    const alive = useRef(true);
    useEffect(() => () => {
        alive.current = false;
    }, []);
    const act = async () => {
        set({ busy: true });
        try {
            await run();
            if (alive.current) set({ done: true });
        } catch (error) {
            if (alive.current) set({ error: error instanceof ApiError ? error.message : String(error) });
        }
    };
    if (state.asks) {
        return (
            <span class="asks">
                {confirm}{" "}
                <button type="button" class={danger ? "danger" : undefined} onClick={act}>{label}</button>{" "}
                <button type="button" onClick={() => set({})}>Cancel</button>
            </span>
        );
    }
    return (
        <span>
            <button
                type="button"
                class={danger ? "danger" : undefined}
                disabled={disabled || state.busy}
                onClick={() => (confirm ? set({ asks: true }) : void act())}
            >
                {state.busy ? `${label}…` : label}
            </button>
            {state.done && done && <span role="status"> {done}</span>}
            {state.error && <span class="error" role="alert"> {state.error}</span>}
        </span>
    );
}

/** What `load` brings: once, and again when `of` changes. */
export function useLoaded<T>(of: string, load: () => Promise<T>): { value?: T; error?: string; again: () => void } {
    const [state, set] = useState<{ of?: string; value?: T; error?: string }>({});
    const [round, next] = useState(0);
    useEffect(() => {
        let wanted = true;
        load().then(
            (value) => wanted && set({ of, value }),
            (error) => wanted && set({ of, error: error instanceof Error ? error.message : String(error) }),
        );
        return () => {
            wanted = false;
        };
    }, [of, round]);
    const current = state.of === of ? state : {};
    return { value: current.value, error: current.error, again: () => next((n) => n + 1) };
}
