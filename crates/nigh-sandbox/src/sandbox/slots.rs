//! Numbers of living sandboxes; no two have the same. A slot gives a sandbox its user and, on a shared network, its
//! loopback address.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;

/// The default users of sandboxes. No distribution assigns these numbers (systemd's list of users and groups marks the
/// range as unused), and they fit a signed 32-bit number.
pub(super) const DEFAULT_UIDS: Range<u32> = 2_000_000_000..2_000_032_768;
/// The first bytes of the loopback addresses of sandboxes that share the host's network.
const SHARED_NETWORK: [u8; 2] = [127, 77];
/// The first bytes of the addresses of probes, which differ from those of sandboxes.
const PROBES: [u8; 2] = [127, 76];

/// The address of a probe on a shared network.
pub(super) const fn probe_address(number: u16) -> Ipv4Addr {
    let [high, low] = number.to_be_bytes();
    Ipv4Addr::new(PROBES[0], PROBES[1], high, low)
}

/// Assigns slots in order, so that a freed number rests as long as possible.
#[derive(Debug)]
pub(super) struct Slots {
    count: u16,
    /// The first address. Two Nighs on one network must not use the same addresses.
    addresses: u16,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u16,
    lent: HashSet<u16>,
}

impl Slots {
    /// `count` slots from `first` on. A random `first` avoids the numbers that an earlier process assigned last.
    pub(super) fn new(count: u16, first: u16) -> Arc<Self> {
        Arc::new(Self {
            count,
            addresses: first,
            state: Mutex::new(State { next: first % count.max(1), lent: HashSet::new() }),
        })
    }

    /// A free slot, or none.
    pub(super) fn lend(self: &Arc<Self>) -> Option<Slot> {
        let mut state = self.state.lock();
        for _ in 0..self.count {
            let number = state.next;
            state.next = (number + 1) % self.count;
            if state.lent.insert(number) {
                return Some(Slot { number, slots: Arc::clone(self) });
            }
        }
        None
    }
}

/// A slot. Dropping it frees the number.
#[derive(Debug)]
pub(super) struct Slot {
    number: u16,
    slots: Arc<Slots>,
}

impl Slot {
    /// The user id of the slot's sandbox on the host.
    pub(super) fn uid(&self, uids: &Range<u32>) -> u32 {
        uids.start + u32::from(self.number)
    }

    /// The address of the slot's sandbox on a shared network.
    pub(super) fn address(&self) -> Ipv4Addr {
        let [high, low] = self.number.wrapping_add(self.slots.addresses).to_be_bytes();
        // A last byte of 0 or 255 is valid on loopback. 127.0.0.1 itself is never assigned.
        Ipv4Addr::new(SHARED_NETWORK[0], SHARED_NETWORK[1], high, low)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.state.lock().lent.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_lent_once_until_it_is_given_back() {
        let slots = Slots::new(3, 2);
        let lent: Vec<Slot> = std::iter::from_fn(|| slots.lend()).collect();
        let numbers: Vec<u16> = lent.iter().map(|slot| slot.number).collect();
        assert_eq!(numbers, [2, 0, 1]);
        assert!(slots.lend().is_none());
        drop(lent);
        assert_eq!(slots.lend().unwrap().number, 2);
    }

    #[test]
    fn a_number_just_given_back_rests() {
        let slots = Slots::new(10, 0);
        drop(slots.lend());
        assert_eq!(slots.lend().unwrap().uid(&DEFAULT_UIDS), DEFAULT_UIDS.start + 1);
    }

    #[test]
    fn slots_have_different_addresses() {
        let slots = Slots::new(600, 0);
        let lent: Vec<Slot> = std::iter::from_fn(|| slots.lend()).collect();
        let addresses: HashSet<Ipv4Addr> = lent.iter().map(Slot::address).collect();
        assert_eq!(addresses.len(), 600);
        assert!(addresses.iter().all(Ipv4Addr::is_loopback));
    }
}
