//! Plans the steps from the present groups to the wanted ones, in an order that is safe at every point, or refuses with
//! a reason. Pure.
//!
//! The order: shrink masks, remove only as many groups as the new ones need classes, make and set new groups, grow
//! masks, remove the rest. So during the change no two classes share a way that do not share it before or after. One
//! exception: a mask that moves to completely other ways cannot be empty in between, and moves in the growing phase.
//! Foreign groups and the default group are never in a plan.

use std::collections::{BTreeMap, BTreeSet};

use nigh_terms::{CacheDomain, WayMask, invariant};

use super::bandwidth::{BandwidthLimit, BandwidthRefusal};
use super::groups::{GroupMode, GroupName, LiveState};
use super::probe::{CacheInfo, Probe};
use super::schemata::{Resource, Schemata, Value};

/// A class as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedGroup {
    /// Its name.
    pub name: GroupName,
    /// Its ways in each L3. A domain that is not named keeps its mask (in a new group, the kernel's first mask).
    pub masks: BTreeMap<CacheDomain, WayMask>,
    /// Its bandwidth limit in each L3's domain. A domain that is not named keeps its limit.
    pub bandwidth: BTreeMap<CacheDomain, BandwidthLimit>,
}

/// All of Nigh's wanted classes. A class that is not named is removed. The default class is not included.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WantedLayout {
    /// The classes.
    pub groups: Vec<WantedGroup>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A group to make.
    Make(GroupName),
    /// A group to remove.
    Remove(GroupName),
    /// Values to write, with one write.
    Write(GroupName, Schemata),
}

/// Why a layout is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No L3 can be allocated.
    #[error("the L3 cannot be allocated here")]
    NoCache,
    /// A name twice.
    #[error("the group {0} is named twice")]
    Twice(GroupName),
    /// More classes are wanted than available.
    #[error(
        "the layout needs {wanted} classes, and {available} are available{} (hint: use fewer classes, or remove others' groups)",
        others(.foreign)
    )]
    TooMany {
        /// How many.
        wanted: usize,
        /// How many Nigh can have.
        available: usize,
        /// Others' groups.
        foreign: Vec<String>,
    },
    /// The domain does not exist.
    #[error("{group}: the L3 cache domain {domain} is not online (online: {known:?})")]
    NoDomain {
        /// The group.
        group: GroupName,
        /// The domain.
        domain: CacheDomain,
        /// Those on line.
        known: Vec<u32>,
    },
    /// The mask is invalid.
    #[error("{group}: {mask} cannot be a mask of L3 {domain}: {reason}")]
    NoMask {
        /// The group.
        group: GroupName,
        /// The domain.
        domain: CacheDomain,
        /// The mask.
        mask: WayMask,
        /// Why not.
        reason: String,
    },
    /// A foreign group has these ways exclusively.
    #[error("{group}: {mask} of L3 {domain} overlaps {holder}, which is exclusive")]
    Exclusive {
        /// The group.
        group: GroupName,
        /// The domain.
        domain: CacheDomain,
        /// The mask.
        mask: WayMask,
        /// Who holds it.
        holder: String,
    },
    /// The limit cannot be set.
    #[error("{group}: bandwidth of domain {domain}: {reason}")]
    Bandwidth {
        /// The group.
        group: GroupName,
        /// The domain.
        domain: CacheDomain,
        /// Why not.
        reason: BandwidthRefusal,
    },
    /// One of Nigh's groups was pseudo-locked by somebody else.
    #[error("{0} is pseudo-locked (hint: remove it by hand)")]
    Locked(GroupName),
}

fn others(foreign: &[String]) -> String {
    if foreign.is_empty() { String::new() } else { format!("; others hold {}", foreign.join(", ")) }
}

/// The steps from `live` to `wanted`; none when nothing changes.
pub fn plan(probe: &Probe, live: &LiveState, wanted: &WantedLayout) -> Result<Vec<Step>, Refusal> {
    let l3 = probe.l3.as_ref().ok_or(Refusal::NoCache)?;
    let mut names = BTreeSet::new();
    if let Some(twice) = wanted.groups.iter().find(|group| !names.insert(&group.name)) {
        return Err(Refusal::Twice(twice.name.clone()));
    }
    let available = probe.closids.available();
    if names.len() > available {
        let foreign = probe.closids.foreign.clone();
        return Err(Refusal::TooMany { wanted: names.len(), available, foreign });
    }
    let (mut shrink, mut make, mut grow) = (Vec::new(), Vec::new(), Vec::new());
    for group in &wanted.groups {
        let target = target(probe, l3, live, group)?;
        match live.owned(&group.name) {
            None => {
                make.push(Step::Make(group.name.clone()));
                if !target.is_empty() {
                    make.push(Step::Write(group.name.clone(), target));
                }
            }
            Some(now) => {
                if now.mode == GroupMode::PseudoLocked {
                    return Err(Refusal::Locked(group.name.clone()));
                }
                let smaller = shrunk(l3, &now.schemata, &target);
                let mut between = now.schemata.clone();
                smaller.iter().for_each(|(of, domain, value)| between.set(of.clone(), domain, value.clone()));
                let larger = target.changes_from(&between);
                let write = |values: Schemata| (!values.is_empty()).then(|| Step::Write(group.name.clone(), values));
                shrink.extend(write(smaller));
                grow.extend(write(larger));
            }
        }
    }
    let mut old = live.owned_names();
    old.retain(|name| !names.contains(name));
    let made = make.iter().filter(|step| matches!(step, Step::Make(_))).count();
    let later = old.split_off(made.saturating_sub(probe.closids.free()).min(old.len()));
    let remove = |names: Vec<GroupName>| names.into_iter().map(Step::Remove);
    let steps: Vec<Step> = shrink.into_iter().chain(remove(old)).chain(make).chain(grow).chain(remove(later)).collect();
    for step in &steps {
        let Step::Write(group, values) = step else { continue };
        for (_, domain, value) in values.iter() {
            let Value::Mask(mask) = value else { continue };
            invariant!(l3.wrong(*mask).is_none(), "{group}: the kernel takes no mask {mask} in L3 {domain}");
        }
    }
    Ok(steps)
}

/// The values a group should have, both halves of the cache under CDP.
pub(super) fn target(
    probe: &Probe,
    l3: &CacheInfo,
    live: &LiveState,
    group: &WantedGroup,
) -> Result<Schemata, Refusal> {
    let mut values = Schemata::default();
    let no_domain = |domain, known: &[CacheDomain]| Refusal::NoDomain {
        group: group.name.clone(),
        domain,
        known: known.iter().map(|domain| domain.0).collect(),
    };
    let resources = l3.resources(&Resource::L3);
    for (&domain, &mask) in &group.masks {
        if !l3.domains.contains(&domain) {
            return Err(no_domain(domain, &l3.domains));
        }
        if let Some(reason) = l3.wrong(mask) {
            return Err(Refusal::NoMask { group: group.name.clone(), domain, mask, reason });
        }
        let others = live.groups.iter().filter(|other| other.owned().is_none()).chain([&live.root]);
        for other in others.filter(|other| other.mode == GroupMode::Exclusive) {
            let held = resources.iter().filter_map(|resource| other.schemata.mask(resource, domain));
            if held.into_iter().any(|held| held.overlaps(mask)) {
                let holder = other.title().to_owned();
                return Err(Refusal::Exclusive { group: group.name.clone(), domain, mask, holder });
            }
        }
        for resource in &resources {
            values.set(resource.clone(), domain, Value::Mask(mask));
        }
    }
    for (&domain, limit) in &group.bandwidth {
        let refused = |reason| Refusal::Bandwidth { group: group.name.clone(), domain, reason };
        let value = limit.value(probe.mb.as_ref()).map_err(refused)?;
        let known = probe.mb.as_ref().map(|mb| mb.domains.as_slice()).unwrap_or_default();
        if !known.contains(&domain) {
            return Err(no_domain(domain, known));
        }
        values.set(Resource::Mb, domain, Value::Bandwidth(value));
    }
    Ok(values)
}

/// The values that can shrink first: a mask to the part that it keeps, if that is a valid mask, and a lower bandwidth.
fn shrunk(l3: &CacheInfo, now: &Schemata, target: &Schemata) -> Schemata {
    let mut values = Schemata::default();
    for (resource, domain, value) in target.iter() {
        match (now.get(resource, domain), value) {
            (Some(Value::Mask(now)), Value::Mask(new)) => {
                let kept = now.intersection(*new);
                if kept != *now && l3.wrong(kept).is_none() {
                    values.set(resource.clone(), domain, Value::Mask(kept));
                }
            }
            (Some(Value::Bandwidth(now)), Value::Bandwidth(new)) if new < now => {
                values.set(resource.clone(), domain, value.clone());
            }
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use nigh_terms::Ways;

    use super::*;
    use crate::resctrl::emulator::{Dialect, Emulator, MachineConfig};
    use crate::resctrl::fs::ResctrlFs;

    fn name(name: &str) -> GroupName {
        GroupName::new(name).unwrap()
    }

    fn wanted(groups: &[(&str, u8, u8)]) -> WantedLayout {
        let groups = groups.iter().map(|&(group, first, count)| WantedGroup {
            name: name(group),
            masks: BTreeMap::from([(CacheDomain(0), WayMask::contiguous(first, Ways(count)))]),
            bandwidth: BTreeMap::new(),
        });
        WantedLayout { groups: groups.collect() }
    }

    fn planned(emulator: &Emulator, wanted: &WantedLayout) -> Result<Vec<Step>, Refusal> {
        let live = LiveState::read(emulator).unwrap();
        plan(&Probe::read(emulator, &live).unwrap().unwrap(), &live, wanted)
    }

    fn machine() -> Emulator {
        Emulator::new(MachineConfig::cat_only(Dialect::Linux7, 11, 4, 1, 2))
    }

    fn text(steps: &[Step]) -> Vec<String> {
        let shown = steps.iter().map(|step| match step {
            Step::Make(name) => format!("make {name}"),
            Step::Remove(name) => format!("remove {name}"),
            Step::Write(name, values) => format!("{name} {}", values.to_command().trim_end()),
        });
        shown.collect()
    }

    #[test]
    fn what_shrinks_comes_before_what_grows() {
        let emulator = machine();
        for (group, mask) in [("nigh-a", "L3:0=3f\n"), ("nigh-b", "L3:0=7c0\n")] {
            emulator.make_group(group).unwrap();
            emulator.write(&format!("{group}/schemata"), mask).unwrap();
        }
        // b grows into what a gives up, and is named first.
        let steps = planned(&emulator, &wanted(&[("nigh-b", 2, 9), ("nigh-a", 0, 2)])).unwrap();
        assert_eq!(text(&steps), ["nigh-a L3:0=3", "nigh-b L3:0=7fc"]);
        assert_eq!(planned(&emulator, &wanted(&[("nigh-a", 0, 6), ("nigh-b", 6, 5)])).unwrap(), []);
    }

    #[test]
    fn only_as_many_groups_go_early_as_new_ones_need_classes() {
        let emulator = machine();
        for group in ["nigh-a", "nigh-b", "theirs"] {
            emulator.make_group(group).unwrap();
        }
        let steps = planned(&emulator, &wanted(&[("nigh-c", 0, 1)])).unwrap();
        assert_eq!(text(&steps), ["remove nigh-a", "make nigh-c", "nigh-c L3:0=1", "remove nigh-b"]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let emulator = machine();
        emulator.make_group("theirs").unwrap();
        let refused = |layout: &WantedLayout| planned(&emulator, layout).unwrap_err().to_string();
        let all = [("nigh-a", 0, 1), ("nigh-b", 0, 1), ("nigh-c", 0, 1)];
        assert!(refused(&wanted(&all)).contains("the layout needs 3 classes, and 2 are available; others hold theirs"));
        assert!(refused(&wanted(&[("nigh-a", 0, 0)])).contains("it holds no way"));
        assert!(refused(&wanted(&[("nigh-a", 9, 3)])).contains("the cache has the ways 7ff"));
        assert!(refused(&wanted(&[("nigh-a", 0, 1), ("nigh-a", 1, 1)])).contains("named twice"));
        let mut elsewhere = wanted(&[("nigh-a", 0, 1)]);
        elsewhere.groups[0].masks = BTreeMap::from([(CacheDomain(7), WayMask::from_bits(1))]);
        assert!(refused(&elsewhere).contains("L3 cache domain 7 is not online"));
        let mut sparse = wanted(&[("nigh-a", 0, 1)]);
        sparse.groups[0].masks = BTreeMap::from([(CacheDomain(0), WayMask::from_bits(5))]);
        assert!(refused(&sparse).contains("not neighbours"));
        sparse.groups[0].masks.clear();
        sparse.groups[0].bandwidth.insert(CacheDomain(0), BandwidthLimit::Percent(50));
        assert!(refused(&sparse).contains("cannot limit memory bandwidth"));
        emulator.write("schemata", "L3:0=7fe\n").unwrap();
        emulator.write("theirs/schemata", "L3:0=1\n").unwrap();
        emulator.write("theirs/mode", "exclusive\n").unwrap();
        assert!(refused(&wanted(&[("nigh-a", 0, 1)])).contains("overlaps theirs"));
    }
}
