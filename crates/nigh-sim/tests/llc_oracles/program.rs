//! The program whose accesses are compared, compiled here, and its references as valgrind's lackey prints them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nigh_sim::llc::LINE_BYTES;
use tempfile::TempDir;

/// What a reference does. A read and a write of one instruction to one place count as a read, as cachegrind counts them.
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

/// The compiled program and what it did.
pub(super) struct Walk {
    scratch: TempDir,
    pub(super) program: PathBuf,
    pub(super) references: Vec<Reference>,
}

impl Walk {
    /// Compiles and traces the program. Where the tools for that are missing, says that `test` is skipped.
    pub(super) fn record(test: &str) -> Option<Self> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            println!("SKIPPED: {test}: the program is for Linux on x86-64");
            return None;
        }
        for tool in ["valgrind", "cc"] {
            if Command::new(tool).arg("--version").output().is_err() {
                println!("SKIPPED: {test}: there is no {tool} here");
                return None;
            }
        }
        let scratch = TempDir::new().unwrap();
        let program = scratch.path().join("walk");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/llc_oracles/walk.c");
        succeed(
            Command::new("cc")
                .args(["-O1", "-static", "-nostdlib", "-fno-pie", "-no-pie", "-fno-stack-protector", "-o"])
                .args([&program, &source]),
        );
        let log = scratch.path().join("lackey.txt");
        let log_option = format!("--log-file={}", log.display());
        succeed(Command::new("valgrind").args(["--tool=lackey", "--trace-mem=yes", &log_option]).arg(&program));
        let text = std::fs::read_to_string(log).unwrap();
        let references: Vec<Reference> = text.lines().filter_map(Reference::parse).collect();
        assert!(references.len() > 100_000, "{} references", references.len());
        Some(Self { scratch, program, references })
    }

    pub(super) fn scratch(&self) -> &Path {
        self.scratch.path()
    }
}

fn succeed(command: &mut Command) {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
}
