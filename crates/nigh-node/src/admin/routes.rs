//! The routes of the admin API: the one table of which the router and `/v1/openapi.json` are made.
//!
//! Each node of a cluster has the records of the invocations that ran on it. With `cluster=true` the lists have those
//! of all members, and `/activations/{id}` and `/explain/{id}` always look at all members. The header
//! `x-nigh-unanswered` names the members that did not answer. The views of workflows and objects answer for all members
//! too; their field `unanswered` names those that did not. With `follow=true` and without `cluster=true` only what ends on
//! this node follows. Of a list that is longer than its limit, the header `x-nigh-cursor` has the parameter `cursor` of the
//! next page.

use nigh_engine::NamespaceQuota;
use nigh_invoke::event_invoker::{EventListing, ShownEvent};
use nigh_objects::BucketPolicy;
use nigh_schedule::activation::Activation;
use nigh_terms::AdminRole;
use serde_json::Value;

use super::activations::{self, ActivationParams};
use super::contents::{self, ContentParams};
use super::door::sign_in::{self, LinkParams, SessionStatus, SignInLink};
use super::events::{self, EventParams};
use super::functions::{self, FunctionParams, ListedFunction};
use super::invoke::{self, InvokeAnswer};
use super::keys::{self, RotateParams};
use super::live;
use super::logs::{self, LogLine};
use super::members;
use super::models::{self, LearnedParams};
use super::namespaces::{self, RemoveParams};
use super::objects::{self, FeaturesParams, UnpushedParams};
use super::route::Route;
use super::views::{self, ViewParams};
use super::{AdminSource, ROWS_BYTES_MAX, reload, reports};
use crate::backup::source::BackupScope;
use crate::cluster::{ClusterTable, FinalizeReport};
use crate::config::ShownSetting;
use crate::explain::Explanation;
use crate::features::ShownFeatures;
use crate::learning::{ImportedRows, LearnedStatus};
use crate::llc::LlcStatus;
use crate::profiling::{ModelRows, ProfileReport, ProfileRequest};
use crate::reload::ReloadReport;
use crate::status::{DrainStatus, Status};
use crate::tenancy::{CreatedKey, ListedKey, ListedNamespace, NewKey, NewNamespace};
use crate::unpushed::{UnpushedName, UnpushedRow};

/// All routes, with their paths below `/v1`.
pub(super) fn routes<N: AdminSource>() -> Vec<Route<N>> {
    let mut all = of_the_node();
    all.extend(of_invocations());
    all.extend(of_models());
    all.extend(of_objects());
    all.extend(of_tenants());
    all.extend(of_the_cluster());
    all
}

fn of_the_node<N: AdminSource>() -> Vec<Route<N>> {
    vec![
        Route::get("/openapi.json", "This description.", reports::description).json::<Value>(),
        Route::get("/status", "The node's status.", reports::status::<N>).json::<Status>(),
        Route::get("/views/{view}", "What the page shows, once.", views::view::<N>)
            .query::<ViewParams>()
            .json::<Value>(),
        Route::get("/live", "A view as a snapshot, then JSON Merge Patches: server-sent events.", live::live::<N>)
            .query::<ViewParams>()
            .events(),
        Route::get(
            "/metrics",
            "All metrics as Prometheus text, or as OpenMetrics if `Accept` prefers it.",
            reports::metrics::<N>,
        )
        .bytes("text/plain; version=0.0.4; charset=utf-8"),
        Route::get("/config", "The settings and where each comes from.", reports::config::<N>)
            .json::<Vec<ShownSetting>>(),
        Route::get("/llc", "The last-level cache: classes, loads of ways, models.", reports::llc::<N>)
            .json::<LlcStatus>(),
        Route::get("/backup", "A backup, while it is made; a failure breaks it off.", reports::backup::<N>)
            .query::<BackupScope>()
            .bytes("application/x-tar")
            .needs(AdminRole::Operate),
        Route::post("/reload", "Reads the settings again; 409 if they cannot be used.", reload::reload::<N>)
            .json::<ReloadReport>(),
        Route::post("/shutdown", "Drains and ends the node; this API answers until then.", reports::shutdown::<N>)
            .accepted::<DrainStatus>(),
        Route::get("/session", "Who is signed in, and with what role.", sign_in::session::<N>).json::<SessionStatus>(),
        Route::post("/session", "Signs in a browser: a key by HTTP Basic becomes a cookie.", sign_in::sign_in::<N>)
            .json::<SessionStatus>()
            .needs(AdminRole::View),
        Route::delete("/session", "Signs out: the session is over.", sign_in::sign_out::<N>).needs(AdminRole::View),
        Route::post("/sign-in-links", "A link that signs in one browser, once, within a minute.", sign_in::link::<N>)
            .query::<LinkParams>()
            .json::<SignInLink>(),
    ]
}

fn of_invocations<N: AdminSource>() -> Vec<Route<N>> {
    vec![
        Route::get("/activations", "Records of ended invocations, newest first.", activations::activations::<N>)
            .query::<ActivationParams>()
            .json::<Vec<Activation>>(),
        Route::get("/activations/{id}", "The record of an invocation.", activations::activation::<N>)
            .json::<Activation>(),
        Route::get("/explain/{id}", "Where an invocation's time went.", activations::explanation::<N>)
            .json::<Explanation>(),
        Route::get("/logs", "Logs of ended invocations, oldest first; endless with `follow`.", logs::logs::<N>)
            .query::<ActivationParams>()
            .lines::<LogLine>(),
        Route::get("/events", "Dead letters; with `all` also events that wait or run.", events::events::<N>)
            .query::<EventParams>()
            .json::<EventListing>(),
        Route::get("/events/{namespace}/{id}", "An event with its input.", events::event::<N>)
            .json::<ShownEvent>()
            .needs(AdminRole::Operate),
        Route::post(
            "/events/{namespace}/{id}/retry",
            "Retries a dead letter from the beginning.",
            events::retry_event::<N>,
        ),
        Route::post(
            "/events/{namespace}/{id}/drop",
            "Drops a dead letter or a waiting event.",
            events::drop_event::<N>,
        ),
        Route::get("/functions", "The functions of a namespace, by name.", functions::functions::<N>)
            .query::<FunctionParams>()
            .json::<Vec<ListedFunction>>(),
        Route::post(
            "/functions/{namespace}/{function}/invoke",
            "Runs a function, and answers its answer.",
            invoke::invoke::<N>,
        )
        .body::<Value>()
        .body_bytes_max(invoke::INPUT_BYTES_MAX)
        .json::<InvokeAnswer>(),
        Route::get(
            "/functions/{namespace}/{function}/code",
            "The archive of a function's code, as it was uploaded.",
            functions::code::<N>,
        )
        .bytes("application/zip")
        .needs(AdminRole::Operate),
        Route::get(
            "/layers/{namespace}/{layer}/{version}/code",
            "The archive of a layer's version.",
            functions::layer_code::<N>,
        )
        .bytes("application/zip")
        .needs(AdminRole::Operate),
    ]
}

fn of_models<N: AdminSource>() -> Vec<Route<N>> {
    vec![
        Route::post("/llc/profile", "Profiles a function; a line after each run.", models::profile::<N>)
            .body::<ProfileRequest>()
            .lines::<ProfileReport>(),
        Route::post("/llc/model", "Makes a function's model of the rows.", models::model::<N>).body::<ModelRows>(),
        Route::get("/learn", "The memory models of a namespace's functions.", models::learned::<N>)
            .query::<LearnedParams>()
            .json::<Vec<LearnedStatus>>(),
        Route::get("/learn/{namespace}/{function}", "A function's memory model.", models::learned_of::<N>)
            .json::<LearnedStatus>(),
        Route::get("/learn/{namespace}/{function}/rows", "A model's rows as CSV.", models::learned_rows::<N>)
            .bytes("text/csv"),
        Route::post("/learn/{namespace}/{function}/rows", "Replaces a model's rows.", models::learn_rows::<N>)
            .body::<ImportedRows>()
            .body_bytes_max(ROWS_BYTES_MAX),
        Route::post(
            "/learn/{namespace}/{function}/forget",
            "Removes a model and its rows.",
            models::forget_learned::<N>,
        ),
    ]
}

fn of_objects<N: AdminSource>() -> Vec<Route<N>> {
    vec![
        Route::get("/buckets/{namespace}/{bucket}/policy", "The policy of a bucket's writes.", objects::policy::<N>)
            .json::<BucketPolicy>(),
        Route::post(
            "/buckets/{namespace}/{bucket}/policy",
            "Sets the policy; the bucket's later writes follow it.",
            objects::set_policy::<N>,
        )
        .body::<BucketPolicy>(),
        Route::get("/buckets/{namespace}/unpushed", "Writes that the store does not have.", objects::unpushed::<N>)
            .query::<UnpushedParams>()
            .json::<Vec<UnpushedRow>>(),
        Route::post("/buckets/{namespace}/unpushed/drop", "Drops such a write.", objects::drop_unpushed::<N>)
            .body::<UnpushedName>(),
        Route::get("/objects/{namespace}/{bucket}", "An object's bytes, or its first.", contents::get::<N>)
            .query::<ContentParams>()
            .bytes("application/octet-stream")
            // Tenants' data are no status.
            .needs(AdminRole::Operate),
        Route::put("/objects/{namespace}/{bucket}", "Stores the body as an object.", contents::put::<N>)
            .query::<ContentParams>()
            .bytes_body()
            .json::<Value>(),
        Route::get("/features/{namespace}", "The features of an object.", objects::features::<N>)
            .query::<FeaturesParams>()
            .json::<ShownFeatures>(),
    ]
}

fn of_tenants<N: AdminSource>() -> Vec<Route<N>> {
    vec![
        Route::get("/keys", "The clients' keys, without their secrets.", keys::list::<N>).json::<Vec<ListedKey>>(),
        Route::post("/keys", "Creates a key; no other answer has its secret.", keys::create::<N>)
            .body::<NewKey>()
            .json::<CreatedKey>(),
        Route::get("/keys/{key}", "A key, by its id or its name.", keys::show::<N>).json::<ListedKey>(),
        Route::post("/keys/{key}/rotate", "Creates a key's successor.", keys::rotate::<N>)
            .query::<RotateParams>()
            .json::<CreatedKey>(),
        Route::post("/keys/{key}/enable", "Accepts a disabled key again.", keys::enable::<N>),
        Route::post("/keys/{key}/disable", "Refuses a key until it is enabled.", keys::disable::<N>),
        Route::post("/keys/{key}/rm", "Removes a key.", keys::remove::<N>),
        Route::get("/namespaces", "The namespaces, their quotas, and what they use.", namespaces::list::<N>)
            .json::<Vec<ListedNamespace>>(),
        Route::post("/namespaces", "Creates a namespace and its first key.", namespaces::create::<N>)
            .body::<NewNamespace>()
            .json::<CreatedKey>(),
        Route::get("/namespaces/{namespace}", "A namespace.", namespaces::show::<N>).json::<ListedNamespace>(),
        Route::post("/namespaces/{namespace}/quota", "Replaces a namespace's quota.", namespaces::set_quota::<N>)
            .body::<NamespaceQuota>(),
        Route::post(
            "/namespaces/{namespace}/rm",
            "Removes a namespace that is empty, or with `everything`.",
            namespaces::remove::<N>,
        )
        .query::<RemoveParams>(),
    ]
}

fn of_the_cluster<N: AdminSource>() -> Vec<Route<N>> {
    vec![
        Route::get("/cluster", "The members of the node's cluster; 409 without one.", members::table::<N>)
            .json::<ClusterTable>(),
        Route::post(
            "/cluster/nodes/{node}/cordon",
            "Takes a node out of work; it keeps its homes.",
            members::cordon::<N>,
        ),
        Route::post(
            "/cluster/nodes/{node}/drain",
            "Takes a node out of work, and its homes away from it.",
            members::drain::<N>,
        ),
        Route::post("/cluster/nodes/{node}/uncordon", "Takes a node back into work.", members::uncordon::<N>),
        Route::post(
            "/cluster/finalize",
            "Raises the cluster's format to the newest that all members can use.",
            members::finalize::<N>,
        )
        .json::<FinalizeReport>(),
    ]
}
