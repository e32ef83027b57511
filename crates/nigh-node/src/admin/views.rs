//! What the page and `nigh top` show: each view is one bounded JSON document, given once by `GET /views/{view}` and kept
//! up to date by `GET /live?view=`.

mod cached;
mod cluster;
mod functions;
mod objects;
mod workflows;

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use nigh_terms::{BucketName, FunctionName, Namespace, ObjectKey};
use nigh_workflow::arn::WorkflowName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::functions::FunctionOrder;
use super::refusal::Refusal;
use super::{AdminSource, hierarchy, json};

/// The rows of a list, if the request names no limit, and the most of them.
const ROWS: usize = 100;
const ROWS_MAX: usize = 500;
/// How often a view is made again: of what is in memory, of what is on the disk or at other members, and of what the store
/// is asked for.
const QUICK: Duration = Duration::from_millis(500);
const SLOW: Duration = Duration::from_secs(3);
const RARE: Duration = Duration::from_secs(10);

/// The name of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ViewName {
    /// The memory hierarchy of this node.
    Hierarchy,
    /// The functions of a namespace, with what they took in the last minutes.
    Functions,
    /// One function and its last runs.
    Function,
    /// The buckets of a namespace, the objects of a `bucket`, or one object and its last users if `key` is given too.
    Objects,
    /// The objects of a namespace whose cached copies take most of this node's memory, and which nodes have copies.
    Cached,
    /// The state machines of a namespace, the executions of one (`workflow`), or one `execution`; at any node of a cluster.
    Workflows,
    /// The members of the cluster.
    Cluster,
    /// The events of a namespace that failed; with `all` also those that wait or run.
    Events,
}

/// Which part of a view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ViewParams {
    /// The view, where the path does not name it.
    pub(super) view: Option<ViewName>,
    namespace: Option<Namespace>,
    function: Option<FunctionName>,
    bucket: Option<BucketName>,
    prefix: String,
    key: Option<ObjectKey>,
    #[schemars(with = "Option<String>")]
    workflow: Option<WorkflowName>,
    #[schemars(with = "Option<String>")]
    execution: Option<WorkflowName>,
    sort: FunctionOrder,
    /// Where the page before ended.
    after: Option<String>,
    limit: Option<usize>,
    all: bool,
}

/// A view and the part of it that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum View {
    Hierarchy,
    Functions { namespace: Namespace, order: FunctionOrder, after: Option<FunctionName>, limit: usize },
    Function { namespace: Namespace, function: FunctionName },
    Buckets { namespace: Namespace },
    Objects { namespace: Namespace, bucket: BucketName, prefix: String, after: Option<String> },
    Object { namespace: Namespace, bucket: BucketName, key: ObjectKey },
    Cached { namespace: Namespace, limit: usize },
    Workflows { namespace: Namespace, after: Option<WorkflowName> },
    Workflow { namespace: Namespace, workflow: WorkflowName },
    Execution { namespace: Namespace, workflow: WorkflowName, execution: WorkflowName },
    Cluster,
    Events { namespace: Namespace, all: bool, limit: usize },
}

impl View {
    /// The view that is asked for; `namespace` if the request names none.
    pub(super) fn of(name: ViewName, asked: ViewParams, namespace: Namespace) -> Result<Self, Refusal> {
        let ViewParams { function, bucket, prefix, key, workflow, execution, sort, after, all, .. } = asked;
        let namespace = asked.namespace.unwrap_or(namespace);
        let limit = asked.limit.unwrap_or(ROWS).clamp(1, ROWS_MAX);
        let missing = |what: &str| Refusal::bad_request(format!("this view needs the parameter {what}"));
        Ok(match name {
            ViewName::Hierarchy => Self::Hierarchy,
            ViewName::Cluster => Self::Cluster,
            ViewName::Functions => {
                let after = after.as_deref().map(FunctionName::new).transpose();
                Self::Functions { namespace, order: sort, after: after.map_err(Refusal::bad_request)?, limit }
            }
            ViewName::Function => Self::Function { namespace, function: function.ok_or_else(|| missing("function"))? },
            ViewName::Objects => match (bucket, key) {
                (None, None) => Self::Buckets { namespace },
                (Some(bucket), None) => Self::Objects { namespace, bucket, prefix, after },
                (Some(bucket), Some(key)) => Self::Object { namespace, bucket, key },
                (None, Some(_)) => return Err(missing("bucket")),
            },
            ViewName::Cached => Self::Cached { namespace, limit },
            ViewName::Workflows => match (workflow, execution) {
                (None, None) => {
                    let after = after.as_deref().map(WorkflowName::new).transpose();
                    Self::Workflows { namespace, after: after.map_err(Refusal::bad_request)? }
                }
                (Some(workflow), None) => Self::Workflow { namespace, workflow },
                (Some(workflow), Some(execution)) => Self::Execution { namespace, workflow, execution },
                (None, Some(_)) => return Err(missing("workflow")),
            },
            ViewName::Events => Self::Events { namespace, all, limit },
        })
    }

    /// How often it is made again for `/live`.
    pub(super) const fn every(&self) -> Duration {
        match self {
            Self::Hierarchy | Self::Functions { .. } | Self::Function { .. } | Self::Execution { .. } => QUICK,
            Self::Cached { .. }
            | Self::Workflows { .. }
            | Self::Workflow { .. }
            | Self::Cluster
            | Self::Events { .. } => SLOW,
            Self::Buckets { .. } | Self::Objects { .. } | Self::Object { .. } => RARE,
        }
    }

    /// The document now.
    pub(super) async fn document<N: AdminSource>(&self, node: &N) -> Result<Value, Refusal> {
        match self {
            Self::Hierarchy => value(&hierarchy::hierarchy(node).await?),
            Self::Functions { namespace, order, after, limit } => {
                value(&functions::functions(node, namespace, *order, after.as_ref(), *limit))
            }
            Self::Function { namespace, function } => value(&functions::function(node, namespace, function)?),
            Self::Buckets { namespace } => value(&objects::buckets(node, namespace).await?),
            Self::Objects { namespace, bucket, prefix, after } => {
                value(&objects::objects(node, namespace, bucket, prefix, after.as_ref()).await?)
            }
            Self::Object { namespace, bucket, key } => value(&objects::object(node, namespace, bucket, key).await?),
            Self::Cached { namespace, limit } => value(&cached::cached(node, namespace, *limit).await?),
            Self::Workflows { namespace, after } => Ok(workflows::machines(node, namespace, after.as_ref())),
            Self::Workflow { namespace, workflow } => workflows::executions(node, namespace, workflow).await,
            Self::Execution { namespace, workflow, execution } => {
                workflows::execution(node, namespace, workflow, execution).await
            }
            Self::Cluster => value(&cluster::cluster(node).await?),
            Self::Events { namespace, all, limit } => value(&node.events().list(namespace, *all, *limit)),
        }
    }
}

fn value(document: &impl Serialize) -> Result<Value, Refusal> {
    Ok(serde_json::to_value(document)?)
}

/// `GET /views/{view}`.
pub(super) async fn view<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path(name): Path<ViewName>,
    Query(asked): Query<ViewParams>,
) -> Result<Response, Refusal> {
    let view = View::of(name, asked, node.namespace().clone())?;
    json(&Box::pin(view.document(&*node)).await?)
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::*;

    fn view(query: &str) -> Result<View, ()> {
        let uri: Uri = format!("http://node/?{query}").parse().unwrap();
        let Query(asked) = Query::<ViewParams>::try_from_uri(&uri).map_err(|_| ())?;
        let name = asked.view.ok_or(())?;
        View::of(name, asked, Namespace::new("default").unwrap()).map_err(|_| ())
    }

    #[test]
    fn a_request_names_a_view_and_its_part() {
        let namespace = Namespace::new("default").unwrap();
        assert_eq!(view("view=hierarchy"), Ok(View::Hierarchy));
        let order = FunctionOrder::Errors;
        let functions = View::Functions { namespace: namespace.clone(), order, after: None, limit: ROWS_MAX };
        assert_eq!(view("view=functions&sort=errors&limit=100000"), Ok(functions));
        assert_eq!(view("view=objects"), Ok(View::Buckets { namespace: namespace.clone() }));
        assert_eq!(view("view=cached&limit=7"), Ok(View::Cached { namespace: namespace.clone(), limit: 7 }));
        let (bucket, key) = (BucketName::new("inbox").unwrap(), ObjectKey::new("a b").unwrap());
        assert_eq!(view("view=objects&bucket=inbox&key=a%20b"), Ok(View::Object { namespace, bucket, key }));
    }

    #[test]
    fn an_unknown_parameter_view_or_name_is_rejected() {
        for wrong in
            ["view=nothing", "view=cluster&x=1", "view=function", "view=objects&key=k", "view=objects&bucket=A"]
        {
            assert!(view(wrong).is_err(), "{wrong}");
        }
    }
}
