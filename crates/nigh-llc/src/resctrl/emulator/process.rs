//! The emulated machine's tasks: threads with their process, owner and place in resctrl. Tests fork, end and reuse
//! them; the emulator moves them.

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Thread {
    /// Thread id.
    pub(super) tid: u32,
    /// Process id: the first thread's.
    pub(super) tgid: u32,
    /// Parent process.
    pub(super) parent: u32,
    /// Owner.
    pub(super) uid: u32,
    /// When it started, in ticks; never the same for two lives of one id.
    pub(super) started: u64,
    pub(super) closid: u32,
    pub(super) rmid: u32,
}

/// All threads, oldest process first.
#[derive(Debug)]
pub(super) struct Processes {
    threads: Vec<Thread>,
    ticks: u64,
    /// The task that writes: what `0` means in `tasks`.
    pub(super) writer_tid: u32,
    /// Its user.
    pub(super) writer_uid: u32,
}

impl Default for Processes {
    fn default() -> Self {
        let mut processes = Self { threads: Vec::new(), ticks: 0, writer_tid: 1, writer_uid: 0 };
        processes.spawn(1, 0);
        processes
    }
}

impl Processes {
    /// A new process of process 1, in the root group.
    pub(super) fn spawn(&mut self, tid: u32, uid: u32) {
        self.insert(Thread { tid, tgid: tid, parent: 1, uid, started: 0, closid: 0, rmid: 0 });
    }

    /// A child process or another thread of `of`; it inherits the owner and the groups. Nothing if `of` is gone.
    pub(super) fn fork(&mut self, of: u32, tid: u32, thread: bool) {
        if let Some(from) = self.find(of).cloned() {
            let (tgid, parent) = if thread { (from.tgid, from.parent) } else { (tid, from.tgid) };
            self.insert(Thread { tid, tgid, parent, ..from });
        }
    }

    fn insert(&mut self, thread: Thread) {
        self.exit(thread.tid);
        self.ticks += 1;
        self.threads.push(Thread { started: self.ticks, ..thread });
    }

    /// Ends a thread.
    pub(super) fn exit(&mut self, tid: u32) {
        self.threads.retain(|thread| thread.tid != tid);
    }

    pub(super) fn find(&self, tid: u32) -> Option<&Thread> {
        self.threads.iter().find(|thread| thread.tid == tid)
    }

    /// Sets a thread's ids.
    pub(super) fn place(&mut self, tid: u32, (closid, rmid): (u32, u32)) {
        if let Some(thread) = self.threads.iter_mut().find(|thread| thread.tid == tid) {
            (thread.closid, thread.rmid) = (closid, rmid);
        }
    }

    /// Sets the ids of every thread that `which` picks.
    pub(super) fn place_all(&mut self, which: impl Fn(&Thread) -> bool, (closid, rmid): (u32, u32)) {
        for thread in self.threads.iter_mut().filter(|thread| which(thread)) {
            (thread.closid, thread.rmid) = (closid, rmid);
        }
    }

    pub(super) fn move_all_to_root(&mut self) {
        self.place_all(|_all| true, (0, 0));
    }

    /// The threads in the order the kernel walks them: by process, oldest first.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Thread> {
        let leaders = self.threads.iter().filter(|thread| thread.tid == thread.tgid);
        leaders.flat_map(|leader| self.threads.iter().filter(move |thread| thread.tgid == leader.tid))
    }

    /// The threads of a process, none if it is gone.
    pub(super) fn threads_of(&self, tgid: u32) -> Vec<u32> {
        self.threads.iter().filter(|thread| thread.tgid == tgid).map(|thread| thread.tid).collect()
    }

    /// The child processes of a process.
    pub(super) fn children_of(&self, tgid: u32) -> Vec<u32> {
        let leaders = self.threads.iter().filter(|thread| thread.tid == thread.tgid);
        leaders.filter(|thread| thread.parent == tgid).map(|thread| thread.tid).collect()
    }
}
