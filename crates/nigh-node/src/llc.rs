//! The last-level cache of this node: the machine's cache, the classes of service, and what `nigh llc` shows.
//!
//! With resctrl, sandboxes are bound to the machine's classes. Without it Nigh makes the same decisions for the
//! processor's cache, records them with each activation, and binds nothing.

mod equipment;
mod meters;
mod stations;
mod status;

use std::path::Path;
use std::sync::Arc;

use nigh_engine::Registry;
use nigh_llc::{
    CacheShape, Casy, CasyRequest, ClosLayout, DefaultClassPlacement, Placement, SearchForm, SharedPlacement, Tolerance,
};
use nigh_sandbox::cgroup::cpuset::SandboxCpus;
use nigh_sizing::object_sizes::ObjectSizes;
use nigh_terms::{Clock, WayMask, Ways};
use nigh_ways::{CacheWays, CacheWaysParts, ClosBinder, ResctrlClasses, SizingModels, WayAllocation};
pub use nigh_ways::{FunctionUse, NoFigure, UseFigure, cache_shape};

pub use self::equipment::LlcError;
pub use self::status::{ClosStatus, LlcStatus, ModelRow, ModelStatus};
use crate::config::{LlcPolicy, LlcSettings};
use crate::profiling::{FunctionProfiler, IdleCache, ModelRows, ProfileReport, ProfileRequest, ProfilingError};
use crate::status::Level;

/// Where the kernel describes the first processor's third-level cache.
const INDEX3: &str = "/sys/devices/system/cpu/cpu0/cache/index3";
/// The number of classes assumed without resctrl: that of CASY's processor.
const CLASSES_ASSUMED: u8 = 8;
/// The insensitive functions' ways at the start, of eleven, as in CASY.
const INSENSITIVE_OF_ELEVEN: u16 = 3;
const LINE_BYTES: f64 = 64.0;

/// The last-level cache of a node.
pub(crate) struct Llc {
    /// The hook of each run; none if `llc.policy` is off or the cache is unknown.
    pub(crate) station: Option<Arc<CacheWays>>,
    classes: Option<Arc<ResctrlClasses>>,
    profiles_by_itself: bool,
    pub(crate) level: Level,
}

/// The processor's last-level cache: its ways, and the lines of one way.
fn described(index: &Path) -> Option<(Ways, f64)> {
    let read = |file: &str| std::fs::read_to_string(index.join(file)).ok();
    let ways: u8 = read("ways_of_associativity")?.trim().parse().ok()?;
    let kib: f64 = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
    (ways > 0 && Ways(ways) <= nigh_llc::WAYS_MAX).then(|| (Ways(ways), kib * 1024.0 / LINE_BYTES / f64::from(ways)))
}

fn off(detail: String) -> Level {
    Level { name: "cache ways".to_owned(), on: false, detail }
}

impl Llc {
    /// Opens the cache. Groups that an earlier incarnation left are taken over. `cpus` confines its sandboxes.
    ///
    /// # Errors
    /// If the models cannot be read, or the machine cannot apply a setting.
    pub(crate) async fn open(
        settings: &LlcSettings,
        registry: Arc<dyn Registry>,
        sizes: Arc<ObjectSizes>,
        clock: Arc<dyn Clock>,
        cpus: Result<SandboxCpus, String>,
    ) -> Result<Self, LlcError> {
        if settings.policy == LlcPolicy::Off {
            return Ok(Self {
                station: None,
                classes: None,
                profiles_by_itself: false,
                level: off("by the setting llc.policy".to_owned()),
            });
        }
        let described = described(Path::new(INDEX3));
        let (shape, machine, why_not) = match equipment::classes(settings, cpus)? {
            Ok((shape, classes)) => (Some(shape), Some(classes), String::new()),
            Err(reason) => (described.map(|(ways, _)| assumed(ways)), None, reason),
        };
        let Some(shape) = shape else {
            let level = off(format!("{why_not}; the processor's last-level cache is unknown too"));
            return Ok(Self { station: None, classes: None, profiles_by_itself: false, level });
        };
        let lines_per_way = described.map_or(LINES_OF_SILVER_4210R, |(_, lines)| lines);
        let insensitive = insensitive(settings, shape);
        let (layout, classes, why_not) = lay_out(shape, insensitive, machine, why_not);
        let Some(layout) = layout else {
            return Ok(Self { station: None, classes: None, profiles_by_itself: false, level: off(why_not) });
        };
        let level = if classes.is_some() {
            let beside = layout.classes().len() - 1;
            let detail =
                format!("{} ways, {beside} classes beside the default, policy {}", shape.ways, settings.policy);
            Level { name: "cache ways".to_owned(), on: true, detail }
        } else {
            off(format!("{why_not}; each activation records what would be done"))
        };
        let station = CacheWays::new(CacheWaysParts {
            models: Arc::new(SizingModels::open(registry).await?),
            sizes,
            policy: policy(settings.policy, lines_per_way),
            layout: Arc::new(layout),
            insensitive,
            fit_guard: (settings.policy == LlcPolicy::Nigh).then_some(Tolerance::ONE_PERCENT),
            lines_per_way,
            binder: classes.clone().map(|classes| classes as Arc<dyn ClosBinder>),
            clock,
        });
        let profiles_by_itself = settings.profile && classes.is_some();
        Ok(Self { station: Some(Arc::new(station)), classes, profiles_by_itself, level })
    }

    /// Returns when other invocations run than at the last fit. Never returns with CASY's fixed classes.
    pub(crate) async fn changed(&self) {
        match &self.station {
            Some(station) => station.changed().await,
            None => std::future::pending().await,
        }
    }

    /// Fits the classes to the running invocations.
    pub(crate) fn refit(&self) {
        let Some(station) = &self.station else { return };
        match station.refit() {
            Ok(Some(done)) => tracing::trace!(classes = done.classes, moved = done.moved, "classes fitted"),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the classes of service cannot be fitted to the running invocations"),
        }
    }

    /// Adapts the classes to the load since the last call.
    pub(crate) fn follow_load(&self) {
        let Some(station) = &self.station else { return };
        match station.follow_load() {
            Ok(Some(ways)) => tracing::info!(%ways, "the insensitive functions' share of the cache has changed"),
            Ok(None) => {}
            Err(error) => tracing::warn!(%error, "the classes of service cannot follow the load"),
        }
    }

    /// Profiles a function, which has the cache to itself, if nothing else runs.
    pub(crate) async fn profile(
        &self,
        profiling: &FunctionProfiler,
        request: &ProfileRequest,
        tell: impl FnMut(&ProfileReport),
    ) -> Result<ProfileReport, ProfilingError> {
        let (Some(station), Some(classes)) = (&self.station, &self.classes) else {
            return Err(ProfilingError::NoAllocation(self.level.detail.clone()));
        };
        if !station.suspend() {
            return Err(ProfilingError::Busy);
        }
        let _classes_come_back = Resumption { station, classes };
        let allocation = Arc::clone(classes) as Arc<dyn WayAllocation>;
        let shape = *station.loads().layout().shape();
        profiling.profile(request, &IdleCache { station, allocation, shape }, tell).await
    }

    /// Profiles one function without a model if the cache is idle, with events that it was invoked with.
    pub(crate) async fn profile_wanted(&self, profiling: &FunctionProfiler) {
        let (Some(station), true) = (&self.station, self.profiles_by_itself) else { return };
        let Some(wanted) = station.wanted_profile() else { return };
        let request = ProfileRequest {
            namespace: wanted.namespace.clone(),
            function: wanted.function.clone(),
            events: wanted.events.iter().filter_map(|event| serde_json::from_slice(event).ok()).collect(),
            form: SearchForm::Bisection,
            force: false,
        };
        match self.profile(profiling, &request, |_| ()).await {
            Ok(report) => tracing::info!(
                function = %wanted.function, runs = report.runs, seconds = report.seconds, pays = %report.break_even,
                "profiled in the background"
            ),
            Err(ProfilingError::Busy) => station.not_profiled(&wanted),
            Err(error) => tracing::warn!(function = %wanted.function, %error, "not profiled"),
        }
    }

    /// Makes a function's model from rows that were measured elsewhere.
    pub(crate) async fn learn(&self, profiling: &FunctionProfiler, rows: ModelRows) -> Result<(), ProfilingError> {
        let station = self.station.as_ref().ok_or_else(|| ProfilingError::NoAllocation(self.level.detail.clone()))?;
        profiling.learn(station, rows).await
    }

    /// Removes Nigh's classes from the machine.
    pub(crate) fn close(&self) {
        if let Some(classes) = &self.classes
            && let Err(error) = classes.remove_all()
        {
            tracing::warn!(%error, "groups of resctrl are left behind; the next start takes them over");
        }
    }

    /// The present status.
    pub(crate) fn status(&self) -> LlcStatus {
        let Some(station) = &self.station else {
            return LlcStatus {
                level: self.level.clone(),
                policy: None,
                shape: None,
                lines_per_way: None,
                classes: Vec::new(),
                way_loads: Vec::new(),
                models: Vec::new(),
                uses: None,
            };
        };
        let loads = station.loads();
        let layout = loads.layout();
        let classes = layout
            .classes()
            .iter()
            .map(|class| ClosStatus {
                clos: class.id,
                kind: class.kind,
                mask: class.mask,
                running: loads.running().iter().filter(|running| running.clos == class.id).count(),
                load: loads.class_load(class).value(),
            })
            .collect();
        let models = station.models().all().into_iter().map(|(namespace, function, model)| ModelStatus {
            namespace,
            function,
            code_sha256: model.model.rows().version().0.clone(),
            kind: format!("{:?}", model.model.kind()).to_lowercase(),
            rows: model
                .model
                .rows()
                .iter()
                .map(|row| ModelRow { bytes: row.input.size.0, ways: row.ways, class: row.class.to_string() })
                .collect(),
        });
        LlcStatus {
            level: self.level.clone(),
            policy: Some(station.policy().to_owned()),
            shape: Some(*layout.shape()),
            lines_per_way: Some(station.lines_per_way()),
            way_loads: (0..layout.shape().ways.0).map(|way| loads.way_load(way).value()).collect(),
            classes,
            models: models.collect(),
            uses: self.use_by_function(),
        }
    }
}

/// Restores the classes when a profile ends, even if it fails.
struct Resumption<'a> {
    station: &'a CacheWays,
    classes: &'a ResctrlClasses,
}

impl Drop for Resumption<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.classes.lay_out(self.station.loads().layout()) {
            tracing::error!(%error, "the classes of service are not restored after a profile; restart the node");
        }
        self.station.resume();
    }
}

/// The cache lines in one way of CASY's processor (1.25 MiB).
const LINES_OF_SILVER_4210R: f64 = 20_480.0;

const fn assumed(ways: Ways) -> CacheShape {
    CacheShape { ways, classes: CLASSES_ASSUMED, min_ways: Ways(1), shareable: WayMask::EMPTY }
}

fn insensitive(settings: &LlcSettings, shape: CacheShape) -> Ways {
    let share = u16::from(shape.ways.0) * INSENSITIVE_OF_ELEVEN / 11;
    settings.insensitive_ways.map_or(Ways(share as u8), Ways)
}

/// The classes at the start. The error is why the machine has none.
fn lay_out(
    shape: CacheShape,
    insensitive: Ways,
    machine: Option<ResctrlClasses>,
    why_not: String,
) -> (Option<ClosLayout>, Option<Arc<ResctrlClasses>>, String) {
    let layout = match ClosLayout::casy(&CasyRequest::of(shape, insensitive)) {
        Ok(layout) => layout,
        Err(refusal) => return (None, None, refusal.to_string()),
    };
    let Some(machine) = machine else { return (Some(layout), None, why_not) };
    match machine.lay_out(&layout) {
        Ok(()) => (Some(layout), Some(Arc::new(machine)), String::new()),
        Err(reason) => (Some(layout), None, reason),
    }
}

fn policy(policy: LlcPolicy, lines_per_way: f64) -> Box<dyn Placement> {
    match policy {
        LlcPolicy::Nigh => Box::new(SharedPlacement::new(lines_per_way)),
        LlcPolicy::Casy => Box::new(Casy),
        LlcPolicy::Off => Box::new(DefaultClassPlacement),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LlcBind;

    #[test]
    fn the_processors_description_gives_ways_and_lines() {
        let index = tempfile::tempdir().unwrap();
        assert_eq!(described(index.path()), None);
        std::fs::write(index.path().join("ways_of_associativity"), "11\n").unwrap();
        std::fs::write(index.path().join("size"), "14080K\n").unwrap();
        assert_eq!(described(index.path()), Some((Ways(11), LINES_OF_SILVER_4210R)));
        std::fs::write(index.path().join("ways_of_associativity"), "0\n").unwrap();
        assert_eq!(described(index.path()), None);
    }

    #[test]
    fn without_a_machine_the_layout_is_made_all_the_same() {
        let settings = LlcSettings {
            policy: LlcPolicy::Nigh,
            insensitive_ways: None,
            profile: true,
            bind: LlcBind::Tasks,
            insensitive_bandwidth: None,
        };
        let shape = assumed(Ways(11));
        let (layout, classes, why) = lay_out(shape, insensitive(&settings, shape), None, "no resctrl".to_owned());
        assert_eq!(layout.unwrap().classes().len(), 8);
        assert!(classes.is_none());
        assert_eq!(why, "no resctrl");
        let (layout, _, why) = lay_out(shape, Ways(11), None, String::new());
        assert!(layout.is_none() && !why.is_empty());
    }
}
