//! A trace made ready for replay: pages numbered densely, evictions dropped, eight bytes an access.
//!
//! Made once and shared by all jobs that run it; each job has its own address space. A sampled trace keeps all
//! instructions: those of a dropped access go to the next kept one. Samples are of whole sets, chosen by a line's place
//! in its page, which is the same in virtual and physical addresses. In those sets a cache of full size then behaves
//! exactly as with the whole trace, and each request stands for as many as the rate says (Kessler, Hill and Wood, IEEE
//! ToC 43(6), 1994).

use std::collections::HashMap;

use thiserror::Error;

use super::access::{AccessKind, LlcAccess};
use super::address_space::{FRAMES_MAX, PAGE_LINES, PagedLine};
use super::sample_rate::SampleRate;

/// The most accesses of one trace: 2 GiB of memory.
pub const REPLAY_ACCESSES_MAX: usize = 1 << 28;

/// The number of last requested lines that the assumed prefetcher remembers.
const STREAMS: usize = 16;

/// Why a trace cannot be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ReplayTraceError {
    /// More pages than the simulated memory has frames.
    #[error("the trace touches more than {FRAMES_MAX} pages, the size of the simulated memory; shorten the trace")]
    TooManyPages,
    /// Too long to be kept in memory.
    #[error("the trace has more than {REPLAY_ACCESSES_MAX} accesses; sample its lines when recording or packing it")]
    TooLong,
    /// A sample of a sample.
    #[error("the trace holds 1 line in {held} already; 1 in {wanted} can only be taken from the whole trace")]
    AlreadySampled {
        /// What it is.
        held: SampleRate,
        /// What was asked for.
        wanted: SampleRate,
    },
}

/// One access: the line in the low half; above it whether a neighbour line was asked for shortly before, whether this
/// is only a pause, and the instructions since the access before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplayAccess(u64);

impl ReplayAccess {
    const NEIGHBOUR: u64 = 1 << 32;
    const PAUSE: u64 = 1 << 33;
    const INSTRUCTIONS_SHIFT: u32 = 34;
    const INSTRUCTIONS_MAX: u64 = (1 << 30) - 1;

    #[inline]
    pub(super) const fn line(self) -> PagedLine {
        PagedLine::from_number(self.0 as u32)
    }

    #[inline]
    pub(super) const fn is_neighbour(self) -> bool {
        self.0 & Self::NEIGHBOUR != 0
    }

    #[inline]
    pub(super) const fn is_pause(self) -> bool {
        self.0 & Self::PAUSE != 0
    }

    #[inline]
    pub(super) const fn instructions(self) -> u64 {
        self.0 >> Self::INSTRUCTIONS_SHIFT
    }
}

/// A trace ready for replay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReplayTrace {
    accesses: Vec<ReplayAccess>,
    virtual_pages: Vec<u64>,
    requests: u64,
    instructions: u64,
    tail_instructions: u64,
    rate: Option<SampleRate>,
    knows_neighbours: bool,
}

impl ReplayTrace {
    /// Takes in all of `accesses`; `tail_instructions` are those after the last, `rate` is what the recorder kept.
    pub fn new(
        accesses: impl IntoIterator<Item = LlcAccess>,
        tail_instructions: u64,
        rate: SampleRate,
    ) -> Result<Self, ReplayTraceError> {
        let mut trace = Self { rate: Some(rate), knows_neighbours: rate == SampleRate::ALL, ..Self::default() };
        let mut pages = HashMap::new();
        let mut last_page = (u64::MAX, 0);
        let (mut recent, mut oldest) = ([u64::MAX - 1; STREAMS], 0);
        let mut instructions = 0;
        for access in accesses {
            instructions += u64::from(access.instructions);
            match access.kind {
                AccessKind::Fetch | AccessKind::Load | AccessKind::Store => {}
                AccessKind::CleanEviction | AccessKind::DirtyEviction => continue,
            }
            let page = access.line / u64::from(PAGE_LINES);
            if page != last_page.0 {
                let next = trace.virtual_pages.len() as u32;
                let index = *pages.entry(page).or_insert(next);
                if index == next {
                    if next == FRAMES_MAX {
                        return Err(ReplayTraceError::TooManyPages);
                    }
                    trace.virtual_pages.push(page);
                }
                last_page = (page, index);
            }
            let line = PagedLine::new(last_page.1, (access.line % u64::from(PAGE_LINES)) as u32);
            let neighbour = trace.knows_neighbours && recent.iter().any(|held| held.abs_diff(access.line) == 1);
            recent[oldest] = access.line;
            oldest = (oldest + 1) % STREAMS;
            trace.push(line, neighbour, instructions)?;
            instructions = 0;
        }
        trace.tail_instructions = instructions + tail_instructions;
        trace.instructions += trace.tail_instructions;
        Ok(trace)
    }

    fn push(&mut self, line: PagedLine, neighbour: bool, instructions: u64) -> Result<(), ReplayTraceError> {
        let mut left = instructions;
        while left > ReplayAccess::INSTRUCTIONS_MAX {
            let pause = ReplayAccess::INSTRUCTIONS_MAX << ReplayAccess::INSTRUCTIONS_SHIFT | ReplayAccess::PAUSE;
            self.accesses.push(ReplayAccess(pause));
            left -= ReplayAccess::INSTRUCTIONS_MAX;
        }
        if self.accesses.len() >= REPLAY_ACCESSES_MAX {
            return Err(ReplayTraceError::TooLong);
        }
        let flags = if neighbour { ReplayAccess::NEIGHBOUR } else { 0 };
        let bits = left << ReplayAccess::INSTRUCTIONS_SHIFT | flags | u64::from(line.number());
        self.accesses.push(ReplayAccess(bits));
        self.requests += 1;
        self.instructions += instructions;
        Ok(())
    }

    /// One line in `rate` of this whole trace: those whose virtual line number `keeps` names, by its place in its page
    /// alone. Traces that are to share a cache must be sampled alike. Neighbours stay as the whole trace has them.
    pub fn sampled(&self, rate: SampleRate, keeps: impl Fn(u64) -> bool) -> Result<Self, ReplayTraceError> {
        if self.rate() != SampleRate::ALL {
            return Err(ReplayTraceError::AlreadySampled { held: self.rate(), wanted: rate });
        }
        let mut sample = Self {
            virtual_pages: self.virtual_pages.clone(),
            rate: Some(rate),
            knows_neighbours: self.knows_neighbours,
            ..Self::default()
        };
        let mut instructions = 0;
        for access in &self.accesses {
            instructions += access.instructions();
            if !access.is_pause() && keeps(self.virtual_line(access.line())) {
                sample.push(access.line(), access.is_neighbour(), instructions)?;
                instructions = 0;
            }
        }
        sample.tail_instructions = instructions + self.tail_instructions;
        sample.instructions += sample.tail_instructions;
        Ok(sample)
    }

    /// The number that `line` had when it was recorded.
    fn virtual_line(&self, line: PagedLine) -> u64 {
        let page = self.virtual_pages[(line.number() / PAGE_LINES) as usize];
        page * u64::from(PAGE_LINES) + u64::from(line.number() % PAGE_LINES)
    }

    pub(super) fn accesses(&self) -> &[ReplayAccess] {
        &self.accesses
    }

    pub(super) const fn tail_instructions(&self) -> u64 {
        self.tail_instructions
    }

    /// Requests to the last level that it holds; each stands for as many as its rate says.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// Instructions of one run, those after the last access included; not reduced by sampling.
    pub const fn instructions(&self) -> u64 {
        self.instructions
    }

    /// Pages it touches.
    pub fn pages(&self) -> u32 {
        self.virtual_pages.len() as u32
    }

    /// The virtual number of every page, by dense number.
    pub fn virtual_pages(&self) -> &[u64] {
        &self.virtual_pages
    }

    /// Every line asked for, in order.
    pub fn lines(&self) -> impl Iterator<Item = PagedLine> {
        self.accesses.iter().filter(|access| !access.is_pause()).map(|access| access.line())
    }

    /// What it kept of the lines.
    pub fn rate(&self) -> SampleRate {
        self.rate.unwrap_or(SampleRate::ALL)
    }

    /// Whether it tells which accesses follow one to a neighbour line: not where it was sampled when recorded.
    pub const fn knows_neighbours(&self) -> bool {
        self.knows_neighbours
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(line: u64, instructions: u32) -> LlcAccess {
        LlcAccess { line, instructions, kind: AccessKind::Load }
    }

    #[test]
    fn pages_are_numbered_by_first_touch_and_evictions_leave_only_their_instructions() {
        let eviction = LlcAccess { kind: AccessKind::DirtyEviction, ..load(1, 30) };
        let accesses = [load(0x7fff_0000_0041, 5), eviction, load(3, 7), load(0x7fff_0000_0042, 0), eviction];
        let trace = ReplayTrace::new(accesses, 100, SampleRate::ALL).unwrap();
        let expected = [PagedLine::new(0, 1), PagedLine::new(1, 3), PagedLine::new(0, 2)];
        assert_eq!(trace.lines().collect::<Vec<_>>(), expected);
        assert_eq!(trace.virtual_pages(), [0x7fff_0000_0041 / 64, 0]);
        assert_eq!(trace.accesses().iter().map(|access| access.instructions()).collect::<Vec<_>>(), [5, 37, 0]);
        assert_eq!((trace.instructions(), trace.tail_instructions(), trace.requests()), (172, 130, 3));
        assert_eq!(
            trace.accesses().iter().map(|access| access.is_neighbour()).collect::<Vec<_>>(),
            [false, false, true]
        );
    }

    #[test]
    fn a_long_pause_keeps_all_its_instructions() {
        let trace = ReplayTrace::new([load(1, u32::MAX), load(2, u32::MAX)], 0, SampleRate::ALL).unwrap();
        assert_eq!(trace.requests(), 2);
        assert_eq!(trace.instructions(), 2 * u64::from(u32::MAX));
        assert_eq!(trace.accesses().iter().map(|access| access.instructions()).sum::<u64>(), trace.instructions());
    }

    #[test]
    fn a_sample_keeps_all_instructions_and_every_access_to_a_kept_line() {
        let base = 0x7fff_0000_0040;
        let accesses = (0..50_000).map(|step| load(base + step * 7 % 3000, 3));
        let whole = ReplayTrace::new(accesses, 9, SampleRate::ALL).unwrap();
        let rate = SampleRate::new(8).unwrap();
        let sample = whole.sampled(rate, |line| line % 8 == 5).unwrap();
        assert_eq!(sample.instructions(), whole.instructions());
        let kept: Vec<_> = whole.lines().filter(|line| line.number() % 8 == 5).collect();
        assert_eq!(sample.lines().collect::<Vec<_>>(), kept);
        assert!(!kept.is_empty());
        let wanted = SampleRate::new(32).unwrap();
        assert_eq!(sample.sampled(wanted, |_| true), Err(ReplayTraceError::AlreadySampled { held: rate, wanted }));
    }

    #[test]
    fn a_trace_sampled_by_its_recorder_knows_no_neighbours() {
        let trace = ReplayTrace::new([load(1, 0), load(2, 0)], 0, SampleRate::new(2).unwrap()).unwrap();
        assert!(!trace.knows_neighbours());
        assert!(!trace.accesses()[1].is_neighbour());
    }
}
