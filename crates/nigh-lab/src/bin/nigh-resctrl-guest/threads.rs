//! Real threads to be moved: each starts others and ends when told, so that what a child inherits is the kernel's doing.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Threads alive at once; a fork beyond is not done.
pub(crate) const LIVING_MAX: usize = 8;
/// An ended thread leaves `/proc` within this, or something is wrong.
const GONE_WITHIN: Duration = Duration::from_secs(5);

enum Order {
    Fork(Sender<io::Result<Worker>>),
    End,
}

struct Worker {
    tid: u32,
    orders: Sender<Order>,
}

impl Worker {
    /// Starts a worker from the calling thread, whose groups it inherits.
    fn start() -> io::Result<Self> {
        let (orders, received) = mpsc::channel();
        let (report, reported) = mpsc::channel();
        thread::Builder::new().stack_size(64 << 10).spawn(move || {
            let _ = report.send(own_tid());
            for order in received {
                match order {
                    Order::Fork(answer) => _ = answer.send(Self::start()),
                    Order::End => return,
                }
            }
        })?;
        let tid = reported.recv().map_err(io::Error::other)?;
        Ok(Self { tid, orders })
    }
}

/// The calling thread's id.
pub(crate) fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// The threads of one list of commands.
pub(crate) struct Threads {
    living: Vec<Worker>,
    gone: u32,
}

impl Threads {
    /// `count` threads, started by the calling one, and the id of one that has ended.
    pub(crate) fn start(count: usize) -> io::Result<Self> {
        let living = (0..=count).map(|_each| Worker::start()).collect::<io::Result<Vec<_>>>()?;
        let mut threads = Self { living, gone: 0 };
        threads.end(0)?;
        Ok(threads)
    }

    /// The ids of the living.
    pub(crate) fn tids(&self) -> impl Iterator<Item = u32> {
        self.living.iter().map(|worker| worker.tid)
    }

    /// The id in place `place`, counted round.
    fn tid(&self, place: usize) -> u32 {
        self.living[place % self.living.len()].tid
    }

    /// The thread in `place` starts one: its id and the new one's; none if there are enough.
    pub(crate) fn fork(&mut self, place: usize) -> io::Result<Option<(u32, u32)>> {
        if self.living.len() == LIVING_MAX {
            return Ok(None);
        }
        let of = &self.living[place % self.living.len()];
        let (answer, answered) = mpsc::channel();
        of.orders.send(Order::Fork(answer)).map_err(io::Error::other)?;
        let child = answered.recv().map_err(io::Error::other)??;
        let born = (of.tid, child.tid);
        self.living.push(child);
        Ok(Some(born))
    }

    /// Ends the thread in `place` and waits until the kernel forgot it; none if it is the last.
    pub(crate) fn end(&mut self, place: usize) -> io::Result<Option<u32>> {
        if self.living.len() == 1 {
            return Ok(None);
        }
        let worker = self.living.remove(place % self.living.len());
        self.gone = worker.tid;
        forget(worker)?;
        Ok(Some(self.gone))
    }

    /// `text` with the ids in place of `{0}` and `{gone}`.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        let text = text.replace("{gone}", &self.gone.to_string());
        (0..LIVING_MAX).fold(text, |text, place| text.replace(&format!("{{{place}}}"), &self.tid(place).to_string()))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for worker in self.living.drain(..) {
            // Not gone in time: the next list of commands does not know it and does not count it.
            let _ = forget(worker);
        }
    }
}

/// Ends `worker`; a thread that was joined may still be listed for a moment.
fn forget(worker: Worker) -> io::Result<()> {
    let folder = PathBuf::from(format!("/proc/self/task/{}", worker.tid));
    let _ = worker.orders.send(Order::End);
    let begun = Instant::now();
    while folder.exists() {
        if begun.elapsed() > GONE_WITHIN {
            return Err(io::Error::other(format!("thread {} does not end", worker.tid)));
        }
        thread::yield_now();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_start_others_end_and_are_named_by_their_place() {
        let mut threads = Threads::start(2).unwrap();
        let before: Vec<u32> = threads.tids().collect();
        let (of, child) = threads.fork(3).unwrap().unwrap();
        assert_eq!(of, before[1], "three is counted round to one");
        assert_eq!(threads.fill_in("{2},{5}\n"), format!("{child},{child}\n"));
        let ended = threads.end(0).unwrap().unwrap();
        assert_eq!(ended, before[0]);
        assert!(!PathBuf::from(format!("/proc/self/task/{ended}")).exists());
        assert_eq!(threads.fill_in("{gone} {0}"), format!("{ended} {}", before[1]));
        threads.end(0).unwrap();
        assert_eq!(threads.end(0).unwrap(), None, "the last one stays");
        while threads.fork(0).unwrap().is_some() {}
        assert_eq!(threads.tids().count(), LIVING_MAX);
    }
}
