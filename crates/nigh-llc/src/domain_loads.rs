//! The loads of every cache domain of a machine: classes are the same in each, what runs there is not.

use std::collections::BTreeMap;

use nigh_terms::CacheDomain;

use crate::way_loads::WayLoads;

/// The loads of every cache domain of a machine, all with one layout.
#[derive(Debug, Clone)]
pub struct DomainLoads {
    domains: BTreeMap<CacheDomain, WayLoads>,
}

impl DomainLoads {
    /// No load in any of the domains.
    #[must_use]
    pub fn new(domains: impl IntoIterator<Item = CacheDomain>, empty: &WayLoads) -> Self {
        Self { domains: domains.into_iter().map(|domain| (domain, empty.clone())).collect() }
    }

    /// One domain's loads.
    #[must_use]
    pub fn domain(&self, domain: CacheDomain) -> Option<&WayLoads> {
        self.domains.get(&domain)
    }

    /// One domain's loads, to change.
    pub fn domain_mut(&mut self, domain: CacheDomain) -> Option<&mut WayLoads> {
        self.domains.get_mut(&domain)
    }

    /// Every domain with its loads.
    pub fn iter(&self) -> impl Iterator<Item = (CacheDomain, &WayLoads)> {
        self.domains.iter().map(|(domain, loads)| (*domain, loads))
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::ClosId;

    use super::*;
    use crate::way_loads::UnknownNeed;
    use crate::way_loads::tests::{figure_4, need};

    #[test]
    fn domains_are_loaded_apart() {
        let empty = figure_4(UnknownNeed::LITERAL);
        let mut both = DomainLoads::new([CacheDomain(0), CacheDomain(1)], &empty);
        both.domain_mut(CacheDomain(1)).unwrap().commit(ClosId(7), need(8)).unwrap();
        let running: Vec<_> = both.iter().map(|(domain, loads)| (domain.0, loads.running().len())).collect();
        assert_eq!(running, [(0, 0), (1, 1)]);
        assert!(both.domain(CacheDomain(2)).is_none());
    }
}
