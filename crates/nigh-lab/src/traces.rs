//! Memory traces of functions: packing a tracer's recording, and training rows of packed traces.

mod pack;
mod price;

pub use pack::PackTraceArgs;
pub use price::PriceTracesArgs;
