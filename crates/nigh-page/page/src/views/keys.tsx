// Clients' keys: made, disabled, rotated and removed. A secret is shown once, when it is made.

import { useEffect, useState } from "preact/hooks";
import { get, mayOperate, segment, send } from "../api";
import { clock } from "../format";
import { unwatch } from "../live";
import { namespace, namespaces } from "../namespace";
import { Action, Failure, Loading, Section, State, Table, Title, useLoaded } from "../ui";

interface Key {
    id: string;
    name?: string | null;
    description: string;
    namespace: string;
    state: "active" | "disabled" | "expired";
    from_settings: boolean;
    scope: { read_only?: boolean; buckets?: string[]; functions?: string[] };
    role?: string | null;
    created?: string | null;
    expires?: string | null;
    last_used?: string | null;
    replaced_by?: string | null;
}

/** What a created key's answer has: the key, and its secret once. */
interface Created {
    key: Key;
    secret: string;
}

const OVERLAP_S = 24 * 3600;

export function KeysView() {
    useEffect(unwatch, []);
    const { value, error, again } = useLoaded("keys", () => get<Key[]>("/keys"));
    const [created, show] = useState<Created | undefined>();
    const made = (answer: Created | undefined) => {
        show(answer);
        again();
    };
    return (
        <>
            <Title text="Keys">
                <button type="button" onClick={again}>Load again</button>
            </Title>
            {created && <Secret created={created} close={() => show(undefined)} />}
            {error ? <Failure text={error} retry={again} /> : value ? <List keys={value} made={made} again={again} /> : <Loading />}
            {mayOperate() && value && <Create made={made} />}
        </>
    );
}

function Secret({ created: { key, secret }, close }: { created: Created; close: () => void }) {
    return (
        <div class="secret" role="status">
            <p><strong>Copy the secret now:</strong> it is not shown again.</p>
            <pre tabIndex={0}>{`export AWS_ACCESS_KEY_ID=${key.id}\nexport AWS_SECRET_ACCESS_KEY=${secret}`}</pre>
            <button type="button" onClick={close}>I have it</button>
        </div>
    );
}

function scope({ scope, namespace: ns }: Key): string {
    const parts = [
        scope.read_only && "reads only",
        scope.buckets?.length && `buckets ${scope.buckets.join(", ")}`,
        scope.functions?.length && `functions ${scope.functions.join(", ")}`,
    ].filter(Boolean);
    return parts.length ? parts.join("; ") : `all of ${ns}`;
}

function List({ keys, made, again }: { keys: Key[]; made: (created: Created | undefined) => void; again: () => void }) {
    const act = (key: Key, action: string) => async () => {
        await send("POST", `/keys/${segment(key.id)}/${action}`);
        again();
    };
    const rotate = (key: Key) => async () => made(await send<Created>("POST", `/keys/${segment(key.id)}/rotate`, { overlap_s: OVERLAP_S }));
    return (
        <Table
            caption="Keys"
            rows={keys}
            rowKey={(key) => key.id}
            empty="There are no keys."
            columns={[
                { name: "Key", cell: (key) => <><code>{key.id}</code>{key.name && <> {key.name}</>}{key.description && <small class="dim"> {key.description}</small>}</> },
                { name: "May", cell: scope },
                { name: "Admin", cell: (key) => key.role ?? "–" },
                {
                    name: "State",
                    cell: (key) => key.state === "active" ? <State kind={key.replaced_by ? "warn" : "good"}>{key.replaced_by ? "replaced" : "active"}</State> : <State kind="bad">{key.state}</State>,
                },
                { name: "Last used", cell: (key) => (key.last_used ? clock(key.last_used) : "–") },
                { name: "Expires", wide: true, cell: (key) => (key.expires ? clock(key.expires) : "never") },
                { name: "From", wide: true, cell: (key) => (key.from_settings ? "settings" : key.created ? clock(key.created) : "–") },
                ...(mayOperate()
                    ? [{
                        name: "Operate",
                        cell: (key: Key) => key.from_settings ? <span class="dim">by settings</span> : (
                            <span class="actions">
                                {key.state === "disabled" ? <Action label="Enable" run={act(key, "enable")} /> : <Action label="Disable" confirm={`Refuse ${key.name ?? key.id} at all nodes?`} run={act(key, "disable")} />}
                                <Action label="Rotate" confirm="Make its successor? This key works for another day." run={rotate(key)} />
                                <Action label="Remove" danger confirm={`Remove ${key.name ?? key.id} for good?`} run={act(key, "rm")} />
                            </span>
                        ),
                    }]
                    : []),
            ]}
        />
    );
}

const DAY_S = 24 * 3600;

function Create({ made }: { made: (created: Created | undefined) => void }) {
    const [name, setName] = useState("");
    const [description, setDescription] = useState("");
    const [of, setOf] = useState(namespace.value);
    const [readOnly, setReadOnly] = useState(false);
    const [buckets, setBuckets] = useState("");
    const [functions, setFunctions] = useState("");
    const [role, setRole] = useState("");
    const [days, setDays] = useState("90");
    const list = (text: string) => text.split(/[\s,]+/).filter(Boolean);
    const create = async () => {
        made(await send<Created>("POST", "/keys", {}, {
            name: name || null,
            description,
            namespace: of,
            read_only: readOnly,
            buckets: list(buckets),
            functions: list(functions),
            role: role || null,
            expires_s: Number(days) > 0 ? Math.round(Number(days) * DAY_S) : null,
        }));
        setName("");
    };
    return (
        <Section name="New key">
            <form class="form" onSubmit={(event) => event.preventDefault()}>
                <label>Name <input value={name} onInput={(event) => setName(event.currentTarget.value)} /></label>
                <label>For <input value={description} placeholder="what it is for" onInput={(event) => setDescription(event.currentTarget.value)} /></label>
                <label>Namespace <select value={of} onChange={(event) => setOf(event.currentTarget.value)}>{namespaces.value.map((one) => <option key={one}>{one}</option>)}</select></label>
                <label>Buckets <input value={buckets} placeholder="all" onInput={(event) => setBuckets(event.currentTarget.value)} /></label>
                <label>Functions <input value={functions} placeholder="all" onInput={(event) => setFunctions(event.currentTarget.value)} /></label>
                <label>Admin role <select value={role} onChange={(event) => setRole(event.currentTarget.value)}><option value="">none</option><option value="view">view</option><option value="operate">operate</option></select></label>
                <label>Days <input type="number" min="0" value={days} onInput={(event) => setDays(event.currentTarget.value)} /></label>
                <label><input type="checkbox" checked={readOnly} onChange={(event) => setReadOnly(event.currentTarget.checked)} /> reads only</label>
                <Action label="Create" run={create} />
            </form>
        </Section>
    );
}
