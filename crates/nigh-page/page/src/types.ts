// The documents of the admin API, as far as the page reads them.

export interface Level {
    name: string;
    on: boolean;
    detail: string;
}

export interface Figures {
    runs: number;
    errors: number;
    cold: number;
    p50_us: number;
    p99_us: number;
    wait_p99_us: number;
    wait_us: number;
    init_us: number;
    extract_us: number;
    transform_us: number;
    load_us: number;
    hits: number;
    misses: number;
    booked: number;
    granted: number;
    predicted?: number;
    peak?: number;
    prediction_error?: number;
}

export interface Clos {
    clos: number;
    kind: "default" | "insensitive" | "sensitive" | "cluster";
    mask: number;
    running: number;
    load: number;
}

export interface Llc {
    level: Level;
    policy?: string;
    shape?: { ways: number; classes: number; min_ways: number; shareable: number };
    lines_per_way?: number;
    classes: Clos[];
    way_loads: number[];
    uses?: { namespace: string; function: string; sandboxes: number; occupancy_bytes: number | string }[];
}

export interface Memory {
    booked: number;
    cache_own: number;
    granted: number;
    cache: number;
    cache_takes: number;
    slack: number;
    room: number;
    churn: number;
    grown: number;
    yielded: number;
    refused: number;
    idle_ended: number;
    killed: number;
    scale_up: number;
    scale_down: number;
}

export interface Status {
    node: string;
    version: string;
    started: string;
    uptime_s: number;
    draining?: { invocations: number; left_s: number };
    levels: Level[];
    cluster?: ClusterStatus;
    endpoints: { namespace: string };
    cache: {
        budget: number;
        kept: number;
        objects: number;
        hits: number;
        misses: number;
        past: number;
        writes: number;
        evictions: number;
    };
    writes: {
        waiting: number;
        waiting_bytes: number;
        failing: number;
        oldest_ms: number;
        conflicts: number;
        ephemeral: number;
        journal: number;
        journal_max: number;
        commits: number;
        syncs: number;
    };
    fast_path?: { held: number; holders: number; segments: number; inline: number; copies: number; for_http: number };
    sandboxes: {
        alive: number;
        idle: number;
        booked: number;
        idle_held: number;
        prewarmed: number;
        memory: number;
        running: number;
        waiting: number;
    };
    memory?: Memory;
    stems: { runtime: string; ready: number; coming: number; wanted: number; trouble?: string }[];
    resident: number;
}

export interface ClusterStatus {
    name: string;
    coherence: string;
    servers?: { configured: number; connected?: string; silent_since?: string };
    members: { node: string; number: number; incarnation: number; address: string; roles: string[] }[];
    homes?: { shards: number; own: number[]; without: number[]; troubles: { shard: number; why: string }[] };
}

export interface Member {
    unanswered?: string;
    version?: string;
    uptime_s?: number;
    draining?: boolean;
    running?: number;
    waiting?: number;
    bookable?: number;
    granted?: number;
    cache_budget?: number;
    cache_bytes?: number;
    copies?: number;
    homes?: number;
    invalidations?: number;
    unpushed?: number;
    unpushed_bytes?: number;
    unpushed_oldest_ms?: number;
    trouble?: string;
}

export interface MemberRow {
    node: string;
    version?: string | null;
    roles: string[];
    state: "available" | "cordoned" | "draining" | "drained";
    trouble?: string | null;
    homes: number;
    invocations?: number | null;
}

/** The members, as `nigh cluster ls` has them. */
export interface ClusterTable {
    format: number;
    next_format?: number | null;
    members: MemberRow[];
    /** Nodes that are away and take no work when they come back. */
    absent: { node: string; availability: string; since: string }[];
}

export interface Run {
    namespace: string;
    function: string;
    since: number;
    start: string;
    booked: number;
    predicted?: number;
    limit?: number;
    used?: number;
    clos?: number;
}

export interface Hierarchy {
    at: number;
    status: Status;
    llc: Llc;
    running: Record<string, Run>;
    running_more: number;
    time: Figures;
    time_window_s: number;
    invalidations: number;
    members: Record<string, Member>;
}

export interface ListedFunction extends Partial<Figures> {
    runtime: string;
    memory: number;
    timeout_ms: number;
    modified: number;
    running: number;
    ways?: { least: number; most: number };
}

export interface FunctionList {
    namespace: string;
    window_s: number;
    total: number;
    order: string[];
    functions: Record<string, ListedFunction>;
    next?: string;
}

export interface EndedRun {
    attempt: number;
    ended_ms: number;
    start: string;
    wait_us: number;
    init_us: number;
    duration_us: number;
    phases: { extract_us: number; transform_us: number; load_us: number };
    hits: number;
    misses: number;
    granted: number;
    booked: number;
    peak?: number;
    predicted?: number;
    failed: boolean;
}

export interface FunctionPage extends ListedFunction {
    namespace: string;
    name: string;
    window_s: number;
    description: string;
    handler: string;
    environment: string[];
    layers: number;
    code_sha256: string;
    code_size: number;
    reserved?: number;
    url?: string;
    last_runs: Record<string, EndedRun>;
}

export interface Copies {
    cached: Record<string, { epoch: number; sequence: number }>;
    home?: string;
    pending: number[];
}

export interface ListedObject extends Copies {
    size: number;
    modified: number;
    etag: string;
    unpushed?: { mode: string; failures: number; damaged: boolean };
}

export interface ObjectsView {
    namespace: string;
    buckets?: Record<string, { created: number }>;
    bucket?: string;
    prefix?: string;
    folders?: string[];
    objects?: Record<string, ListedObject>;
    next?: string;
    unanswered?: Record<string, string>;
}

/** The objects whose copies take most memory of this node. */
export interface CachedList {
    namespace: string;
    node: string;
    copies: number;
    cached_bytes: number;
    objects: ({ bucket: string; key: string; bytes: number } & Copies)[];
    unanswered: Record<string, string>;
}

export interface ObjectPage extends ListedObject {
    namespace: string;
    bucket: string;
    key: string;
    version: { epoch: number; sequence: number };
    content_type?: string;
    tags: Record<string, string>;
    user: Record<string, string>;
    parts: number;
    unanswered: Record<string, string>;
    users: Record<string, { function: string; ended: number; served: string; bytes: number; took_us: number }>;
}

export interface Explanation {
    activation: {
        id: string;
        attempt: number;
        namespace: string;
        function: string;
        cold: boolean;
        sandbox_start?: string;
        start: number;
        wait_us: number;
        init_us: number;
        duration_us: number;
        hits: number;
        misses: number;
        booked: number;
        granted: number;
        peak_memory?: number;
        predicted_memory?: number;
        memory: { page_cache?: number; grown: number; came_short: boolean; waited_us: number };
        outcome: { kind: string; error_type?: string; message?: string; reason?: string };
        stack_trace?: string[];
        notes: string[];
        placement: string;
        trace_id?: string | null;
        exceeded?: { setting: string; limit_us?: number; booked?: number } | null;
        log: string;
        log_omitted: number;
        data_calls_omitted: number;
    };
    total_us: number;
    steps: { kind: "wait" | "init" | "run" | "read" | "write"; at_us: number; took_us: number; what: string; bytes: number }[];
    shares: { extract: number; transform: number; load: number };
    hit_percent?: number | null;
    memory_percent?: number | null;
    cost: { billed_gb_s: number; used_gb_s?: number | null };
}

export interface EventList {
    pending: number;
    dead: number;
    events: {
        id: string;
        function: string;
        state: string;
        attempts: number;
        bytes: number;
        accepted: string;
        due_in_s?: number;
        reason?: string;
        died?: string;
        last_error?: string;
    }[];
}
