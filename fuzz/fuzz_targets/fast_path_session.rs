//! Whole sessions of the fast path, by a client that has a key and means harm: requests in any order on several
//! connections, packets with descriptors, connections half closed, segments written while they are committed. No panic;
//! nobody else's object changes; what is held stays within its cap; and the next client is served.
#![no_main]

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use hmac::{Hmac, KeyInit, Mac};
use libfuzzer_sys::fuzz_target;
use nigh_client::{Address, Client, Conditions};
use nigh_engine::{AccessKeys, LocalRegistry, StateFile};
use nigh_stores::directory::DirectoryStore;
use nigh_objects::{MemoryLimits, ObjectMemory, Writes};
use nigh_s3::{DoorLimits, FastPath, FastPathLimits, S3Door, bind_fast_path};
use nigh_terms::{BucketName, ByteSize, Clock, Epoch, Namespace, Principal, SystemClock};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

const HELD: ByteSize = ByteSize::mib(2);
const CONNECTIONS_MAX: usize = 4;
const STEPS_MAX: usize = 40;
/// Objects of each namespace; nobody writes those of the second.
const KEPT: [(&str, usize); 2] = [("small", 100), ("large", 200_000)];
/// Lengths of segments that are asked for.
const LENGTHS: [u64; 6] = [0, 1, 65_536, 100_000, 3 << 20, 1 << 30];

/// A server that lives as long as the process, and who may ask it.
struct World {
    _runtime: Runtime,
    folder: tempfile::TempDir,
    fast_path: FastPath,
    hostile: Key,
    other: Key,
}

/// A namespace's key.
struct Key {
    id: String,
    secret: String,
}

impl World {
    fn get() -> &'static Self {
        static WORLD: OnceLock<World> = OnceLock::new();
        WORLD.get_or_init(|| {
            let runtime = Runtime::new().unwrap();
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().to_owned();
            let (fast_path, hostile, other) = runtime.block_on(async {
                let registry = LocalRegistry::new(StateFile::open(&path.join("state.redb")).unwrap());
                let keys = AccessKeys::load(&registry).await.unwrap();
                let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
                let store = Arc::new(DirectoryStore::open(&path.join("objects"), Arc::clone(&clock)).unwrap());
                let limits = MemoryLimits {
                    cache: ByteSize::mib(16),
                    cached_object: ByteSize::mib(4),
                    object: ByteSize::mib(64),
                };
                let writes = Writes::through(Epoch(1));
                let memory =
                    ObjectMemory::open(store, writes, clock, Vec::new(), path.join("spool"), limits).await.unwrap();
                let mut issued = Vec::new();
                for namespace in ["hostile", "other"].map(|name| Namespace::new(name).unwrap()) {
                    let (id, secret) = keys.issue(&registry, &namespace).await.unwrap();
                    issued.push(Key { id: id.to_string(), secret: secret.reveal().to_owned() });
                    let who = Principal::outside(namespace);
                    memory.create_bucket(&who, &BucketName::new("bucket").unwrap()).await.unwrap();
                }
                let door = S3Door::new(Arc::new(memory), keys, DoorLimits::default()).unwrap();
                let fast_path = FastPath::new(&door, FastPathLimits::new(HELD));
                let listener = bind_fast_path(&path.join("fast.sock")).unwrap();
                let serving = fast_path.clone().serve(listener, None, CancellationToken::new());
                tokio::spawn(async move { serving.await.unwrap() });
                let [hostile, other] = issued.try_into().ok().unwrap();
                (fast_path, hostile, other)
            });
            let world = Self { _runtime: runtime, folder, fast_path, hostile, other };
            for key in [&world.hostile, &world.other] {
                let mut client = world.client(key);
                for (name, size) in KEPT {
                    client.put("bucket", name, &bytes_of(name, size), &Default::default()).unwrap();
                }
            }
            world
        })
    }

    fn socket(&self) -> std::path::PathBuf {
        self.folder.path().join("fast.sock")
    }

    fn client(&self, key: &Key) -> Client {
        Client::connect(&Address::File(self.socket()), &key.id, &key.secret).unwrap()
    }
}

fn bytes_of(name: &str, size: usize) -> Vec<u8> {
    name.bytes().cycle().take(size).collect()
}

/// One connection, and what it was lent.
struct Party {
    socket: OwnedFd,
    nonce: String,
    lent: Vec<(u64, OwnedFd)>,
}

impl Party {
    fn open(world: &World) -> Self {
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(world.socket()).unwrap()).unwrap();
        let mut party = Self { socket, nonce: String::new(), lent: Vec::new() };
        let greeting = party.receive(RecvFlags::empty()).unwrap();
        party.nonce = greeting["nonce"].as_str().unwrap().to_owned();
        party
    }

    fn hello(&self, world: &World) {
        let mac = Hmac::<sha2::Sha256>::new_from_slice(world.hostile.secret.as_bytes()).unwrap();
        let mac = mac.chain_update(b"nigh fast path 1\n").chain_update(self.nonce.as_bytes()).finalize().into_bytes();
        let mac: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
        self.ask(1, &json!({ "access_key": world.hostile.id, "mac": mac }), b"", None);
    }

    fn ask(&self, operation: u8, json: &Value, body: &[u8], with: Option<BorrowedFd<'_>>) {
        let json = json.to_string();
        let mut packet = vec![1, operation, 0, 0, 7, 0, 0, 0];
        packet.extend((json.len() as u32).to_le_bytes());
        packet.extend((body.len() as u32).to_le_bytes());
        packet.extend(json.as_bytes());
        packet.extend(body);
        self.send(&packet, with);
    }

    /// What cannot be sent, as the server has hung up or reads no further, is not.
    fn send(&self, packet: &[u8], with: Option<BorrowedFd<'_>>) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = with.as_slice();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(descriptors));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = rustix::net::sendmsg(&self.socket, &[IoSlice::new(packet)], &mut control, flags);
    }

    /// The next answer's JSON; what came with it is kept.
    fn receive(&mut self, flags: RecvFlags) -> Option<Value> {
        let mut packet = vec![0; 256 * 1024];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let slices = &mut [std::io::IoSliceMut::new(&mut packet)];
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let got = rustix::net::recvmsg(&self.socket, slices, &mut control, flags).ok().filter(|got| got.bytes > 0)?;
        let length = u32::from_le_bytes(packet[8..12].try_into().unwrap()) as usize;
        let json: Value = serde_json::from_slice(&packet[16..16 + length]).unwrap();
        assert!(got.bytes >= 16 + length);
        let handle = json["handle"].as_u64().unwrap_or(0);
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.lent.extend(descriptors.map(|descriptor| (handle, descriptor)));
            }
        }
        Some(json)
    }

    /// A handle that was heard of, or any number.
    fn handle(&self, drawn: u16) -> u64 {
        let lent = self.lent.get(usize::from(drawn) % (self.lent.len() + 1));
        lent.map_or(u64::from(drawn), |(handle, _)| *handle)
    }
}

fn key(drawn: u16) -> String {
    ["small", "large", "written-0", "written-1", "absent", "", "a/../b"][usize::from(drawn) % 7].to_owned()
}

fn step(world: &World, party: &mut Party, (kind, drawn, bytes): (u8, u16, &[u8])) {
    let written = format!("written-{}", drawn % 2);
    let text = String::from_utf8_lossy(bytes);
    match kind % 14 {
        0 => party.hello(world),
        1 => party.ask(1, &json!({ "access_key": world.hostile.id, "mac": text }), b"", None),
        2 => party.ask(2, &json!({ "bucket": "bucket", "key": key(drawn) }), b"", None),
        3 => {
            let operation = 2 + u8::from(drawn.is_multiple_of(2));
            let asked = json!({ "bucket": "bucket", "key": key(drawn / 2), "range": text, "released": [drawn, 1, 2] });
            party.ask(operation, &asked, b"", None);
        }
        4 => party.ask(4, &json!({ "bucket": "bucket", "key": written, "headers": {} }), bytes, None),
        5 => {
            let headers = json!({ text.as_ref(): "1", "content-type": text, "x-amz-meta-a": text });
            party.ask(4, &json!({ "bucket": "bucket", "key": written, "headers": headers }), bytes, None);
        }
        6 => {
            let length = LENGTHS[usize::from(drawn) % LENGTHS.len()];
            party.ask(5, &json!({ "length": length }), b"", None);
        }
        7 => {
            let handle = party.handle(drawn);
            let commit = json!({ "handle": handle, "bucket": "bucket", "key": written, "headers": {} });
            party.ask(6, &commit, b"", None);
        }
        8 => party.ask(7 + (drawn % 2) as u8, &json!({ "handle": party.handle(drawn / 2) }), b"", None),
        9 => party.send(bytes, None),
        // Descriptors of its own, and of what it was lent.
        10 => {
            let own = party.lent.first().map_or(party.socket.as_fd(), |(_, descriptor)| descriptor.as_fd());
            let asked = json!({ "bucket": "bucket", "key": key(drawn) });
            party.ask(2 + (drawn % 7) as u8, &asked, bytes, Some(own));
        }
        11 => {
            let how = [Shutdown::Write, Shutdown::Read, Shutdown::Both][usize::from(drawn) % 3];
            let _ = rustix::net::shutdown(&party.socket, how);
        }
        // It writes what it may, also beside a commit; and is refused where it may not.
        12 => {
            for (_, descriptor) in &party.lent {
                let _ = rustix::io::pwrite(descriptor, bytes, u64::from(drawn));
                let _ = rustix::fs::ftruncate(descriptor, u64::from(drawn));
            }
        }
        _ => {
            while party.receive(RecvFlags::DONTWAIT).is_some() {}
            if drawn.is_multiple_of(3) {
                party.lent.clear();
            }
        }
    }
}

fuzz_target!(|steps: Vec<(u8, u8, u16, &[u8])>| {
    let world = World::get();
    let mut parties: Vec<Option<Party>> = (0..CONNECTIONS_MAX).map(|_| None).collect();
    for (whose, kind, drawn, bytes) in steps.into_iter().take(STEPS_MAX) {
        let place = &mut parties[usize::from(whose) % CONNECTIONS_MAX];
        let party = place.get_or_insert_with(|| {
            let party = Party::open(world);
            // Most know their key; who is refused sees little of the server.
            if whose < 200 {
                party.hello(world);
            }
            party
        });
        if kind == u8::MAX {
            *place = None;
            continue;
        }
        step(world, party, (kind, drawn, bytes));
    }
    let usage = world.fast_path.usage();
    assert!(usage.held_bytes <= 2 * HELD.bytes(), "{usage:?}");
    drop(parties);
    let mut client = world.client(&world.other);
    for (name, size) in KEPT {
        let got = client.get("bucket", name, &Conditions::default()).unwrap();
        assert!(*got == *bytes_of(name, size), "{name} is what it was");
    }
});
