// Asynchronous invocations that failed after all retries, and those that wait or run.

import { useState } from "preact/hooks";
import { get, mayOperate, segment, send } from "../api";
import { bytes, clock, count, shortId } from "../format";
import { namespace } from "../namespace";
import { go, href, route } from "../route";
import type { EventList } from "../types";
import { Action, Failure, Live, Loading, Section, State, Table, Title, useLoaded } from "../ui";

type Listed = EventList["events"][number];

export function EventsView() {
    const all = route.value.query.get("all") === "true";
    const ns = namespace.value;
    return (
        <>
            <Title text="Events that failed">
                <label><input type="checkbox" checked={all} onChange={(event) => go(href("events", [], { all: event.currentTarget.checked ? "true" : undefined }))} /> also those that wait or run</label>
            </Title>
            <Live<EventList> view="events" params={{ namespace: ns, all }}>{(list) => <List list={list} ns={ns} />}</Live>
        </>
    );
}

function List({ list, ns }: { list: EventList; ns: string }) {
    const [opened, open] = useState<string | null>(null);
    const act = (id: string, action: string) => () => send("POST", `/events/${segment(ns)}/${segment(id)}/${action}`);
    return (
        <>
            <p class="note">{count(list.dead)} failed after all retries; {count(list.pending)} wait or run.</p>
            <Table
                caption="Events"
                rows={list.events}
                rowKey={(event) => event.id}
                empty="No event has failed."
                selected={(event) => event.id === opened}
                columns={[
                    { name: "Event", cell: (event) => <a href={href("invocation", [event.id])} title={event.id}>{shortId(event.id)}</a> },
                    { name: "Function", cell: (event) => <a href={href("function", [ns, event.function])}>{event.function}</a> },
                    { name: "State", cell: (event) => (event.state === "dead" ? <State kind="bad">failed</State> : <State kind={event.state === "running" ? "busy" : "idle"}>{event.state}</State>) },
                    { name: "Tries", numeric: true, cell: (event) => event.attempts },
                    { name: "Why", cell: why },
                    { name: "Accepted", wide: true, cell: (event) => clock(event.accepted) },
                    { name: "Failed", wide: true, cell: (event) => clock(event.died) },
                    { name: "Input", numeric: true, wide: true, cell: (event) => <button type="button" class="link" aria-expanded={event.id === opened} onClick={() => open(event.id === opened ? null : event.id)}>{bytes(event.bytes)}</button> },
                    ...(mayOperate()
                        ? [{
                            name: "Operate",
                            cell: (event: Listed) => (
                                <span class="actions">
                                    {event.state === "dead" && <Action label="Retry" run={act(event.id, "retry")} done="Accepted." />}
                                    {(event.state === "dead" || event.state === "waiting") && <Action label="Drop" danger confirm="Drop it for good?" run={act(event.id, "drop")} done="Dropped." />}
                                </span>
                            ),
                        }]
                        : []),
                ]}
            />
            {opened && <Input key={opened} ns={ns} id={opened} />}
        </>
    );
}

function why(event: Listed): string {
    const again = event.due_in_s === undefined ? undefined : `again in ${event.due_in_s.toFixed(0)} s`;
    return [event.reason ?? event.last_error, again].filter(Boolean).join("; ");
}

function Input({ ns, id }: { ns: string; id: string }) {
    const { value, error, again } = useLoaded(id, () => get<{ payload: unknown }>(`/events/${segment(ns)}/${segment(id)}`));
    return (
        <Section name={`Input of ${shortId(id)}`}>
            {error ? <Failure text={error} retry={again} /> : value ? <pre tabIndex={0}>{JSON.stringify(value.payload, null, 2)}</pre> : <Loading />}
        </Section>
    );
}
