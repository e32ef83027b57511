// Buckets, objects with the nodes that have copies, and one object with its users.

import { useRef, useState } from "preact/hooks";
import { mayOperate, request, segment, send, url } from "../api";
import { bytes, clock, count, percent, shortId, span, version } from "../format";
import { namespace } from "../namespace";
import { href, route } from "../route";
import type { CachedList, Copies, ListedObject, ObjectPage, ObjectsView as Document } from "../types";
import { Action, Empty, Facts, Failure, Live, Section, State, Table, Title, useLoaded } from "../ui";

export function ObjectsView() {
    const { parts, query } = route.value;
    const [bucket, ...rest] = parts;
    const [key, prefix, after] = [query.get("key") ?? undefined, rest.length ? `${rest.join("/")}/` : "", query.get("after") ?? undefined];
    const ns = namespace.value;
    if (query.has("largest")) return <Largest ns={ns} />;
    return (
        <>
            <Title text={key ?? (bucket ? `${bucket}/${prefix}` : "Objects")}>
                {bucket ? <Crumbs bucket={bucket} folders={rest} /> : <a href={href("objects", [], { largest: "true" })}>Largest in memory</a>}
            </Title>
            <Live<Document | ObjectPage> view="objects" params={{ namespace: ns, bucket, prefix: key ? undefined : prefix, key, after }}>
                {(document) =>
                    "key" in document ? <OneObject page={document} /> : document.buckets ? <Buckets {...document} /> : <Objects {...document} folders={document.folders ?? []} under={rest} />
                }
            </Live>
        </>
    );
}

function Crumbs({ bucket, folders }: { bucket: string; folders: string[] }) {
    return (
        <nav aria-label="Folders" class="crumbs">
            <a href={href("objects")}>Buckets</a>
            <a href={href("objects", [bucket])}>{bucket}</a>
            {folders.map((folder, at) => <a key={at} href={href("objects", [bucket, ...folders.slice(0, at + 1)])}>{folder}</a>)}
        </nav>
    );
}

function Buckets({ buckets = {}, namespace: ns }: Document) {
    return (
        <Table
            caption={`Buckets of ${ns}`}
            rows={Object.entries(buckets)}
            rowKey={([name]) => name}
            empty={<>No buckets in namespace {ns} yet: <code>nigh objects mb NAME</code>.</>}
            columns={[
                { name: "Bucket", cell: ([name]) => <a href={href("objects", [name])}>{name}</a> },
                { name: "Made", cell: ([, one]) => clock(one.created) },
            ]}
        />
    );
}

/** What fills this node's cache. */
function Largest({ ns }: { ns: string }) {
    return (
        <>
            <Title text="Largest objects in memory"><a href={href("objects")}>Buckets</a></Title>
            <Live<CachedList> view="cached" params={{ namespace: ns }}>
                {(list) => (
                    <>
                        <p class="note">{count(list.copies)} cached copies of all namespaces take {bytes(list.cached_bytes)} of {list.node}'s memory.</p>
                        {Object.entries(list.unanswered).map(([node, why]) => <p key={node} class="cut">Copies at {node} are unknown: {why}.</p>)}
                        <Table
                            caption="Largest objects in memory"
                            rows={list.objects}
                            rowKey={(one) => `${one.bucket}/${one.key}`}
                            empty={<>No object of namespace {list.namespace} is in this node's memory.</>}
                            columns={[
                                { name: "Object", cell: (one) => <a href={href("objects", [one.bucket, ...one.key.split("/").slice(0, -1)], { key: one.key })}>{one.bucket}/{one.key}</a> },
                                { name: "Takes here", numeric: true, cell: (one) => bytes(one.bytes) },
                                { name: "Share", numeric: true, wide: true, cell: (one) => percent(one.bytes, list.cached_bytes) },
                                { name: "Copies in memory", cell: (one) => <CopiesShown copies={one} /> },
                            ]}
                        />
                    </>
                )}
            </Live>
        </>
    );
}

function CopiesShown({ copies }: { copies: Copies }) {
    const nodes = Object.keys(copies.cached);
    const versions = new Set(Object.values(copies.cached).map((one) => version(one)));
    return (
        <span class="copies">
            {nodes.map((node) => (
                <span key={node} class={node === copies.home ? "copy home" : "copy"} title={`${node} has version ${version(copies.cached[node])}${node === copies.home ? " and is the home" : ""}`}>{node}</span>
            ))}
            {nodes.length === 0 && <span class="dim">store only</span>}
            {versions.size > 1 && <State kind="warn">{versions.size} versions</State>}
            {copies.pending.length > 0 && <State kind="busy">invalidating {copies.pending.length}</State>}
        </span>
    );
}

function Unpushed({ unpushed }: { unpushed?: ListedObject["unpushed"] }) {
    if (!unpushed) return <span class="dim">in the store</span>;
    if (unpushed.damaged) return <State kind="bad">damaged</State>;
    return unpushed.failures ? <State kind="warn">{unpushed.mode}, failed {unpushed.failures}×</State> : <State kind="busy">{unpushed.mode}, not pushed</State>;
}

function Objects({ namespace: ns, bucket = "", prefix = "", folders = [], objects = {}, next, unanswered = {}, under }: Document & { under: string[] }) {
    type Row = { name: string; folder?: string[]; object?: ListedObject };
    const rows: Row[] = [
        ...folders.map((folder) => ({ name: folder.slice(prefix.length), folder: folder.split("/").filter(Boolean) })),
        ...Object.entries(objects).map(([key, object]) => ({ name: key.slice(prefix.length), object })),
    ];
    return (
        <>
            <Upload ns={ns} bucket={bucket} prefix={prefix} />
            {Object.entries(unanswered).map(([node, why]) => <p key={node} class="cut">Copies at {node} are unknown: {why}.</p>)}
            <Table
                caption={`Objects of ${bucket}`}
                rows={rows}
                rowKey={(row) => row.name}
                empty="Nothing is stored here."
                columns={[
                    { name: "Name", cell: (row) => row.folder ? <a href={href("objects", [bucket, ...row.folder])}>{row.name}</a> : <a href={href("objects", [bucket, ...under], { key: prefix + row.name })}>{row.name}</a> },
                    { name: "Size", numeric: true, cell: (row) => (row.object ? bytes(row.object.size) : "") },
                    { name: "Copies in memory", cell: (row) => row.object && <CopiesShown copies={row.object} /> },
                    { name: "Store", cell: (row) => row.object && <Unpushed unpushed={row.object.unpushed} /> },
                    { name: "Written", wide: true, cell: (row) => row.object && clock(row.object.modified) },
                ]}
            />
            {next && <p><a href={href("objects", [bucket, ...under], { after: next })}>Next page</a></p>}
        </>
    );
}

function Upload({ ns, bucket, prefix }: { ns: string; bucket: string; prefix: string }) {
    const file = useRef<HTMLInputElement>(null);
    const [name, setName] = useState("");
    if (!mayOperate()) return null;
    const run = async () => {
        const chosen = file.current?.files?.[0];
        if (!chosen) throw new Error("choose a file first");
        await send("PUT", `/objects/${segment(ns)}/${segment(bucket)}`, { key: prefix + (name || chosen.name) }, chosen);
    };
    return (
        <details class="upload">
            <summary>Upload</summary>
            <p>
                <input type="file" aria-label="File" ref={file} onChange={(event) => setName(event.currentTarget.files?.[0]?.name ?? "")} />{" "}
                <label>as {prefix}<input aria-label="Name" value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>{" "}
                <Action label="Upload" run={run} done="Stored; the list follows within seconds." />
            </p>
        </details>
    );
}

function OneObject({ page }: { page: ObjectPage }) {
    const users = Object.entries(page.users).sort(([, a], [, b]) => b.ended - a.ended);
    const writer = users.find(([, user]) => user.served === "write");
    return (
        <>
            <Facts
                rows={[
                    ["size", bytes(page.size)],
                    ["version", version(page.version)],
                    ["written", clock(page.modified)],
                    ["by", writer ? <><a href={href("function", [page.namespace, writer[1].function])}>{writer[1].function}</a>, <a href={href("invocation", [writer[0]])}>{shortId(writer[0])}</a></> : "none of the last invocations"],
                    ["type", page.content_type ?? "unknown"],
                    ["copies in memory", <CopiesShown copies={page} />],
                    ["home", page.home ?? "not known here"],
                    ["store", <Unpushed unpushed={page.unpushed} />],
                    ["entity tag", <code>{page.etag}</code>],
                    ["parts", page.parts ? String(page.parts) : ""],
                    ["tags", Object.entries(page.tags).map(([name, value]) => `${name}=${value}`).join(", ")],
                    ["metadata", Object.entries(page.user).map(([name, value]) => `${name}=${value}`).join(", ")],
                ]}
            />
            <p><a href={url(`/objects/${segment(page.namespace)}/${segment(page.bucket)}`, { key: page.key })} download={page.key.split("/").at(-1)}>Download</a></p>
            {Object.entries(page.unanswered).map(([node, why]) => <p key={node} class="cut">Copies and users at {node} are unknown: {why}.</p>)}
            <Section name="Who used it" note="last records of all nodes">
                <Table
                    caption="Users"
                    rows={users}
                    rowKey={([id]) => id}
                    empty="No invocation in the last records has used it."
                    columns={[
                        { name: "Function", cell: ([, user]) => <a href={href("function", [page.namespace, user.function])}>{user.function}</a> },
                        { name: "How", cell: ([, user]) => user.served },
                        { name: "Bytes", numeric: true, cell: ([, user]) => bytes(user.bytes) },
                        { name: "Took", numeric: true, cell: ([, user]) => span(user.took_us) },
                        { name: "Ended", cell: ([id, user]) => <a href={href("invocation", [id])}>{clock(user.ended)}</a> },
                    ]}
                />
            </Section>
            <Preview page={page} />
        </>
    );
}

const PREVIEW_BYTES = 64 * 1024;
const PICTURES: Record<string, string> = { png: "image/png", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif", webp: "image/webp" };
const PICTURE_BYTES_MAX = 4 << 20;

async function load(page: ObjectPage): Promise<{ picture?: string; text?: string }> {
    const type = PICTURES[page.key.split(".").at(-1)?.toLowerCase() ?? ""];
    const whole = type !== undefined && page.size <= PICTURE_BYTES_MAX;
    const path = `/objects/${segment(page.namespace)}/${segment(page.bucket)}`;
    const response = await request(path, { key: page.key, bytes: whole ? undefined : PREVIEW_BYTES });
    const buffer = await response.arrayBuffer();
    if (whole) {
        const reader = new FileReader();
        const read = new Promise<string>((resolve) => reader.addEventListener("load", () => resolve(String(reader.result))));
        reader.readAsDataURL(new Blob([buffer], { type }));
        return { picture: await read };
    }
    const text = new TextDecoder("utf-8").decode(buffer);
    const strange = [...text.slice(0, 2000)].filter((letter) => letter === "\ufffd" || letter < "\t").length;
    return { text: strange > 20 ? hex(new Uint8Array(buffer.slice(0, 1024))) : text };
}

function hex(data: Uint8Array): string {
    const lines: string[] = [];
    for (let at = 0; at < data.length; at += 16) {
        const row = [...data.slice(at, at + 16)];
        const text = row.map((byte) => (byte > 31 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
        lines.push(`${at.toString(16).padStart(6, "0")}  ${row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ").padEnd(48)} ${text}`);
    }
    return lines.join("\n");
}

function Preview({ page }: { page: ObjectPage }) {
    const { value, error, again } = useLoaded(`${page.bucket}/${page.key} ${version(page.version)}`, () => load(page));
    return (
        <Section name="Preview" note={page.size > PREVIEW_BYTES && value?.text !== undefined ? `first of ${bytes(page.size)}` : undefined}>
            {error && <Failure text={error} retry={again} />}
            {value?.picture && <img class="preview" src={value.picture} alt={`Preview of ${page.key}`} />}
            {value?.text !== undefined && (value.text ? <pre tabIndex={0} class="log">{value.text}</pre> : <Empty>It is empty.</Empty>)}
        </Section>
    );
}
