//! OpenWhisk's REST API, as a door to the same functions as the Lambda API.
//!
//! Pure are `limits`, `kinds`, `exec`, `put_shapes`, `route`, `query`, `response`, `record`, `continuation`, `throttle` and
//! `web_action`; `entity_store` and `activation_store` store, `door` performs requests. An action is a function of the
//! function store with an `Action`; sequences, packages, triggers and rules are documents of their own. Follows
//! OpenWhisk's `apiv1swagger.json`, its documentation, and its controller where both say nothing.

pub mod activation_store;
mod continuation;
mod credentials;
mod door;
mod entities;
pub mod entity_store;
pub mod error;
mod exec;
pub mod fuzzing;
mod kinds;
mod limits;
mod put_shapes;
mod query;
mod record;
mod response;
mod route;
mod throttle;
mod web_action;

pub use door::{OpenWhiskDoor, OpenWhiskParts, OpenWhiskSettings};
pub use route::ROOT;
pub use throttle::NamespaceLimits;
