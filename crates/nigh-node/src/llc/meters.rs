//! The metrics of the last-level cache.

use super::Llc;
use crate::telemetry::Sample;

impl Llc {
    /// Its ways, how much each is needed, and how many invocations are in each class; nothing if it is off.
    pub(crate) fn meters(&self) -> Vec<Sample> {
        let Some(station) = &self.station else { return Vec::new() };
        let loads = station.loads();
        let layout = loads.layout();
        let ways = layout.shape().ways.0;
        let mut samples = vec![Sample::number("nigh_llc_ways", f64::from(ways))];
        samples.extend(
            (0..ways).map(|way| {
                Sample::number("nigh_llc_way_load", loads.way_load(way).value()).with("way", way.to_string())
            }),
        );
        samples.extend(layout.classes().iter().map(|class| {
            let running = loads.running().iter().filter(|running| running.clos == class.id).count();
            Sample::number("nigh_llc_class_invocations", running as f64)
                .with("class", class.id.to_string())
                .with("kind", format!("{:?}", class.kind).to_lowercase())
        }));
        samples
    }
}
