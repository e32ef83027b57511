//! OpenWhisk: its REST API as a door to the same functions, and what makes functions actions.
//!
//! Pure are `names`, `parameters`, `version`, `limits`, `kinds`, `exec`, `put_shapes`, `route`, `query`, `response`,
//! `record`, `continuation`, `throttle` and `web_action`; `entity_store` and `activation_store` keep, `door` does. An action is a function of the
//! function store with an `Action` beside it; sequences, packages, triggers and rules are documents of their own.
//! Sources: OpenWhisk's `apiv1swagger.json`, its documentation, and its controller where these are silent.

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
