// The page: its frame, the way between views, sign-in, and keys of the keyboard.

import { type ComponentChildren, render } from "preact";
import { useEffect, useErrorBoundary, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./page.css";
import { ApiError, session, signIn, signOut, whoAmI } from "./api";
import { connection, unwatch } from "./live";
import { choose, loadNamespaces, namespace, namespaces } from "./namespace";
import { go, href, route } from "./route";
import { choice, nextTheme } from "./theme";
import { CutFor, Failure, Loading, Title } from "./ui";
import { ClusterView } from "./views/cluster";
import { EventsView } from "./views/events";
import { FunctionView } from "./views/function";
import { FunctionsView } from "./views/functions";
import { HierarchyView } from "./views/hierarchy";
import { InvocationView } from "./views/invocation";
import { KeysView } from "./views/keys";
import { ObjectsView } from "./views/objects";
import { WorkflowsView } from "./views/workflows";

const VIEWS: { view: string; name: string; key: string; of: string[]; show: () => ComponentChildren }[] = [
    { view: "hierarchy", name: "Hierarchy", key: "h", of: [], show: () => <HierarchyView /> },
    { view: "functions", name: "Functions", key: "f", of: ["function", "invocation"], show: () => <FunctionsView /> },
    { view: "objects", name: "Objects", key: "o", of: [], show: () => <ObjectsView /> },
    { view: "workflows", name: "Workflows", key: "w", of: [], show: () => <WorkflowsView /> },
    { view: "cluster", name: "Cluster", key: "c", of: [], show: () => <ClusterView /> },
    { view: "events", name: "Events", key: "e", of: [], show: () => <EventsView /> },
    { view: "keys", name: "Keys", key: "k", of: [], show: () => <KeysView /> },
];

function shown(view: string) {
    switch (view) {
        case "function":
            return <FunctionView />;
        case "invocation":
            return <InvocationView />;
        default:
            return VIEWS.find((one) => one.view === view)?.show() ?? <><Title text="Nothing here" /><Failure text={`There is no view “${view}”.`} /></>;
    }
}

function ConnectionShown() {
    switch (connection.value) {
        case "live":
            return <span class="state good"><span aria-hidden="true">●</span> live</span>;
        case "cut":
            return <span class="state bad"><span aria-hidden="true">✕</span> cut off <CutFor /></span>;
        case "failed":
            return <span class="state warn"><span aria-hidden="true">!</span> refused</span>;
        default:
            return <span class="state idle"><span aria-hidden="true">…</span> asking</span>;
    }
}

/** Views that are loaded once have no stream. */
const STILL = ["invocation", "keys"];

function Frame() {
    const { view } = route.value;
    const [help, showHelp] = useState(false);
    useEffect(() => {
        const pressed = (event: KeyboardEvent) => {
            const target = event.target as HTMLElement;
            if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
            if (event.key === "?") return showHelp(true);
            if (event.key === "t") return nextTheme();
            const found = VIEWS.find((one) => one.key === event.key);
            if (found) go(href(found.view));
        };
        window.addEventListener("keydown", pressed);
        return () => window.removeEventListener("keydown", pressed);
    }, []);
    const address = `${view}/${route.value.parts.join("/")}`;
    const first = useRef(true);
    useEffect(() => {
        // The reader of a new view begins at its title.
        if (!first.current) document.getElementById("title")?.focus({ preventScroll: true });
        first.current = false;
        document.querySelector(".top nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
        window.scrollTo(0, 0);
    }, [address]);
    return (
        <>
            <a class="skip" href="#title" onClick={(event) => { event.preventDefault(); document.getElementById("title")?.focus(); }}>To the content</a>
            <div class="top">
                <a class="brand" href={href("hierarchy")}>Nigh</a>
                <nav aria-label="Views">
                    {VIEWS.map((one) => (
                        <a key={one.view} href={href(one.view)} aria-current={one.view === view || one.of.includes(view) ? "page" : undefined}>{one.name}</a>
                    ))}
                </nav>
                <div class="tools">
                    {!STILL.includes(view) && <ConnectionShown />}
                    {namespaces.value.length > 1 && (
                        <select aria-label="Namespace" value={namespace.value} onChange={(event) => choose(event.currentTarget.value)}>
                            {namespaces.value.map((name) => <option key={name}>{name}</option>)}
                        </select>
                    )}
                    <button type="button" class="quiet" onClick={nextTheme} title="Colours: as the system, light, dark">{choice.value === "system" ? "auto" : choice.value}</button>
                    <button type="button" class="quiet" onClick={() => showHelp(true)} aria-label="Keys of the keyboard">?</button>
                    {session.value?.expires_in_s != null && <button type="button" class="quiet" onClick={() => void signOut()}>Sign out</button>}
                </div>
            </div>
            <main><Guarded key={address}>{shown(view)}</Guarded></main>
            {help && <Help close={() => showHelp(false)} />}
        </>
    );
}

/** A fault of one view leaves the way to the others. */
function Guarded({ children }: { children: ComponentChildren }) {
    const [error, reset] = useErrorBoundary((problem) => console.error(problem));
    return error ? <Failure text={`The page has a fault here: ${error instanceof Error ? error.message : String(error)}`} retry={reset} /> : <>{children}</>;
}

function Help({ close }: { close: () => void }) {
    const dialog = useRef<HTMLDialogElement>(null);
    useEffect(() => dialog.current?.showModal(), []);
    return (
        <dialog ref={dialog} onClose={close} aria-label="Keys of the keyboard">
            <h2>Keys</h2>
            <dl class="keys">
                {VIEWS.map((one) => <div key={one.key}><dt><kbd>{one.key}</kbd></dt><dd>{one.name}</dd></div>)}
                <div><dt><kbd>t</kbd></dt><dd>colours</dd></div>
                <div><dt><kbd>?</kbd></dt><dd>this list</dd></div>
                <div><dt><kbd>Esc</kbd></dt><dd>close</dd></div>
            </dl>
            <form method="dialog"><button>Close</button></form>
        </dialog>
    );
}

function SignIn() {
    const [key, setKey] = useState("");
    const [secret, setSecret] = useState("");
    const [error, setError] = useState("");
    const [busy, setBusy] = useState(false);
    useEffect(unwatch, []);
    const submit = async (event: Event) => {
        event.preventDefault();
        setBusy(true);
        setError("");
        try {
            await signIn(key.trim(), secret.trim());
        } catch (problem) {
            setError(problem instanceof ApiError ? problem.message : String(problem));
        }
        setBusy(false);
    };
    return (
        <main class="sign-in">
            <h1>Nigh</h1>
            <form onSubmit={submit}>
                <label>Access key<input name="key" autocomplete="username" required value={key} onInput={(event) => setKey(event.currentTarget.value)} /></label>
                <label>Secret<input name="secret" type="password" autocomplete="current-password" required value={secret} onInput={(event) => setSecret(event.currentTarget.value)} /></label>
                <button disabled={busy}>Sign in</button>
                {error && <p class="error" role="alert">{error}</p>}
            </form>
            <p class="note">The key needs a role: <code>nigh keys create NAME --role view</code>. Or open the link that <code>nigh page</code> prints.</p>
        </main>
    );
}

function Page() {
    const [error, setError] = useState("");
    const [round, next] = useState(0);
    const signed = session.value;
    useEffect(() => {
        setError("");
        whoAmI().catch((problem: Error) => setError(problem.message));
    }, [round]);
    useEffect(() => {
        if (signed) loadNamespaces().catch((problem: Error) => setError(problem.message));
    }, [signed != null]);
    if (error && !signed) return <main><Failure text={error} retry={() => next((n) => n + 1)} /></main>;
    if (signed === undefined) return <main><Loading /></main>;
    if (signed === null) return <SignIn />;
    if (namespaces.value.length === 0) return <main>{error ? <Failure text={error} retry={() => next((n) => n + 1)} /> : <Loading />}</main>;
    return <Frame />;
}

const place = document.getElementById("page");
if (place) render(<Page />, place);
