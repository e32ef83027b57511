//! The constants of the machines, with where each is from. "T2" is Apta's table II, "IV" its section IV, and so on.

use super::picos::Picos;

/// A full-duplex point-to-point link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// From one end to the other.
    pub one_way: Picos,
    /// In each direction.
    pub bytes_per_second: u64,
}

/// A compute server's and the memory server's parts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Hardware {
    /// CXL between a compute server and the memory server.
    pub cxl: Link,
    /// The measured RDMA network.
    pub rdma: Link,
    /// The store of section II that is loaded from and stored to (OpenCAPI's figures).
    pub memory_server: Link,
    /// An object store of the S3 kind.
    pub s3: Link,
    /// The memory server's one DRAM channel, shared by all.
    pub memory_bytes_per_second: u64,
    /// From a request at the memory server to its first line.
    pub memory_access: Picos,
    /// A look-up in one of the memory server's controllers.
    pub controller: Picos,
    /// Lines that a compute server may have outstanding.
    pub outstanding_lines: u64,
    /// A compute server finding the lines of an object that is invalidated.
    pub reverse_map: Picos,
    /// A copy found in the server's last-level cache.
    pub hit: Picos,
    /// How many times as long a key-value operation takes by RDMA on the same link.
    pub rdma_over_cxl: f64,
    /// What software coherence adds to each operation.
    pub software_coherence: Picos,
    /// Stamp, token and cover in each message of Nigh's: a line.
    pub nigh_header_bytes: u64,
}

/// Bytes of a cache line.
pub(super) const LINE_BYTES: u64 = 64;

const GIB: u64 = 1 << 30;

impl Hardware {
    /// Apta's simulated system.
    pub const APTA: Self = Self {
        // T2: 500 ns, 80 Gbps, full duplex.
        cxl: Link { one_way: Picos::from_nanos(500), bytes_per_second: 10_000_000_000 },
        // II-A: memory by CXL has a third of its latency (RTT 950 ns) and ten times its bandwidth (12.5 GiB/s).
        rdma: Link { one_way: Picos::from_nanos(1425), bytes_per_second: GIB + GIB / 4 },
        memory_server: Link { one_way: Picos::from_nanos(475), bytes_per_second: 12 * GIB + GIB / 2 },
        // Not in the paper: S3's own guide names 100 to 200 ms to the first byte, and 85 to 90 MB/s a request.
        s3: Link { one_way: Picos::from_nanos(50_000_000), bytes_per_second: 90_000_000 },
        // T2: DDR4-2400, one channel.
        memory_bytes_per_second: 19_200_000_000,
        // Not in the paper: row activation, column access and the line's burst of DDR4-2400 (17-17-17).
        memory_access: Picos::from_nanos(32),
        // T2: 20 cycles at 3 GHz.
        controller: Picos::new(6_667),
        // T2: 128 MSHRs of the last-level cache.
        outstanding_lines: 128,
        // III-D: about 1.4 us a call.
        reverse_map: Picos::from_nanos(1400),
        // T2: 10 cycles at 3 GHz.
        hit: Picos::new(3_333),
        // IV-B: 2.2 times (DirectCXL), and about 14 us a call (Hermes' write less a one-sided write).
        rdma_over_cxl: 2.2,
        software_coherence: Picos::from_nanos(14_000),
        // Nigh's: a version, a token of one shard and a cover (16 bytes each) and the request's ids.
        nigh_header_bytes: LINE_BYTES,
    };
}
