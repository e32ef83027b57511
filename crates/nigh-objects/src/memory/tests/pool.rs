//! Pages of objects that are gone, for objects that come.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use nigh_data::ObjectId;
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::*;

/// What a client of another process has of an object: its file, or a mapping without the file.
struct HeldObject {
    mark: u8,
    length: usize,
    bytes: HeldBytes,
}

enum HeldBytes {
    File(File),
    Mapping(&'static [u8]),
}

impl HeldObject {
    fn new(file: OwnedFd, mark: u8, length: usize, is_mapped: bool) -> Self {
        let bytes = if is_mapped {
            // SAFETY: a new mapping; the file has so many bytes, which nobody can change or take away.
            let map = unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &file, 0) };
            // SAFETY: as above; the mapping stays until the test process ends.
            HeldBytes::Mapping(unsafe { std::slice::from_raw_parts(map.unwrap().cast::<u8>(), length) })
        } else {
            HeldBytes::File(File::from(file))
        };
        Self { mark, length, bytes }
    }

    fn is_whole(&self) -> bool {
        let mut read = vec![0; self.length];
        match &self.bytes {
            HeldBytes::File(file) => file.read_exact_at(&mut read, 0).unwrap(),
            HeldBytes::Mapping(map) => read.copy_from_slice(map),
        }
        read.iter().all(|byte| *byte == self.mark)
    }
}

#[tokio::test]
async fn two_namespaces_that_use_the_same_pages_in_turn_see_their_own_objects_alone() {
    let f = Fixture::new().await;
    let other = Principal::outside(Namespace::new("other").unwrap());
    f.memory.create_bucket(&other, &f.bucket).await.unwrap();
    let tenants = [f.who.clone(), other];
    let mut written: HashMap<(usize, usize), (u8, usize)> = HashMap::new();
    let mut held = Vec::new();
    for n in 0..200_usize {
        let (tenant, name, mark) = (n % 2, n / 2 % 40, n as u8);
        let length = 70_000 + n * 997 % 30_000;
        let (who, named) = (&tenants[tenant], |name: usize| key(&format!("k{name}")));
        f.memory.put(who, &f.bucket, &named(name), body(&vec![mark; length])).await.unwrap();
        written.insert((tenant, name), (mark, length));
        let object = ObjectId { namespace: who.namespace.clone(), bucket: f.bucket.clone(), key: named(name) };
        if n % 8 < 2
            && let Some((_, Some(segment))) = f.memory.peek(&object)
        {
            let file = segment.hand_out().unwrap().unwrap();
            held.push(HeldObject::new(file, mark, length, n % 16 < 8));
        }
        // One that was just written, and one that was evicted and comes from the store.
        for name in [name, (name + 1) % 40] {
            let Some((mark, length)) = written.get(&(tenant, name)).copied() else { continue };
            let got = f.memory.get(who, &f.bucket, &named(name), GetRequest::default()).await.unwrap();
            let bytes = bytes_of(got).await.unwrap();
            assert!(bytes.len() == length && bytes.iter().all(|byte| *byte == mark), "{tenant} {name} at {n}");
        }
        let usage = f.memory.usage();
        assert!(usage.living.bytes() + usage.pooled.bytes() <= usage.budget.bytes(), "{usage:?}");
        assert!(held.iter().all(HeldObject::is_whole), "at {n}");
    }
    let usage = f.memory.usage();
    assert!(usage.evictions > 0 && usage.segments_pooled > 50 && held.len() > 20, "{usage:?}");
}

#[tokio::test]
async fn pages_without_an_object_are_given_back_before_any_copy() {
    let f = Fixture::new().await;
    f.put("a", &vec![1; CACHED]).await;
    let each = f.memory.living();
    f.put("a", &vec![2; CACHED]).await;
    until(|| f.memory.usage().pooled == each).await;
    assert_eq!((f.memory.usage().living, f.memory.living()), (each, ByteSize(2 * each.bytes())));

    let shrunk = f.memory.shrink(ByteSize(1));
    assert_eq!((shrunk.freed, shrunk.copies), (each, 0));
    let shrunk = f.memory.shrink(ByteSize(1));
    assert_eq!((shrunk.freed, shrunk.copies), (each, 1));
    assert_eq!(f.memory.living(), ByteSize::ZERO, "the copy's pages do not wait");
    assert_eq!(f.get("a").await.unwrap(), vec![2; CACHED]);
}

#[tokio::test]
async fn a_lower_budget_holds_for_pages_without_an_object_too() {
    let f = Fixture::new().await;
    for mark in 0..3 {
        f.put("a", &vec![mark; CACHED]).await;
    }
    until(|| f.memory.usage().pooled > ByteSize::ZERO).await;
    let each = f.memory.usage().living;
    f.memory.set_cache_budget(each);
    assert_eq!(f.memory.living(), each);
    f.put("a", &vec![9; CACHED / 2]).await;
    assert_eq!(f.get("a").await.unwrap(), vec![9; CACHED / 2]);
    assert!(f.memory.living() <= each);
}
