//! The fabric's model as a whole: its workflows are the paper's, nothing is lost, and protocols differ where they
//! should.

#![expect(clippy::expect_used, reason = "a test ends by panicking")]

use nigh_sim::fabric::{
    Failure, Hardware, Jitter, JitteredPart, Link, Outcome, Picos, Run, Server, System, gets_at_once, one_get, one_put,
    simulate, two_puts, workflows,
};
use proptest::prelude::*;

const HARDWARE: Hardware = Hardware::APTA;
const ALL: [System; 11] = [
    System::S3,
    System::Rdma,
    System::RdmaFaast,
    System::FastRdmaFaast,
    System::FastRdmaApta,
    System::CxlUncached,
    System::CxlCached,
    System::Apta,
    System::Nigh,
    System::MemoryServer,
    System::MemoryServerCache,
];
/// Computing as measured is too long to see the network's; the figures of the experiment have about this.
const SCALE: f64 = 0.01;

fn run(workflow: &nigh_sim::fabric::Workflow, system: System, hardware: &Hardware) -> Outcome {
    simulate(&Run { compute_scale: SCALE, ..Run::plain(workflow, system, hardware) })
}

fn time(outcome: &Outcome) -> Picos {
    outcome.time.expect("nobody is lost, so nobody is blocked")
}

#[test]
fn gets_and_puts_are_those_of_the_papers_table_4() {
    // Gets that hit and miss; puts that invalidate nobody and somebody.
    let table = [(2, 2, 4, 0), (2, 2, 1, 1), (3, 2, 2, 1), (2, 3, 5, 1), (2, 1, 3, 0), (3, 3, 6, 0)];
    for system in [System::CxlCached, System::Apta, System::Nigh] {
        for (workflow, expected) in workflows().iter().zip(table) {
            let traffic = run(workflow, system, &HARDWARE).traffic;
            let counted = (traffic.hits, traffic.misses, traffic.puts_alone, traffic.puts_invalidating);
            assert_eq!(counted, expected, "{} on {}", workflow.name, system.name());
        }
    }
}

#[test]
fn every_byte_that_is_read_was_sent_or_there_and_every_byte_sent_arrives() {
    for workflow in &workflows() {
        for system in ALL {
            let traffic = run(workflow, system, &HARDWARE).traffic;
            let at = format!("{} on {}", workflow.name, system.name());
            assert_eq!(traffic.sent_bytes, traffic.received_bytes, "{at}");
            assert_eq!(traffic.read_bytes, traffic.received_bytes + traffic.hit_bytes, "{at}");
            assert_eq!(traffic.written_bytes, traffic.stored_bytes, "{at}");
        }
        let read = |system| run(workflow, system, &HARDWARE).traffic.read_bytes;
        assert!(ALL.into_iter().all(|system| read(system) == read(System::Rdma)), "{}", workflow.name);
    }
}

#[test]
fn a_run_is_decided_by_its_seed() {
    let workflows = workflows();
    let drawn = |seed, part| {
        let jitter = Some(Jitter { deviation: 0.4, part });
        let run = Run::plain(&workflows[1], System::CxlCached, &HARDWARE);
        simulate(&Run { compute_scale: SCALE, jitter, seed, ..run })
    };
    for part in [JitteredPart::Messages, JitteredPart::MessagesAndStreams] {
        assert_eq!(drawn(1, part), drawn(1, part));
        assert_ne!(drawn(1, part).time, drawn(2, part).time);
    }
}

#[test]
fn a_dead_sharer_blocks_the_eager_put_and_not_the_lazy_ones() {
    let dead = [Failure { server: Server(1), stage: 0 }];
    let put = one_put(100_000, 2);
    for system in ALL {
        let alive = Run::plain(&put, system, &HARDWARE);
        let lost = simulate(&Run { failures: &dead, ..alive });
        if system == System::CxlCached {
            assert_eq!(lost.time, None);
            assert_eq!((lost.blocked[0].server, lost.blocked[0].putting.is_some()), (Server(0), true));
        } else {
            assert_eq!(lost.functions, simulate(&alive).functions, "{}: a dead sharer costs nothing", system.name());
        }
    }
}

#[test]
fn a_second_put_beside_a_dead_sharer_stalls_by_aptas_table_and_not_by_nighs() {
    let dead = [Failure { server: Server(1), stage: 0 }];
    let puts = two_puts(100_000, 2);
    let blocked = |system| simulate(&Run { failures: &dead, ..Run::plain(&puts, system, &HARDWARE) }).time.is_none();
    assert!(blocked(System::Apta) && blocked(System::CxlCached));
    assert!(!blocked(System::Nigh) && !blocked(System::CxlUncached));
}

#[test]
fn only_the_eager_put_takes_longer_for_its_sharers() {
    let put = |system, sharers| time(&simulate(&Run::plain(&one_put(100_000, sharers), system, &HARDWARE)));
    let waited = put(System::CxlCached, 3) - put(System::CxlCached, 0);
    assert_eq!(waited, HARDWARE.reverse_map + HARDWARE.cxl.one_way + HARDWARE.cxl.one_way);
    for system in [System::Apta, System::Nigh, System::RdmaFaast] {
        assert_eq!(put(system, 3), put(system, 0), "{}", system.name());
    }
}

#[test]
fn one_get_takes_its_way_its_look_ups_and_its_bytes() {
    let get = |system, bytes| time(&simulate(&Run::plain(&one_get(bytes), system, &HARDWARE))).get();
    // 500 ns there and back, two look-ups of 6.667 ns, 32 ns to the first line, 100 ps a byte.
    assert_eq!(get(System::Apta, 1_000_000), 1_000_000 + 13_334 + 32_000 + 100_000_000);
    // 123 round trips of 128 lines at 1038.667 ns (the link would take 819.2), and the last 576 bytes on the link.
    assert_eq!(get(System::CxlUncached, 1_000_000), 123 * 1_038_667 + 57_600);
}

#[test]
fn servers_that_read_at_once_share_the_memory_and_nothing_else() {
    let bytes = 10_000_000;
    let get = |servers| time(&simulate(&Run::plain(&gets_at_once(bytes, servers), System::Apta, &HARDWARE))).micros();
    assert_eq!(get(1).round(), 1001.0);
    let memory = bytes as f64 * 4.0 / HARDWARE.memory_bytes_per_second as f64 * 1e6;
    assert!(get(4) > memory && get(4) < memory * 1.02, "{} and {memory}", get(4));
}

/// All networks alike.
fn linked(gigabytes: u64, nanos: u64) -> Hardware {
    let link = Link { one_way: Picos::from_nanos(nanos), bytes_per_second: gigabytes * 1_000_000_000 };
    Hardware { cxl: link, rdma: link, s3: link, memory_server: link, ..HARDWARE }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_runs_alone_is_never_slower_with_more_bandwidth_or_less_latency(
        bytes in 1_u64..3_000_000, system in 0..ALL.len(), bandwidth in 1_u64..40, more in 1_u64..4, nanos in 50_u64..2000,
    ) {
        let [.., image, _] = workflows();
        for workflow in [one_get(bytes), one_put(bytes, 2), image] {
            let with = |gigabytes, nanos| time(&run(&workflow, ALL[system], &linked(gigabytes, nanos)));
            prop_assert!(with(bandwidth + more, nanos) <= with(bandwidth, nanos), "{}", workflow.name);
            prop_assert!(with(bandwidth, nanos / 2) <= with(bandwidth, nanos), "{}", workflow.name);
        }
    }

    /// Where functions take turns at a link or the memory, what comes sooner may lose its turn to another: a piece a
    /// function.
    #[test]
    fn more_bandwidth_and_less_latency_make_no_workflow_slower_by_more_than_turns_that_are_lost(
        which in 0..6_usize, system in 0..ALL.len(), bandwidth in 1_u64..40, more in 1_u64..4, nanos in 50_u64..2000,
    ) {
        let workflow = &workflows()[which];
        let with = |gigabytes, nanos| time(&run(workflow, ALL[system], &linked(gigabytes, nanos)));
        // RDMA on CXL's link has less than half of its bandwidth.
        let turns = Picos::of_bytes(16_384 * workflow.functions.len() as u64, bandwidth * 400_000_000);
        let slow = with(bandwidth, nanos) + turns;
        prop_assert!(with(bandwidth + more, nanos) <= slow);
        prop_assert!(with(bandwidth, nanos / 2) <= slow);
    }

    #[test]
    fn more_computing_is_never_faster(which in 0..6_usize, system in 0..ALL.len(), scale in 0.0..0.1_f64) {
        let workflow = &workflows()[which];
        let with = |compute_scale| {
            time(&simulate(&Run { compute_scale, ..Run::plain(workflow, ALL[system], &HARDWARE) }))
        };
        prop_assert!(with(scale) <= with(scale * 1.5));
    }
}
