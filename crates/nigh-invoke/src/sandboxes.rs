//! The sandboxes of a node: who gets one (`admission`), how one is made (`maker`), what belongs to it (`live_sandbox`), and
//! the pre-warmed ones (`prewarmer`, `stem_stock`).

pub(crate) mod admission;
pub(crate) mod cold_start;
pub(crate) mod failed_start;
mod idle_processors;
pub(crate) mod live_sandbox;
pub(crate) mod maker;
pub(crate) mod prewarmer;
mod stem_stock;
