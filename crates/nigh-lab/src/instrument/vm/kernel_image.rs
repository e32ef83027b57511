//! Where a kernel comes from: a pinned Debian package's `vmlinuz` in a folder, checked, and the `vmlinux` inside.
//!
//! A `vmlinuz` is a small program with the compressed kernel behind it (Documentation/arch/x86/boot.rst:
//! `payload_offset` and `payload_length`, protocol 2.08). Nothing is fetched here; that is the install script's work.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use sha2::{Digest, Sha256};

use super::VmError;

const HINT: &str = "run scripts/install-vm.sh and scripts/install-vm-kernels.sh, or say where they are by --kernels";
/// More than any kernel unpacked; a wrong length must not fill the memory.
const VMLINUX_MAX_BYTES: usize = 512 << 20;

/// One kernel that is known to boot and to hold `native_cpuid()` where it is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedKernel {
    /// Its series, "6.1"; also its folder's name.
    pub name: &'static str,
    /// The package's path in a Debian mirror; names the exact version.
    pub package: &'static str,
    /// The sha256 of its `vmlinuz`, in hex.
    sha256: &'static str,
}

/// The list that this module and the install script share.
const LIST: &str = include_str!("kernels.tsv");

/// The pinned kernels, oldest first.
pub fn pinned() -> impl Iterator<Item = PinnedKernel> {
    LIST.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
        let mut fields = line.split('\t');
        let (name, package, _, sha256) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        Some(PinnedKernel { name, package, sha256 })
    })
}

/// A folder with a `vmlinuz` per pinned kernel, as `scripts/install-vm-kernels.sh` makes it.
#[derive(Debug, Clone)]
pub struct KernelFolder(PathBuf);

impl KernelFolder {
    /// The folder `path`; it need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The `vmlinuz` of `kernel`, whatever it is.
    ///
    /// # Errors
    /// `Missing` if it was not installed, `Host` if it cannot be read.
    pub(super) fn vmlinuz(&self, kernel: PinnedKernel) -> Result<Vec<u8>, VmError> {
        let path = self.path(kernel);
        match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(VmError::Missing { what: format!("Linux {} ({})", kernel.name, path.display()), hint: HINT })
            }
            read => read.map_err(VmError::host("read", path)),
        }
    }

    fn path(&self, kernel: PinnedKernel) -> PathBuf {
        self.0.join(kernel.name).join("vmlinuz")
    }

    /// The `vmlinux` of `kernel`, unpatched.
    ///
    /// # Errors
    /// `Missing` if it was not installed, `Kernel` if it is another one, and if it cannot be read or unpacked.
    pub fn vmlinux(&self, kernel: PinnedKernel) -> Result<Vec<u8>, VmError> {
        let vmlinuz = self.vmlinuz(kernel)?;
        let digest = Sha256::digest(&vmlinuz).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        if digest != kernel.sha256 {
            let path = self.path(kernel);
            return Err(VmError::kernel(format!("{} has sha256 {digest}, not {}", path.display(), kernel.sha256)));
        }
        extract_vmlinux(&vmlinuz)
    }
}

/// The ELF file inside a `vmlinuz`.
fn extract_vmlinux(vmlinuz: &[u8]) -> Result<Vec<u8>, VmError> {
    const SETUP_SECTORS_AT: usize = 0x1f1;
    const MAGIC_AT: usize = 0x202;
    const PAYLOAD_OFFSET_AT: usize = 0x248;
    const PAYLOAD_LENGTH_AT: usize = 0x24c;
    const SECTOR_BYTES: usize = 512;

    if vmlinuz.get(MAGIC_AT..MAGIC_AT + 4) != Some(b"HdrS") {
        return Err(VmError::kernel("it is no bzImage: its header's magic is missing"));
    }
    let word = |at: usize| {
        let bytes = vmlinuz.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map(|bytes| u32::from_le_bytes(bytes) as usize).ok_or_else(|| VmError::kernel("its header is cut off"))
    };
    // Zero means four (boot.rst, setup_sects).
    let setup_sectors = match vmlinuz[SETUP_SECTORS_AT] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = (setup_sectors + 1) * SECTOR_BYTES + word(PAYLOAD_OFFSET_AT)?;
    let payload = vmlinuz
        .get(start..start.saturating_add(word(PAYLOAD_LENGTH_AT)?))
        .ok_or_else(|| VmError::kernel("its payload is cut off"))?;
    // The kernel's build appends the unpacked length (scripts/Makefile.lib, size_append).
    let (packed, length) = payload.split_last_chunk::<4>().ok_or_else(|| VmError::kernel("its payload is empty"))?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > VMLINUX_MAX_BYTES {
        return Err(VmError::kernel(format!("it claims to be {length} bytes unpacked")));
    }
    let program = match packed {
        [0x02, 0x21, 0x4c, 0x18, ..] => "lz4",
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        other => return Err(VmError::kernel(format!("unknown compression {:02x?}", &other[..other.len().min(4)]))),
    };
    // gzip carries the length itself: it is part of the stream.
    let vmlinux = unpack(program, if program == "gzip" { payload } else { packed })?;
    if vmlinux.len() != length || !vmlinux.starts_with(b"\x7fELF") {
        return Err(VmError::kernel(format!("{program} made {} bytes of it, not {length} of ELF", vmlinux.len())));
    }
    Ok(vmlinux)
}

/// Sends `packed` through `program -dcq`.
fn unpack(program: &'static str, packed: &[u8]) -> Result<Vec<u8>, VmError> {
    let started =
        Command::new(program).arg("-dcq").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match started {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(VmError::Missing { what: format!("the program {program}"), hint: HINT });
        }
        started => started.map_err(VmError::host("run", program))?,
    };
    let stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        // A program that stops reading ends the pipe; its own words say why.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(packed)));
        child.wait_with_output()
    })
    .map_err(VmError::host("read from", program))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(VmError::kernel(format!("{program} cannot unpack it ({}): {}", output.status, words.trim())));
    }
    Ok(output.stdout)
}

/// Where the install script puts the kernels of the project in `folder`.
pub fn installed_below(folder: &Path) -> KernelFolder {
    KernelFolder::new(folder.join(".deps/kernels"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage with `payload` behind one setup sector.
    fn bz_image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&8_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&u32::try_from(payload.len()).unwrap().to_le_bytes());
        image.extend([0; 8]);
        image.extend(payload);
        image.extend(b"what stands behind the payload");
        image
    }

    fn packed_by(program: &str, elf: &[u8]) -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("elf");
        std::fs::write(&file, elf).unwrap();
        let output = Command::new(program).arg("-c").arg(&file).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    #[test]
    fn a_kernel_is_unpacked_whatever_packed_it() {
        let elf: Vec<u8> = b"\x7fELF".iter().copied().chain((0..100_000_u32).map(|byte| (byte % 251) as u8)).collect();
        for program in ["xz", "gzip"] {
            let mut payload = packed_by(program, &elf);
            if program != "gzip" {
                payload.extend(u32::try_from(elf.len()).unwrap().to_le_bytes());
            }
            assert!(extract_vmlinux(&bz_image(&payload)).unwrap() == elf, "{program}");
        }
    }

    #[test]
    fn what_is_no_kernel_is_refused_with_the_reason() {
        let said = |image: &[u8]| extract_vmlinux(image).unwrap_err().to_string();
        assert!(said(b"#!/bin/sh").contains("no bzImage"));
        assert!(said(&bz_image(b"")).contains("empty"));
        assert!(said(&bz_image(b"plain text\0\0\0\0")).contains("unknown compression"));
        let mut short = packed_by("xz", b"no elf");
        short.extend(6_u32.to_le_bytes());
        assert!(said(&bz_image(&short)).contains("not 6 of ELF"));
        let mut cut = bz_image(&short);
        cut.truncate(1040);
        assert!(said(&cut).contains("cut off"));
        let mut huge = packed_by("xz", b"no elf");
        huge.extend(u32::MAX.to_le_bytes());
        assert!(said(&bz_image(&huge)).contains("4294967295"));
    }

    #[test]
    fn a_kernel_other_than_the_pinned_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let kernels = KernelFolder::new(folder.path());
        let kernel = pinned().next().unwrap();
        assert!(kernels.vmlinux(kernel).unwrap_err().is_missing());
        std::fs::create_dir(folder.path().join(kernel.name)).unwrap();
        std::fs::write(folder.path().join(kernel.name).join("vmlinuz"), bz_image(b"another")).unwrap();
        let refused = kernels.vmlinux(kernel).unwrap_err();
        assert!(!refused.is_missing() && refused.to_string().contains(kernel.sha256), "{refused}");
    }

    #[test]
    fn an_old_and_a_new_kernel_are_pinned_to_one_build_each() {
        let names: Vec<_> = pinned().map(|kernel| kernel.name).collect();
        assert_eq!(names, ["6.1", "7.2"]);
        for kernel in pinned() {
            assert!(kernel.sha256.len() == 64 && kernel.package.contains(&format!("-{}.", kernel.name)), "{kernel:?}");
        }
    }
}
