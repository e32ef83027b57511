//! A node's memory, divided between sandboxes and the cache: who has how much (`budget`), how far a sandbox grows
//! (`growth`), what is kept free for growth (`slack`), and what a byte is worth to each (`value`). Pure.

pub mod budget;
pub mod grant;
pub mod growth;
pub mod slack;
pub mod value;
