//! The process engine against the real kernel: real sandboxes, real cgroups, real processes.
//!
//! As root every test runs. `elsewhere` runs the same tests again as a user without rights, and where the kernel
//! refuses namespaces.

mod elsewhere;
mod harness;
mod life;
mod limits;
mod walls;
