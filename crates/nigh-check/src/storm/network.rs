//! The network: a message may be lost, doubled, late or cut off, as the present faults say.

use super::clock::MS;
use super::fault::FaultKind;
use super::packet::{Event, Host, Packet};
use super::world::Storm;

/// The delay between processes of one machine, in nanoseconds.
const NEAR: u64 = 20_000;

impl Storm {
    /// Sends a packet.
    pub(super) fn send(&mut self, from: Host, to: Host, packet: Packet) {
        if from == to {
            return self.after(NEAR, Event::Arrive(to, packet));
        }
        if let Some(kind) = self.cut(from, to) {
            return self.strikes.add(kind);
        }
        if let Some(pick) = self.lasting(FaultKind::MessageLost)
            && self.net.chance(30 + (pick % 300) as u32)
        {
            return self.strikes.add(FaultKind::MessageLost);
        }
        let mut wait = self.net.between(MS / 10, self.plan.jitter_ms * MS);
        if self.lasting(FaultKind::MessageDoubled).is_some() && packet.may_be_doubled() && self.net.chance(250) {
            self.strikes.add(FaultKind::MessageDoubled);
            let again = if self.net.chance(500) { self.net.between(0, 20) } else { self.net.between(20, 6_000) };
            self.after(wait + again * MS, Event::Arrive(to, packet.clone()));
        }
        if self.lasting(FaultKind::MessageLate).is_some() && self.net.chance(150) {
            self.strikes.add(FaultKind::MessageLate);
            wait += if self.net.chance(700) { self.net.between(1, 50) } else { self.net.between(50, 4_000) } * MS;
        }
        self.after(wait, Event::Arrive(to, packet));
    }

    /// The fault that keeps packets from passing between two machines; none if they pass.
    fn cut(&self, from: Host, to: Host) -> Option<FaultKind> {
        let faults = self.active.iter().map(|index| self.plan.faults[*index]);
        let mut cuts = faults.filter(|fault| {
            let (leaves, arrives) = (fault.pick >> from & 1, fault.pick >> to & 1);
            match fault.kind {
                FaultKind::Partition => leaves != arrives,
                FaultKind::OneWayPartition => leaves > arrives,
                _ => false,
            }
        });
        cuts.next().map(|fault| fault.kind)
    }
}
