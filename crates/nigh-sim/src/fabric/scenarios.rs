//! One operation at a time: a get, a put beside sharers, two puts of one object, servers that read at once.

use super::workflow::{Function, Object, ObjectId, Server, Step, Workflow};

const OBJECT: ObjectId = ObjectId(0);

fn function(name: &'static str, server: u8, stage: u8, steps: Vec<Step>) -> Function {
    Function { name, server: Server(server), stage, steps }
}

/// Server 0 reads an object that it has no copy of.
pub fn one_get(bytes: u64) -> Workflow {
    gets_at_once(bytes, 1)
}

/// Server 0 writes an object of which servers 1 to `sharers` have copies.
pub fn one_put(bytes: u64, sharers: u8) -> Workflow {
    Workflow {
        name: "one put",
        objects: vec![Object { bytes, cached_at: (1..=sharers).map(Server).collect() }],
        functions: vec![function("put", 0, 0, vec![Step::Put(OBJECT)])],
    }
}

/// The same, and server 0 writes the object again at once.
pub fn two_puts(bytes: u64, sharers: u8) -> Workflow {
    let steps = vec![Step::Put(OBJECT), Step::Put(OBJECT)];
    Workflow { name: "two puts", functions: vec![function("put", 0, 0, steps)], ..one_put(bytes, sharers) }
}

/// Each of `servers` reads an object of its own at the same time.
pub fn gets_at_once(bytes: u64, servers: u8) -> Workflow {
    let get = |server: u8| function("get", server, 0, vec![Step::Get(ObjectId(u16::from(server)))]);
    Workflow {
        name: "gets at once",
        objects: (0..servers).map(|_| Object { bytes, cached_at: Vec::new() }).collect(),
        functions: (0..servers).map(get).collect(),
    }
}
