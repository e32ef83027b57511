//! What a get costs over the fast path, from a client's call to its first byte, and what the node's side of it costs.
//!
//! `cargo run --release -p nigh-s3 --example fast_path_latency` prints a line a size: the median and the 99th percentile
//! of a call, the same with a copy of all bytes, and of the bare hand-over: a descriptor of the same segment over the
//! same kind of socket, without Nigh.

#![expect(clippy::print_stdout, reason = "an example prints what it measures")]

use std::error::Error;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use nigh_client::{Address, Client, Conditions};
use nigh_data::{PutRequest, Segment};
use nigh_engine::{AccessKeys, LocalRegistry, StateFile};
use nigh_objects::{MemoryLimits, ObjectMemory, Writes};
use nigh_s3::{DoorLimits, FastPath, FastPathLimits, S3Door, bind_fast_path};
use nigh_stores::directory::DirectoryStore;
use nigh_terms::{BucketName, ByteSize, Clock, Epoch, Namespace, ObjectKey, Principal, SystemClock};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use tokio_util::sync::CancellationToken;

const SIZES: [usize; 5] = [1 << 10, 16 << 10, 128 << 10, 1 << 20, 10 << 20];
const ROUNDS: usize = 3000;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Median and 99th percentile.
fn spread(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    (at(0.5), at(0.99))
}

fn measure(mut round: impl FnMut() -> Outcome<()>) -> Outcome<(f64, f64)> {
    for _ in 0..ROUNDS / 10 {
        round()?;
    }
    let times = (0..ROUNDS).map(|_| {
        let began = Instant::now();
        round().map(|()| began.elapsed())
    });
    Ok(spread(times.collect::<Outcome<_>>()?))
}

fn send(socket: &OwnedFd, descriptor: &OwnedFd) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor.as_fd()];
    let _fits = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[std::io::IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).map(drop)
}

fn receive(socket: &OwnedFd) -> Outcome<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let (mut ancillary, mut byte) = (RecvAncillaryBuffer::new(&mut space), [0]);
    recvmsg(socket, &mut [std::io::IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut rights) = part
            && let Some(descriptor) = rights.next()
        {
            return Ok(descriptor);
        }
    }
    Err("no descriptor came".into())
}

/// The hand-over alone: another thread sends the descriptor of a segment when it is asked, and it is mapped.
fn bare(size: usize) -> Outcome<(f64, f64)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let descriptor = Segment::copy_of(&vec![7; size])?.hand_out()?.ok_or("too small to be handed out")?;
    let server = std::thread::spawn(move || {
        while matches!(rustix::io::read(&theirs, &mut [0; 1]), Ok(1)) && send(&theirs, &descriptor).is_ok() {}
    });
    let times = measure(|| {
        rustix::io::write(&ours, b"x")?;
        // SAFETY: the segment is sealed: nobody can change or shorten it.
        let map = unsafe { memmap2::Mmap::map(&receive(&ours)?) }?;
        std::hint::black_box(map[0]);
        Ok(())
    })?;
    drop(ours);
    server.join().map_err(|_| "the server panicked")?;
    Ok(times)
}

async fn node(folder: &Path, until: CancellationToken) -> Outcome<(Address, String, String)> {
    let registry = LocalRegistry::new(StateFile::open(&folder.join("state.redb"))?);
    let keys = AccessKeys::load(&registry).await?;
    let namespace = Namespace::new("tenant")?;
    let (key, secret) = keys.issue(&registry, &namespace).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let store = Arc::new(DirectoryStore::open(&folder.join("objects"), Arc::clone(&clock))?);
    let limits = MemoryLimits { cache: ByteSize::mib(256), cached_object: ByteSize::mib(16), object: ByteSize::gib(1) };
    let memory =
        ObjectMemory::open(store, Writes::through(Epoch(1)), clock, Vec::new(), folder.join("spool"), limits).await?;
    let (who, bucket) = (Principal::outside(namespace), BucketName::new("bucket")?);
    memory.create_bucket(&who, &bucket).await?;
    for size in SIZES {
        let request = PutRequest {
            attributes: Default::default(),
            tags: Default::default(),
            conditions: Default::default(),
            body: futures::stream::iter([Ok(vec![7; size].into())]).boxed(),
            length: Some(size as u64),
            md5: None,
            checksum: None,
            request: None,
        };
        memory.put(&who, &bucket, &ObjectKey::new(&size.to_string())?, request).await?;
    }
    let door = S3Door::new(Arc::new(memory), keys, DoorLimits::default())?;
    let path = folder.join("fast.sock");
    let fast_path = FastPath::new(&door, FastPathLimits::new(ByteSize::mib(128)));
    tokio::spawn(fast_path.serve(bind_fast_path(&path)?, None, until));
    Ok((Address::File(path), key.to_string(), secret.reveal().to_owned()))
}

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let (runtime, until) = (tokio::runtime::Runtime::new()?, CancellationToken::new());
    let (address, key, secret) = runtime.block_on(node(folder.path(), until.clone()))?;
    let mut client = Client::connect(&address, &key, &secret)?;
    for size in SIZES {
        let name = size.to_string();
        let mut is_mapped = false;
        let (view, view_99) = measure(|| {
            let view = client.get("bucket", &name, &Conditions::default())?;
            is_mapped = view.is_mapped();
            std::hint::black_box(view[0]);
            Ok(())
        })?;
        let (copy, copy_99) = measure(|| {
            std::hint::black_box(client.get("bucket", &name, &Conditions::default())?.to_vec());
            Ok(())
        })?;
        let bare = if is_mapped { format!("{:.0}", bare(size)?.0) } else { "-".to_owned() };
        println!(
            "{size:>9} bytes: get {view:.0} us (p99 {view_99:.0}), with a copy {copy:.0} us (p99 {copy_99:.0}), bare \
             hand-over {bare} us"
        );
    }
    until.cancel();
    Ok(())
}
