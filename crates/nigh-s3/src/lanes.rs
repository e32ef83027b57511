//! The threads that serve connections: one thread per core, each with its own runtime, so that a connection stays on
//! its thread.
//!
//! A request that memory can answer is read, answered and written without waking another thread. In the node's own
//! runtime, another worker could take over the socket at each of these steps.
//!
//! A lane's runtime has sockets only, and no timers. Tasks, timers and store clients that a request starts belong to
//! the node's runtime, whose context is entered while the request is answered. `nigh_http::watch` closes silent connections.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The most lanes, whatever the number of cores.
const LANES_MAX: usize = 64;

/// The lanes of a door. If this is dropped, the lanes and the connections on them end.
#[derive(Debug)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
    /// The node's runtime.
    home: Handle,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    connections: Arc<AtomicUsize>,
    /// Ends the lane's thread when it is dropped.
    _open: oneshot::Sender<()>,
}

/// Counts one connection on its lane. If this is dropped, the connection no longer counts.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(connections: &Arc<AtomicUsize>) -> Self {
        connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(connections))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Lanes {
    /// Opens one lane per core that this process may use. What requests start belongs to the runtime in which this
    /// function is called.
    ///
    /// # Errors
    /// If the caller is in no runtime, or if the system cannot give a thread or a descriptor.
    pub(crate) fn open() -> io::Result<Self> {
        let home = Handle::try_current().map_err(io::Error::other)?;
        let cores = std::thread::available_parallelism()?.get();
        let lanes = (0..cores.min(LANES_MAX)).map(Lane::open).collect::<io::Result<_>>()?;
        Ok(Self { lanes, home })
    }

    /// The node's runtime.
    pub(crate) const fn home(&self) -> &Handle {
        &self.home
    }

    /// The lanes' runtimes.
    pub(crate) fn runtimes(&self) -> Vec<Handle> {
        self.lanes.iter().map(|lane| lane.runtime.clone()).collect()
    }

    /// Runs `connection` on the lane that has the fewest connections.
    pub(crate) fn run(&self, connection: impl Future<Output = ()> + Send + 'static) {
        if let Some(lane) = self.lanes.iter().min_by_key(|lane| lane.connections.load(Ordering::Relaxed)) {
            let place = Place::take(&lane.connections);
            lane.runtime.spawn(async move {
                connection.await;
                drop(place);
            });
        }
    }
}

impl Lane {
    fn open(number: usize) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().build()?;
        let handle = runtime.handle().clone();
        let (open, closed) = oneshot::channel::<()>();
        std::thread::Builder::new().name(format!("nigh-s3-{number}")).spawn(move || {
            // An error means that the sender was dropped; either way the lane ends.
            let _ = runtime.block_on(closed);
        })?;
        Ok(Self { runtime: handle, connections: Arc::default(), _open: open })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    async fn thread_of(lanes: &Lanes, hold: oneshot::Receiver<()>) -> std::thread::ThreadId {
        let (tell, told) = oneshot::channel();
        lanes.run(async move {
            let _ = tell.send(std::thread::current().id());
            let _ = hold.await;
        });
        told.await.unwrap()
    }

    #[tokio::test]
    async fn connections_are_spread_over_all_lanes_and_none_runs_on_the_node_s_threads() {
        let lanes = Lanes::open().unwrap();
        let mut threads = HashSet::new();
        let mut held = Vec::new();
        for _ in 0..lanes.lanes.len() {
            let (open, hold) = oneshot::channel();
            threads.insert(thread_of(&lanes, hold).await);
            held.push(open);
        }
        assert_eq!(threads.len(), lanes.lanes.len());
        assert!(!threads.contains(&std::thread::current().id()));
    }

    #[tokio::test]
    async fn a_connection_that_has_ended_leaves_its_place() {
        let lanes = Lanes::open().unwrap();
        for _ in 0..10 * lanes.lanes.len() {
            let (_, ended) = oneshot::channel();
            thread_of(&lanes, ended).await;
        }
        let taken = || lanes.lanes.iter().map(|lane| lane.connections.load(Ordering::Relaxed)).sum::<usize>();
        let began = std::time::Instant::now();
        while taken() > 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "{} places are still taken", taken());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn lanes_that_are_dropped_end_their_connections() {
        let lanes = Lanes::open().unwrap();
        let (held, mut gone) = oneshot::channel::<()>();
        lanes.run(async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
        assert!(gone.try_recv().is_err());
        drop(lanes);
        assert!(tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap().is_err());
    }

    #[test]
    fn there_are_no_lanes_without_a_runtime_for_what_requests_start() {
        assert!(Lanes::open().is_err());
    }
}
