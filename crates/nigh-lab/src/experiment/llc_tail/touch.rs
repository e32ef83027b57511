//! Which bytes a program touches, told by the program itself: the store and the training job run the same code in production,
//! where a touch compiles to nothing, and under the recorder, which turns it into the lines of a simulated cache.

const LINE: u64 = nigh_sim::llc::LINE_BYTES;
/// Lines of one run at most: a run's lines are the bits of a `u64`.
const RUN_LINES_MAX: u64 = 64;

/// An array of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Region {
    Index,
    Items,
    /// The network's weights, shared by all threads.
    Weights,
    /// A thread's own velocities (gradients with momentum).
    Velocity,
    /// The digits to train on, shared by all threads.
    Digits,
}

/// Takes note of what a program does to memory.
pub(super) trait Touch {
    /// `bytes` bytes from byte `first` of an array are read, or written if `store`.
    fn touch(&mut self, region: Region, first: u64, bytes: u64, store: bool);
    /// So many multiply-adds were done on what was touched last.
    fn computed(&mut self, multiply_adds: u64);
}

/// Nobody takes note.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoRecording;

impl Touch for NoRecording {
    #[inline]
    fn touch(&mut self, _: Region, _: u64, _: u64, _: bool) {}
    #[inline]
    fn computed(&mut self, _: u64) {}
}

/// Neighbouring lines, touched in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) region: Region,
    /// The first line of the array.
    pub(super) first_line: u64,
    /// How many, from 1 to 64.
    pub(super) lines: u8,
    pub(super) store: bool,
    pub(super) multiply_adds: u64,
}

/// Everything that was touched, in order; whoever records bounds it by what it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct Recorder {
    pub(super) runs: Vec<Run>,
}

impl Touch for Recorder {
    fn touch(&mut self, region: Region, first: u64, bytes: u64, store: bool) {
        let (mut line, end) = (first / LINE, (first + bytes).div_ceil(LINE));
        while line < end {
            let lines = (end - line).min(RUN_LINES_MAX);
            self.runs.push(Run { region, first_line: line, lines: lines as u8, store, multiply_adds: 0 });
            line += lines;
        }
    }

    fn computed(&mut self, multiply_adds: u64) {
        if let Some(last) = self.runs.last_mut() {
            last.multiply_adds += multiply_adds;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_the_lines_they_lie_on_and_long_arrays_several_runs() {
        let mut recorder = Recorder::default();
        recorder.touch(Region::Items, 60, 8, false);
        recorder.touch(Region::Weights, 0, 65 * 64, true);
        recorder.computed(7);
        let seen: Vec<_> = recorder.runs.iter().map(|run| (run.first_line, run.lines, run.multiply_adds)).collect();
        assert_eq!(seen, [(0, 2, 0), (0, 64, 0), (64, 1, 7)]);
    }
}
