//! The classes of service (CLOS) and their ways: CASY IV-C and its figure 4, for any cache.
//!
//! The cache is divided into two chunks. The insensitive chunk has CLOS with the smallest mask of the hardware (usually
//! one way). It lies at the side of the ways that devices write to (DDIO), which would hurt sensitive functions. The
//! sensitive chunk has CLOS of as many different sizes as possible, with each way in at most three of them. Class 0 is
//! the default: all ways, resctrl's root group, never changed. A layout is the same in every cache domain. If the paper
//! leaves sizes open, they are spread evenly, which gives its figure's "two to eight".

use nigh_terms::{ClosId, WayMask, Ways, invariant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::miss_curve::WAYS_MAX;
use crate::size_spread::{Nesting, spread};

/// Most classes of service a layout can have; hardware has 4 to 16, AMD up to 32.
pub const CLASSES_MAX: u8 = 32;

/// The hardware's limits, without the classes that others hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheShape {
    /// Ways of the cache.
    pub ways: Ways,
    /// Available classes, with the default.
    pub classes: u8,
    /// The fewest ways a mask may have (`min_cbm_bits`).
    pub min_ways: Ways,
    /// Ways that devices write to as well (`shareable_bits`).
    pub shareable: WayMask,
}

/// The purpose of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClosKind {
    /// All ways: functions without a profile.
    Default,
    /// Functions that need no cache.
    Insensitive,
    /// Functions that need some.
    Sensitive,
    /// A group of functions that share well, sensitive or not.
    Cluster,
}

/// One class of service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clos {
    /// Its index in the layout.
    pub id: ClosId,
    /// Its purpose.
    pub kind: ClosKind,
    /// Its ways.
    pub mask: WayMask,
}

/// The class of a function that needs more ways than the sensitive chunk has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeyondChunk {
    /// The largest sensitive class, apart from thrashing functions. The default rule.
    #[default]
    LargestClass,
    /// The default class: all ways, shared with all functions.
    DefaultClass,
}

/// The parameters of CASY's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CasyRequest {
    /// The hardware.
    pub shape: CacheShape,
    /// N_CI: ways for the insensitive.
    pub insensitive: Ways,
    /// Whether sensitive classes may cross each other's borders.
    pub nesting: Nesting,
    /// The most sensitive classes that share a way; the paper's number is [`CasyRequest::SHARING`].
    pub sharing_max: u8,
    /// The rule for needs above the chunk.
    pub beyond: BeyondChunk,
}

impl CasyRequest {
    /// "One way is used in a maximum of three CLOSes" (IV-C).
    pub const SHARING: u8 = 3;

    /// The paper's request for a machine: nested classes, each way in at most three.
    #[must_use]
    pub const fn of(shape: CacheShape, insensitive: Ways) -> Self {
        Self {
            shape,
            insensitive,
            nesting: Nesting::Laminar,
            sharing_max: Self::SHARING,
            beyond: BeyondChunk::LargestClass,
        }
    }
}

/// Why a layout is not possible.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayoutRefusal {
    /// No such cache exists.
    #[error(
        "no cache has {ways} ways with masks of at least {min_ways}: expected 1 to {}, and masks that fit",
        WAYS_MAX
    )]
    NoSuchCache {
        /// Ways asked for.
        ways: Ways,
        /// The smallest mask asked for.
        min_ways: Ways,
    },
    /// The hardware, or what others left of it, has too few classes.
    #[error(
        "the layout needs {needed} classes including the default, and {available} are available: use a smaller insensitive chunk"
    )]
    TooFewClasses {
        /// The classes needed.
        needed: usize,
        /// The classes available.
        available: u8,
    },
    /// The insensitive chunk does not divide into masks.
    #[error(
        "{insensitive} ways for insensitive functions do not divide into masks of {min_ways} ways, the smallest that this cache accepts"
    )]
    Indivisible {
        /// N_CI.
        insensitive: Ways,
        /// The smallest mask.
        min_ways: Ways,
    },
    /// The insensitive chunk is larger than the cache.
    #[error("{insensitive} ways for insensitive functions are more than the {ways} ways of the cache")]
    ChunkTooLarge {
        /// N_CI.
        insensitive: Ways,
        /// The cache.
        ways: Ways,
    },
    /// The rest of the cache is too small for a sensitive class.
    #[error("{sensitive} ways for sensitive functions are too few for a class: leave none or at least {least}")]
    ChunkTooSmall {
        /// N_CS.
        sensitive: Ways,
        /// The smallest sensitive class.
        least: Ways,
    },
    /// The request allows no sensitive class on any way.
    #[error("each way must be in at least one sensitive class; the request allows {asked}")]
    NoSharing {
        /// What was asked.
        asked: u8,
    },
    /// The hardware does not accept the mask.
    #[error("mask {mask} of class {id}: {}-way caches take one run of at least {} ways within the cache", shape.ways, shape.min_ways)]
    BadMask {
        /// The class.
        id: ClosId,
        /// Its mask.
        mask: WayMask,
        /// The hardware.
        shape: Box<CacheShape>,
    },
}

/// The classes of a cache, the default first. The hardware accepts each mask.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClosLayout {
    shape: CacheShape,
    classes: Vec<Clos>,
    beyond: BeyondChunk,
}

impl ClosLayout {
    /// A layout of the default class and these, in their order.
    pub fn new(
        shape: CacheShape,
        classes: impl IntoIterator<Item = (ClosKind, WayMask)>,
        beyond: BeyondChunk,
    ) -> Result<Self, LayoutRefusal> {
        let (ways, min_ways) = (shape.ways, shape.min_ways);
        if ways.0 == 0 || ways > WAYS_MAX || min_ways.0 == 0 || min_ways > ways {
            return Err(LayoutRefusal::NoSuchCache { ways, min_ways });
        }
        let every = WayMask::contiguous(0, ways);
        let default = (ClosKind::Default, every);
        let mut all = Vec::new();
        for (at, (kind, mask)) in std::iter::once(default).chain(classes).enumerate() {
            let available = shape.classes.min(CLASSES_MAX);
            if at >= usize::from(available) {
                return Err(LayoutRefusal::TooFewClasses { needed: at + 1, available });
            }
            let id = ClosId(at as u8);
            if !mask.is_contiguous() || mask.count() < min_ways || !every.covers(mask) {
                return Err(LayoutRefusal::BadMask { id, mask, shape: Box::new(shape) });
            }
            all.push(Clos { id, kind, mask });
        }
        Ok(Self { shape, classes: all, beyond })
    }

    /// The default class alone: no partitioning.
    pub fn unpartitioned(shape: CacheShape) -> Result<Self, LayoutRefusal> {
        Self::new(shape, [], BeyondChunk::DefaultClass)
    }

    /// CASY's layout: N_CI single-way classes, then the sensitive ones from small to large.
    pub fn casy(request: &CasyRequest) -> Result<Self, LayoutRefusal> {
        let CasyRequest { shape, insensitive, nesting, sharing_max, beyond } = *request;
        let CacheShape { ways, classes: available, min_ways, shareable } = shape;
        Self::unpartitioned(CacheShape { classes: available.max(1), ..shape })?;
        if insensitive > ways {
            return Err(LayoutRefusal::ChunkTooLarge { insensitive, ways });
        }
        if !insensitive.0.is_multiple_of(min_ways.0) {
            return Err(LayoutRefusal::Indivisible { insensitive, min_ways });
        }
        if sharing_max == 0 {
            return Err(LayoutRefusal::NoSharing { asked: sharing_max });
        }
        let sensitive = Ways(ways.0 - insensitive.0);
        let least = Ways(min_ways.0.max(SENSITIVE_LEAST.0));
        if sensitive.0 > 0 && sensitive < least {
            return Err(LayoutRefusal::ChunkTooSmall { sensitive, least });
        }
        let singles = insensitive.0 / min_ways.0;
        let needed = 1 + usize::from(singles) + usize::from(sensitive.0 > 0);
        if needed > usize::from(available) {
            return Err(LayoutRefusal::TooFewClasses { needed, available });
        }
        let (insensitive_first, sensitive_first) =
            if devices_write_low(shareable, ways) { (0, insensitive.0) } else { (sensitive.0, 0) };
        let singles_masks = (0..singles)
            .map(|at| (ClosKind::Insensitive, WayMask::contiguous(insensitive_first + at * min_ways.0, min_ways)));
        let classes_left = available.min(CLASSES_MAX).saturating_sub(1 + singles);
        let runs = spread(sensitive, least, usize::from(classes_left), sharing_max, nesting);
        let sensitive_masks = runs
            .into_iter()
            .map(|run| (ClosKind::Sensitive, WayMask::contiguous(sensitive_first + run.first, run.size)));
        let layout = Self::new(shape, singles_masks.chain(sensitive_masks), beyond)?;
        let chunk = |kind| layout.of_kind(kind).fold(WayMask::EMPTY, |all, class| all.union(class.mask));
        let (quiet, needy) = (chunk(ClosKind::Insensitive), chunk(ClosKind::Sensitive));
        invariant!(
            !quiet.overlaps(needy) && quiet.count() == insensitive && needy.count() == sensitive,
            "{insensitive} ways for insensitive functions and {sensitive} for sensitive ones are the masks {quiet} and {needy}"
        );
        Ok(layout)
    }

    /// The hardware it is for.
    #[must_use]
    pub const fn shape(&self) -> &CacheShape {
        &self.shape
    }

    /// Every class, the default first; a class's id is its index.
    #[must_use]
    pub fn classes(&self) -> &[Clos] {
        &self.classes
    }

    /// The class of this id.
    #[must_use]
    pub fn class(&self, id: ClosId) -> Option<&Clos> {
        self.classes.get(usize::from(id.0))
    }

    /// The default class.
    #[must_use]
    pub fn default_class(&self) -> &Clos {
        &self.classes[0]
    }

    /// The classes of a kind, in their order.
    pub fn of_kind(&self, kind: ClosKind) -> impl Iterator<Item = &Clos> {
        self.classes.iter().filter(move |class| class.kind == kind)
    }

    /// The candidate classes of a sensitive function with this need: all sensitive ones, or the one that the rule names
    /// if the need exceeds the chunk.
    pub fn for_sensitive(&self, need: Ways) -> impl Iterator<Item = &Clos> {
        let largest = self.of_kind(ClosKind::Sensitive).max_by_key(|class| class.mask.count()).copied();
        let beyond = largest.is_some_and(|class| need > class.mask.count());
        let only = beyond.then(|| match self.beyond {
            BeyondChunk::LargestClass => largest.map_or(ClosId::DEFAULT, |class| class.id),
            BeyondChunk::DefaultClass => ClosId::DEFAULT,
        });
        self.classes.iter().filter(move |class| match only {
            Some(id) => class.id == id,
            None => class.kind == ClosKind::Sensitive,
        })
    }
}

/// The smallest sensitive class: a function that needs one way is insensitive.
const SENSITIVE_LEAST: Ways = Ways(2);

/// Whether most of the ways that devices write to are in the lower half.
pub(crate) fn devices_write_low(shareable: WayMask, ways: Ways) -> bool {
    let low = shareable.ways().filter(|way| way * 2 < ways.0).count();
    2 * low > usize::from(shareable.count().0)
}

#[cfg(test)]
mod tests;
