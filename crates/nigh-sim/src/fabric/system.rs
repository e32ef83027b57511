//! The systems that are compared: a network, the unit of its operations, and what it does about copies.

use super::hardware::{Hardware, Link};
use super::picos::Picos;

/// A configuration of the paper, or ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum System {
    /// An object store of the S3 kind.
    S3,
    /// An in-memory store by one-sided RDMA; no copies. The paper's baseline.
    Rdma,
    /// The same with Faa$t's copies, whose version is checked at each get.
    RdmaFaast,
    /// Faa$t by RDMA on the same link as CXL.
    FastRdmaFaast,
    /// Apta's protocol by RDMA on the same link as CXL.
    FastRdmaApta,
    /// Memory that is loaded and stored line by line; no copies.
    CxlUncached,
    /// The same with copies, which a put waits to see invalidated.
    CxlCached,
    /// Whole objects by CXL; a put is acknowledged first and invalidates after.
    Apta,
    /// Apta's hardware under Nigh's protocol: versions, tokens, covers.
    Nigh,
    /// Section II's memory server; no copies.
    MemoryServer,
    /// The same with copies.
    MemoryServerCache,
}

/// What one request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granularity {
    /// Lines: as many as may be outstanding make a round trip, and a put writes a log first, for many lines are not
    /// written at once.
    Line,
    /// The whole object, streamed, written at once.
    Object,
}

/// What keeps copies right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coherence {
    /// No copies.
    Uncached,
    /// Each get asks for the version.
    VersionCheck,
    /// A put waits for every sharer.
    Eager,
    /// Apta's: acknowledged before the sharers know; nothing is dispatched to a server with invalidations pending; a
    /// put waits while an earlier one of its object has them pending (the published table).
    Lazy,
    /// Nigh's: as Apta's, but puts never wait, and a dispatch needs only that its server covers what was seen.
    Covered,
}

/// How operations travel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Transport {
    pub(super) link: Link,
    pub(super) granularity: Granularity,
    /// How many times as long everything but the memory takes.
    pub(super) slowdown: f64,
    /// Added to each operation that is not a local hit.
    pub(super) per_operation: Picos,
    /// Beside the payload, in each operation.
    pub(super) header_bytes: u64,
}

impl System {
    /// The paper's figure 8 and ours, the baseline first.
    pub const COMPARED: [Self; 8] = [
        Self::Rdma,
        Self::RdmaFaast,
        Self::FastRdmaFaast,
        Self::FastRdmaApta,
        Self::CxlUncached,
        Self::CxlCached,
        Self::Apta,
        Self::Nigh,
    ];

    /// Section II's stores.
    pub const STORES: [Self; 4] = [Self::S3, Self::Rdma, Self::MemoryServer, Self::MemoryServerCache];

    /// A short name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::S3 => "S3",
            Self::Rdma => "RDMA",
            Self::RdmaFaast => "RDMA+Faa$T",
            Self::FastRdmaFaast => "RDMAf+Faa$T",
            Self::FastRdmaApta => "RDMAf+Apta",
            Self::CxlUncached => "CXL uncached",
            Self::CxlCached => "CXL cached",
            Self::Apta => "Apta",
            Self::Nigh => "Nigh",
            Self::MemoryServer => "memory server",
            Self::MemoryServerCache => "memory server + cache",
        }
    }

    pub(super) const fn coherence(self) -> Coherence {
        match self {
            Self::S3 | Self::Rdma | Self::CxlUncached | Self::MemoryServer => Coherence::Uncached,
            Self::RdmaFaast | Self::FastRdmaFaast => Coherence::VersionCheck,
            Self::CxlCached => Coherence::Eager,
            Self::FastRdmaApta | Self::Apta | Self::MemoryServerCache => Coherence::Lazy,
            Self::Nigh => Coherence::Covered,
        }
    }

    pub(super) fn transport(self, hardware: &Hardware) -> Transport {
        let plain = |link, granularity| Transport {
            link,
            granularity,
            slowdown: 1.0,
            per_operation: Picos::ZERO,
            header_bytes: 0,
        };
        let by_rdma = |granularity| Transport {
            slowdown: hardware.rdma_over_cxl,
            per_operation: hardware.software_coherence,
            ..plain(hardware.cxl, granularity)
        };
        match self {
            Self::S3 => plain(hardware.s3, Granularity::Object),
            Self::Rdma | Self::RdmaFaast => plain(hardware.rdma, Granularity::Object),
            // What is 2.2 times as long is an operation by loads and stores; Apta's protocol asks for objects.
            Self::FastRdmaFaast => by_rdma(Granularity::Line),
            Self::FastRdmaApta => by_rdma(Granularity::Object),
            Self::CxlUncached | Self::CxlCached => plain(hardware.cxl, Granularity::Line),
            Self::Apta => plain(hardware.cxl, Granularity::Object),
            Self::Nigh => {
                Transport { header_bytes: hardware.nigh_header_bytes, ..plain(hardware.cxl, Granularity::Object) }
            }
            Self::MemoryServer | Self::MemoryServerCache => plain(hardware.memory_server, Granularity::Object),
        }
    }
}

impl Transport {
    /// What `bytes` take on the link.
    pub(super) fn on_link(&self, bytes: u64) -> Picos {
        Picos::of_bytes(bytes, self.link.bytes_per_second).scaled(self.slowdown)
    }

    /// From one end to the other, in the mean.
    pub(super) fn one_way(&self) -> Picos {
        self.link.one_way.scaled(self.slowdown)
    }
}
