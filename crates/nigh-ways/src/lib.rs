//! The cache ways of each invocation. Before the run its need is predicted, and its sandbox is bound to a class of
//! service; at the end of the run its load is released.
//!
//! This crate joins the decisions of `nigh_llc` (models, layout, placement) with the sizes of the input's objects and
//! the sandbox's tasks. On a machine that cannot bind, decisions are made and recorded, and nothing is bound.

mod books;
mod cache_use;
mod cache_ways;
mod class_groups;
mod core_allocation;
mod core_binding;
mod fitted_classes;
mod hook;
mod profile_run;
mod resctrl_classes;
mod running_invocation;
mod sizing_models;
mod use_sampling;
mod wanted_profiles;

use std::sync::Arc;

use nigh_llc::resctrl::Members;
use nigh_llc::{ClosLayout, Placement, Tolerance};
use nigh_sizing::object_sizes::ObjectSizes;
use nigh_terms::{Clock, ClosId, Ways};

pub use cache_use::{FunctionUse, NoFigure, UseFigure};
pub use cache_ways::CacheWays;
pub use fitted_classes::RefitResult;
pub use hook::NOT_BOUND_HERE;
pub use profile_run::{ProfileHook, ProfileRunError, ProfileRuns, WayAllocation};
pub use resctrl_classes::{CoreHook, ResctrlClasses, cache_shape};
pub use sizing_models::{FunctionModel, SizingModels, SizingModelsError};
pub use use_sampling::CacheUseHook;
pub use wanted_profiles::WantedProfile;

/// Puts sandboxes into classes of service.
pub trait ClosBinder: Send + Sync {
    /// Changes the machine's classes to those of `layout`.
    ///
    /// # Errors
    /// The system's reason. The classes are unchanged.
    fn lay_out(&self, layout: &ClosLayout) -> Result<(), String>;
    /// Puts every task of a sandbox into a class. Called during an invocation.
    ///
    /// # Errors
    /// The system's reason. Some tasks may be in the class.
    fn bind(&self, tasks: &Members, clos: ClosId) -> Result<(), String>;
}

/// What [`CacheWays`] is made of.
pub struct CacheWaysParts {
    /// The models.
    pub models: Arc<SizingModels>,
    /// Sizes of objects.
    pub sizes: Arc<ObjectSizes>,
    /// Chooses the class of an invocation.
    pub policy: Box<dyn Placement>,
    /// The classes at the start: CASY's, with `insensitive` ways. If there is a binder, the machine has them already.
    pub layout: Arc<ClosLayout>,
    /// The ways of the insensitive functions in `layout`.
    pub insensitive: Ways,
    /// When the classes are fitted to the running invocations, none of them may be predicted slower than without
    /// partitioning by more than this. `None`: the classes stay CASY's.
    pub fit_guard: Option<Tolerance>,
    /// Lines of 64 bytes in one way.
    pub lines_per_way: f64,
    /// Binds sandboxes; none on a machine without classes.
    pub binder: Option<Arc<dyn ClosBinder>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

#[cfg(test)]
mod tests;
