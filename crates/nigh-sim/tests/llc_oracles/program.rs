//! The programs whose accesses are compared, and their references as valgrind's lackey prints them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nigh_sim::llc::LINE_BYTES;
use tempfile::TempDir;

use crate::skipped::skip;

/// What a reference does. A read and a write of one instruction to one place count as a read, as cachegrind counts
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Instruction,
    Read,
    Write,
}

/// One reference to memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reference {
    pub(super) kind: Kind,
    address: u64,
    bytes: u64,
}

impl Reference {
    /// `" L 1ffe,8"`: a kind of two or three columns, the address in base 16, the bytes in base 10.
    fn parse(line: &str) -> Option<Self> {
        let kind = match line.get(..2)? {
            "I " => Kind::Instruction,
            " L" | " M" => Kind::Read,
            " S" => Kind::Write,
            _ => return None,
        };
        let (address, bytes) = line[2..].trim().split_once(',')?;
        Some(Self { kind, address: u64::from_str_radix(address, 16).ok()?, bytes: bytes.parse().ok()? })
    }

    /// The one or two lines it touches.
    pub(super) fn lines(self) -> impl Iterator<Item = u64> {
        self.address / LINE_BYTES..=(self.address + self.bytes - 1) / LINE_BYTES
    }
}

/// A program and what it did.
pub(super) struct Recording {
    scratch: TempDir,
    program: PathBuf,
    pub(super) references: Vec<Reference>,
}

impl Recording {
    /// Compiles `walk.c` and traces it. Where the tools for that are missing, says that `test` is skipped.
    pub(super) fn of_walk(test: &str) -> Option<Self> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            skip(test, "the program is for Linux on x86-64");
            return None;
        }
        if missing(test, "cc") {
            return None;
        }
        let scratch = TempDir::new().unwrap();
        let program = scratch.path().join("walk");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llc_oracles/walk.c");
        succeed(
            Command::new("cc")
                .args(["-O1", "-static", "-nostdlib", "-fno-pie", "-no-pie", "-fno-stack-protector", "-o"])
                .args([&program, &source]),
        );
        Self::of(test, scratch, program)
    }

    /// Traces a program of the system, its dynamic loader included.
    pub(super) fn of_installed(test: &str, program: &str) -> Option<Self> {
        if !Path::new(program).exists() {
            skip(test, format_args!("there is no {program} here"));
            return None;
        }
        Self::of(test, TempDir::new().unwrap(), PathBuf::from(program))
    }

    fn of(test: &str, scratch: TempDir, program: PathBuf) -> Option<Self> {
        if missing(test, "valgrind") || missing(test, "setarch") {
            return None;
        }
        let mut recording = Self { scratch, program, references: Vec::new() };
        let log = recording.scratch.path().join("lackey.txt");
        recording.run(&["--tool=lackey", "--trace-mem=yes", &format!("--log-file={}", log.display())]);
        let text = std::fs::read_to_string(log).unwrap();
        recording.references = text.lines().filter_map(Reference::parse).collect();
        assert!(recording.references.len() > 50_000, "{} references", recording.references.len());
        Some(recording)
    }

    /// Runs the program under valgrind, with the same addresses and environment each time.
    pub(super) fn run(&self, options: &[&str]) {
        succeed(Command::new("setarch").args(["-R", "env", "-i", "valgrind"]).args(options).arg(&self.program));
    }

    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

/// Whether `tool` cannot be run; says then that `test` is skipped.
fn missing(test: &str, tool: &str) -> bool {
    let missing = Command::new(tool).arg("--version").output().is_err();
    if missing {
        skip(test, format_args!("there is no {tool} here"));
    }
    missing
}

fn succeed(command: &mut Command) {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
}
