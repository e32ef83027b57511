//! What each family of metrics means: the `# HELP` of the text, and `docs/reference/metrics.md`, which a test compares.
//!
//! The crates name what they count where they count it; a test holds this list complete.

/// How the names of all histograms end, and of nothing else.
pub(super) const HISTOGRAM_SUFFIX: &str = "_duration_seconds";

/// How a family's values are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// How many values were at most so large.
    Histogram,
    /// It is 1; its labels say what.
    Info,
}

impl Kind {
    /// The kind, as the family's name says it.
    pub(super) fn of(name: &str) -> Self {
        match name {
            _ if name.ends_with("_total") => Self::Counter,
            _ if name.ends_with(HISTOGRAM_SUFFIX) => Self::Histogram,
            _ if name.ends_with("_info") => Self::Info,
            _ => Self::Gauge,
        }
    }

    /// The kind, as OpenMetrics calls it.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// The kind, as Prometheus' text format calls it, which has no info.
    pub(super) const fn in_text(self) -> &'static str {
        match self {
            Self::Info => "gauge",
            other => other.as_str(),
        }
    }

    /// The name that OpenMetrics gives a family of this kind: without the suffix of its samples.
    pub(super) fn family(self, name: &str) -> &str {
        let suffix = match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        };
        name.strip_suffix(suffix).unwrap_or(name)
    }
}

/// A family's name and meaning.
type Family = (&'static str, &'static str);

/// All families, by subject.
pub(super) const SUBJECTS: [(&str, &[Family]); 8] = [
    ("Invocations and sandboxes", INVOCATIONS),
    ("Memory and learning", MEMORY),
    ("Objects", OBJECTS),
    ("Doors", DOORS),
    ("Events, schedules and workflows", EVENTS),
    ("Cluster", CLUSTER),
    ("Cache ways", CACHE_WAYS),
    ("Process", PROCESS),
];

const INVOCATIONS: &[Family] = &[
    (
        "nigh_invocations_total",
        "Ended invocations, by namespace, function and outcome: answered, handler_error, init_error, timed_out, out_of_memory, crashed, stopped. Beyond metrics.functions, the function is other",
    ),
    ("nigh_invocation_duration_seconds", "Time of the handler, by namespace and function as above, from 1 ms to 300 s"),
    (
        "nigh_invocation_cold_starts_total",
        "Invocations that waited for a new sandbox, by namespace and function as above",
    ),
    ("nigh_invocations_running", "Invocations that run"),
    ("nigh_invocations_waiting", "Invocations that wait for a sandbox"),
    ("nigh_invocations_refused_total", "Invocations answered with an error before they ran"),
    (
        "nigh_invocations_prepared_total",
        "Invocations whose memory and cache ways were prepared while the stage before ran",
    ),
    ("nigh_invocations_lost_total", "Invocations whose node was lost"),
    (
        "nigh_invocation_waits_total",
        "Invocations that got no sandbox at once, by what they waited for: turn, sandbox (a busy one), making, starts, memory, room",
    ),
    ("nigh_invocation_wait_duration_seconds", "Time that they waited, by the same; cold starts wait too"),
    (
        "nigh_cold_starts_total",
        "Sandboxes made, by why there was none: first, busy, room, keep_alive, changed, memory, died, ahead",
    ),
    ("nigh_prewarmed_starts_total", "Cold starts that took a pre-warmed sandbox"),
    ("nigh_sandboxes_ahead_total", "Cold starts prepared for a next stage"),
    ("nigh_sandbox_init_duration_seconds", "Time to initialise a sandbox"),
    ("nigh_sandboxes", "Sandboxes, by state: busy, idle, prewarmed"),
    ("nigh_sandboxes_ended_total", "Idle sandboxes ended, by why: room, keep_alive, changed, memory, died"),
    ("nigh_sandboxes_limit", "The most sandboxes"),
    ("nigh_sandboxes_booked_bytes", "Bookings that count against functions.memory"),
    ("nigh_sandboxes_booked_limit_bytes", "The most bytes of bookings: functions.memory"),
    ("nigh_sandboxes_idle_bytes", "Memory that frozen sandboxes use"),
    ("nigh_sandboxes_with_network", "Sandboxes with outbound network"),
    ("nigh_activation_records_bytes", "Activation records on the disk"),
    ("nigh_activation_records_dropped_total", "Activation records lost because the disk is too slow"),
];

const MEMORY: &[Family] = &[
    ("nigh_memory_bytes", "How the node's memory is shared, by part: granted, cache, slack, room"),
    ("nigh_memory_grown_total", "Grants raised during a run"),
    ("nigh_memory_yielded_bytes_total", "Bytes that the cache freed by shrinking"),
    ("nigh_memory_idle_ended_total", "Idle sandboxes ended for memory"),
    ("nigh_memory_killed_total", "Invocations ended for want of memory"),
    ("nigh_memory_under_predictions_total", "Invocations that needed more memory than a model predicted"),
    ("nigh_memory_models_matured_total", "Models that became mature"),
    ("nigh_memory_models_unlearned_total", "Models that ceased to be mature"),
    ("nigh_prefetched_total", "Prefetched objects"),
    ("nigh_prefetched_bytes_total", "Their bytes"),
    ("nigh_prefetch_used_total", "Prefetched objects that were read"),
    ("nigh_prefetch_used_bytes_total", "Their bytes"),
    ("nigh_prefetch_wasted_total", "Prefetched objects that were evicted unread"),
    ("nigh_prefetch_wasted_bytes_total", "Their bytes"),
];

const OBJECTS: &[Family] = &[
    (
        "nigh_objects_calls_total",
        "Calls, by how they were served: hit, miss, past (not by the cache), metadata, write, delete, failed",
    ),
    ("nigh_objects_bytes_total", "Bytes of the calls, likewise"),
    ("nigh_objects_evictions_total", "Evicted copies"),
    ("nigh_objects_cache_bytes", "Bytes of cached copies"),
    ("nigh_objects_cache_budget_bytes", "Bytes that cached copies may take"),
    ("nigh_objects_cache_segments", "Segments of cached copies"),
    ("nigh_objects_pool_bytes", "Bytes of pages that wait for another object"),
    ("nigh_objects_segments_total", "Segments of 64 KiB and more, by their pages: pooled, new"),
    ("nigh_objects_handed_over_total", "Copies of a shrinking node, by fate: reelected, copied, dropped"),
    ("nigh_holders_asked_total", "Reads sent to a holder, by outcome: held, gone"),
    ("nigh_writeback_pushes_total", "Writes that the store has taken"),
    ("nigh_writeback_pushed_bytes_total", "Their bytes"),
    ("nigh_writeback_push_failures_total", "Pushes that failed and are tried again"),
    ("nigh_writeback_conflicts_total", "Writes stored under a conflict key, because somebody else wrote"),
    ("nigh_writeback_dirty_objects", "Objects and deletions that are acknowledged and not pushed"),
    ("nigh_writeback_dirty_bytes", "Bytes that count against the limit of unpushed bytes"),
    ("nigh_writeback_failing_objects", "Unpushed objects whose last push failed"),
    ("nigh_writeback_watched_objects", "Pushed objects over which an earlier push may still land"),
    ("nigh_writeback_ephemeral_objects", "Objects that are in this node's memory alone"),
    ("nigh_writeback_lost_objects", "Ephemeral objects lost for want of memory"),
    ("nigh_writeback_oldest_age_seconds", "Age of the oldest unpushed write"),
    (
        "nigh_store_requests_total",
        "Requests to a remote store, by kind of store, operation and outcome: answered, missing (404), refused, failed (sent, no answer), not_sent",
    ),
    ("nigh_store_request_duration_seconds", "Time to the head of the store's answer, by kind of store and operation"),
    ("nigh_journal_commits_total", "Commits to the journal"),
    ("nigh_journal_syncs_total", "Calls of fdatasync"),
    ("nigh_journal_trims_total", "Segments of the journal that were reused"),
    ("nigh_journal_written_bytes_total", "Bytes written to the journal"),
    ("nigh_journal_commit_duration_seconds", "Time from the request for a commit to its answer"),
    ("nigh_journal_segments", "Segments of the journal"),
    ("nigh_journal_used_bytes", "Their bytes"),
    ("nigh_journal_limit_bytes", "The most bytes of the journal"),
    ("nigh_journal_live_records", "Records that the store may lack"),
    ("nigh_journal_live_bytes", "Their bytes"),
];

const DOORS: &[Family] = &[
    ("nigh_s3_requests_total", "S3 requests answered, by operation and class of status"),
    ("nigh_s3_request_duration_seconds", "Time from an S3 request's head to its answer's, by operation"),
    ("nigh_s3_received_bytes_total", "Bytes of S3 requests' bodies"),
    ("nigh_s3_sent_bytes_total", "Bytes of S3 answers' bodies"),
    ("nigh_fast_path_answers_total", "Answers of the fast path with bytes, by way: segment, inline, copy, http"),
    ("nigh_fast_path_connections", "Connections to the fast path"),
    ("nigh_fast_path_held_bytes", "Bytes of segments handed out and still held"),
    ("nigh_fast_path_holders_over", "Sandboxes and keys whose last request found no room for held bytes"),
    ("nigh_lambda_requests_total", "Lambda requests answered, by operation and status"),
    (
        "nigh_lambda_request_duration_seconds",
        "Time from a Lambda request's head to its answer, by operation; invocations too",
    ),
    ("nigh_openwhisk_requests_total", "OpenWhisk requests answered, by resource and status"),
    ("nigh_openwhisk_request_duration_seconds", "Time from an OpenWhisk request's head to its answer, by resource"),
    ("nigh_admin_requests_total", "Admin requests answered, by path and status"),
    ("nigh_admin_request_duration_seconds", "Time from an admin request's head to its answer's, by path"),
    (
        "nigh_door_connections",
        "Open connections, by door: s3 (those of sandboxes, too), lambda, admin, outside, health",
    ),
    ("nigh_quota_refusals_total", "Requests refused because their namespace used all of a quota, by quota"),
    ("nigh_outside_requests_total", "Requests of a store answered, by kind (push, invalidate, s3-events) and status"),
    ("nigh_outside_request_duration_seconds", "Time from such a request's head to its answer, by kind"),
    (
        "nigh_connections_closed_total",
        "Connections closed because of their client, by reason: silent, slow_answer (it took one too slowly), slow_body (it sent one too slowly), room (idle, and another client waited)",
    ),
    ("nigh_audit_events_total", "Events written to the audit trail"),
    ("nigh_audit_events_dropped_total", "Events lost because the audit trail cannot be written, or not fast enough"),
    ("nigh_outside_copies_dropped_total", "Copies dropped for S3 events"),
];

const EVENTS: &[Family] = &[
    ("nigh_events_accepted_total", "Events that the queue took"),
    ("nigh_events_refused_total", "Events that the queue refused"),
    ("nigh_events_pending", "Events not yet ended"),
    ("nigh_events_dead", "Events that failed for good"),
    ("nigh_event_attempts_total", "Attempts, by end: answered, failed, throttled, fault, gone"),
    ("nigh_events_done_total", "Ended events, by condition as in Lambda's record"),
    ("nigh_event_deliveries_failed_total", "Destinations that took no record"),
    ("nigh_schedule_runs_total", "Scheduled runs begun"),
    ("nigh_schedule_runs_missed_total", "Scheduled runs that were missed and are not made up"),
    ("nigh_executions_started_total", "Executions of state machines begun, by kind: standard, express"),
    ("nigh_executions_ended_total", "Executions of state machines ended, by status"),
];

const CLUSTER: &[Family] = &[
    ("nigh_cluster_members", "Living members of the cluster"),
    ("nigh_cluster_homes", "Shards whose home is on this node"),
    ("nigh_dispatches_total", "Runs sent to nodes"),
    ("nigh_dispatches_refused_total", "Runs that nodes refused"),
    ("nigh_dispatched_runs_total", "Runs received, by end: ended, refused"),
    ("nigh_dispatch_handed_on_total", "Invocations sent on to the dispatch owner"),
    ("nigh_dispatch_takeovers_total", "Dispatch ownerships taken"),
    ("nigh_dispatch_waiting", "Invocations that wait for a node"),
    ("nigh_dispatch_namespaces_owned", "Namespaces that this controller dispatches"),
    (
        "nigh_rpc_calls_total",
        "Calls between processes, by side, method and outcome: answered, refused, not_sent, unknown",
    ),
    ("nigh_rpc_bytes_total", "Their bytes, by side, method and of what: calls, answers"),
    ("nigh_rpc_call_duration_seconds", "Time to the head of the answer, by side and method"),
    ("nigh_rpc_connections", "Open connections, by side"),
];

const CACHE_WAYS: &[Family] = &[
    ("nigh_llc_ways", "Ways of the last-level cache"),
    ("nigh_llc_way_load", "How much of each way the running invocations need, added up: above 1 they compete for it"),
    ("nigh_llc_class_invocations", "Invocations in each class of service, by class and kind"),
    ("nigh_llc_refits_total", "Layouts of the last-level cache computed"),
    ("nigh_llc_moves_total", "Sandboxes moved to another class of service"),
    ("nigh_llc_bind_failures_total", "Runs that could not be bound to their class"),
    ("nigh_llc_runs_without_core_total", "Runs without a core of their own"),
    ("nigh_llc_monitor_ids_short_total", "Runs without a monitoring id"),
];

const PROCESS: &[Family] = &[
    ("nigh_build_info", "The version of this program"),
    (
        "nigh_certificate_expiry_timestamp_seconds",
        "When each certificate of this node ends, in seconds since 1970, by name",
    ),
    ("process_start_time_seconds", "When this process started, in seconds since 1970"),
    (
        "nigh_trace_spans_total",
        "Ended spans of recorded traces, by outcome: exported, rejected and failed (by the collector), dropped (no room)",
    ),
    ("process_resident_memory_bytes", "Resident memory of this process"),
    ("process_cpu_seconds_total", "Processor time of this process"),
    ("process_open_fds", "Open files of this process"),
    ("process_max_fds", "The most files that this process may open"),
    ("process_threads", "Threads of this process"),
];

fn families() -> impl Iterator<Item = Family> {
    SUBJECTS.into_iter().flat_map(|(_, families)| families).copied()
}

/// What a family means; none if it is unknown.
pub(super) fn meaning(name: &str) -> Option<&'static str> {
    families().find(|(known, _)| *known == name).map(|(_, meaning)| meaning)
}

#[cfg(test)]
mod tests;
