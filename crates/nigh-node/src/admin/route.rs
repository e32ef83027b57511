//! One route of the admin API: how it is asked for and answered, in one place for the router and for the description.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use nigh_terms::AdminRole;
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::AdminSource;

/// Makes the schema of a type, with those that it refers to.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// What a request carries.
#[derive(Clone, Copy)]
pub(super) enum Content {
    /// One JSON document.
    Json(SchemaOf),
    /// Bytes of any type.
    Bytes,
}

/// What an answer of success has.
#[derive(Clone, Copy)]
pub(super) enum Answer {
    /// 204, and no body.
    Nothing,
    /// One JSON document.
    Json(SchemaOf),
    /// 202 and one JSON document: the work goes on.
    Accepted(SchemaOf),
    /// A line of JSON for each item, while they come.
    Lines(SchemaOf),
    /// Server-sent events, whose data are JSON.
    Events,
    /// Bytes of this content type.
    Bytes(&'static str),
}

/// What the description says of a route.
#[derive(Clone)]
pub(super) struct Operation {
    pub(super) method: Method,
    /// Below `/v1`, with `{name}` for its parameters.
    pub(super) path: &'static str,
    pub(super) summary: &'static str,
    /// The least role of who asks.
    pub(super) role: AdminRole,
    pub(super) query: Option<SchemaOf>,
    pub(super) body: Option<Content>,
    pub(super) answer: Answer,
}

/// A route and what answers it.
pub(super) struct Route<N> {
    pub(super) operation: Operation,
    pub(super) handler: MethodRouter<Arc<N>>,
}

impl<N: AdminSource> Route<N> {
    /// A route that reads; the role `view` suffices.
    pub(super) fn get<H: Handler<T, Arc<N>>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::GET, path, summary, AdminRole::View, on(MethodFilter::GET, handler))
    }

    /// A route that changes something; it needs the role `operate`.
    pub(super) fn post<H: Handler<T, Arc<N>>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::POST, path, summary, AdminRole::Operate, on(MethodFilter::POST, handler))
    }

    /// A route that stores something; it needs the role `operate`.
    pub(super) fn put<H: Handler<T, Arc<N>>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::PUT, path, summary, AdminRole::Operate, on(MethodFilter::PUT, handler))
    }

    /// A route that removes something; it needs the role `operate`.
    pub(super) fn delete<H: Handler<T, Arc<N>>, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self {
        Self::new(Method::DELETE, path, summary, AdminRole::Operate, on(MethodFilter::DELETE, handler))
    }

    fn new(
        method: Method,
        path: &'static str,
        summary: &'static str,
        role: AdminRole,
        handler: MethodRouter<Arc<N>>,
    ) -> Self {
        let (query, body, answer) = (None, None, Answer::Nothing);
        Self { operation: Operation { method, path, summary, role, query, body, answer }, handler }
    }

    /// The parameters of its query are the fields of `Q`.
    pub(super) fn query<Q: JsonSchema>(mut self) -> Self {
        self.operation.query = Some(schema_of::<Q>);
        self
    }

    /// Its body is the JSON of a `B`.
    pub(super) fn body<B: JsonSchema>(mut self) -> Self {
        self.operation.body = Some(Content::Json(schema_of::<B>));
        self
    }

    /// Its body is bytes of any type.
    pub(super) fn bytes_body(mut self) -> Self {
        self.operation.body = Some(Content::Bytes);
        self
    }

    /// A longer body than axum's 2 MB is taken.
    pub(super) fn body_bytes_max(mut self, bytes: usize) -> Self {
        self.handler = self.handler.route_layer(DefaultBodyLimit::max(bytes));
        self
    }

    /// It answers the JSON of an `A`.
    pub(super) fn json<A: JsonSchema>(mut self) -> Self {
        self.operation.answer = Answer::Json(schema_of::<A>);
        self
    }

    /// It answers 202 and the JSON of an `A`.
    pub(super) fn accepted<A: JsonSchema>(mut self) -> Self {
        self.operation.answer = Answer::Accepted(schema_of::<A>);
        self
    }

    /// It answers lines of JSON, each an `A`.
    pub(super) fn lines<A: JsonSchema>(mut self) -> Self {
        self.operation.answer = Answer::Lines(schema_of::<A>);
        self
    }

    /// It answers server-sent events.
    pub(super) fn events(mut self) -> Self {
        self.operation.answer = Answer::Events;
        self
    }

    /// It answers bytes of this content type.
    pub(super) fn bytes(mut self, content_type: &'static str) -> Self {
        self.operation.answer = Answer::Bytes(content_type);
        self
    }

    /// It needs this role, whatever its method.
    pub(super) fn needs(mut self, role: AdminRole) -> Self {
        self.operation.role = role;
        self
    }
}
