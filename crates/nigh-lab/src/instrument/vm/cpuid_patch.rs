//! Makes a kernel believe that its processor has Intel RDT: `native_cpuid()` of an uncompressed x86-64 kernel is led
//! through a piece of code that adds the leaves 0x7, 0xf and 0x10.
//!
//! With `CONFIG_PARAVIRT_XXL` every `cpuid` of the kernel proper goes through this one function, so that one jump is
//! enough; the code it leads to lies in int3 padding of the same section, where nothing else is. Of resctrl itself
//! no byte is touched. The patch is refused unless the function is found exactly once.
//!
//! Sources: Intel SDM vol. 3, 19.18.3 and 19.19.4 (the leaves); System V ABI for x86-64, ELF-64 object file format.

use std::ops::Range;

use nigh_llc::resctrl::emulator::{CacheConfig, MachineConfig};

use super::VmError;

/// The leaves of `machine`'s processor. Each is either added to the answer of the real processor or replaces it. Features
/// that only processors of other vendors have are left out.
fn leaves(machine: &MachineConfig) -> Vec<Leaf> {
    const RDT_MONITORING: u32 = 1 << 12;
    const RDT_ALLOCATION: u32 = 1 << 15;
    const L3: u32 = 1 << 1;
    const L2: u32 = 1 << 2;
    const MBA: u32 = 1 << 3;
    const CDP: u32 = 1 << 2;
    const SPARSE: u32 = 1 << 3;
    const MBA_LINEAR: u32 = 1 << 2;

    let flag = |on: bool, bit: u32| if on { bit } else { 0 };
    let cache = |subleaf: u32, cache: &CacheConfig| {
        let abilities = flag(cache.cdp, CDP) | flag(cache.sparse, SPARSE);
        Leaf::own(0x10, subleaf, [u32::from(cache.ways) - 1, cache.shareable, abilities, cache.closids - 1])
    };
    let (l3, l2, mb, monitoring) = (&machine.l3, &machine.l2, &machine.mb, &machine.monitoring);
    let controls = [(l3.is_some(), L3), (l2.is_some(), L2), (mb.is_some(), MBA)];
    let abilities =
        flag(controls.iter().any(|(on, _)| *on), RDT_ALLOCATION) | flag(monitoring.is_some(), RDT_MONITORING);
    let mut leaves = vec![
        Leaf { leaf: 0x7, subleaf: 0, keeps: true, registers: [0, abilities, 0, 0] },
        Leaf::own(0x10, 0, [0, controls.iter().map(|(on, bit)| flag(*on, *bit)).sum(), 0, 0]),
    ];
    leaves.extend(l3.as_ref().map(|l3| cache(1, l3)));
    leaves.extend(l2.as_ref().map(|l2| cache(2, l2)));
    leaves.extend(mb.as_ref().map(|mb| {
        // EAX is the largest throttle, minus one; the step of a linear scale is what is left to 100.
        Leaf::own(0x10, 3, [100 - mb.gran - 1, 0, flag(mb.linear, MBA_LINEAR), mb.closids - 1])
    }));
    if let Some(monitoring) = monitoring {
        let events = [(monitoring.occupancy, 1), (monitoring.total, 2), (monitoring.local, 4)];
        let events = events.iter().map(|(on, bit)| flag(*on, *bit)).sum();
        leaves.push(Leaf::own(0xf, 0, [0, monitoring.rmids - 1, 0, L3]));
        leaves.push(Leaf::own(0xf, 1, [0, monitoring.scale, monitoring.rmids - 1, events]));
    }
    leaves
}

struct Leaf {
    leaf: u32,
    subleaf: u32,
    /// Whether the bits are added to the processor's own answer.
    keeps: bool,
    /// EAX, EBX, ECX, EDX.
    registers: [u32; 4],
}

impl Leaf {
    fn own(leaf: u32, subleaf: u32, registers: [u32; 4]) -> Self {
        Self { leaf, subleaf, keeps: false, registers }
    }

    /// The row of the table that [`CAVE`] walks: key, mask of what is kept, padding, four registers.
    fn row(&self) -> [u8; ROW_BYTES] {
        let kept = if self.keeps { u32::MAX } else { 0 };
        let mut row = [0; ROW_BYTES];
        let [eax, ebx, ecx, edx] = self.registers;
        for (place, word) in row.chunks_exact_mut(4).zip([self.leaf, self.subleaf, kept, 0, eax, ebx, ecx, edx]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        row
    }
}

const ROW_BYTES: usize = 32;

/// The three instructions that the jump replaces, as every kernel of the pinned versions has them. On entry RDI points
/// to EAX and RDX to ECX of the answer; by here they stand in R8 (and RDI).
const SITE: [&[u8]; 3] = [
    &[0x41, 0x8b, 0x00], // mov (%r8),%eax
    &[0x8b, 0x0a],       // mov (%rdx),%ecx
    &[0x0f, 0xa2],       // cpuid
];
/// What follows the site and makes it certain that this is the function.
const AFTER_SITE: [&[u8]; 2] = [
    &[0x41, 0x89, 0x00], // mov %eax,(%r8)
    &[0x89, 0x1e],       // mov %ebx,(%rsi)
];

/// The code in the padding. R10 and R11 are the callee's to spoil (System V ABI) and the function uses neither.
/// It ends in a jump back whose distance, as that of the table, is filled in.
const CAVE: [&[u8]; 24] = [
    &[0x41, 0x8b, 0x00],                         // mov (%r8),%eax
    &[0x8b, 0x0a],                               // mov (%rdx),%ecx
    &[0x41, 0x89, 0xc2],                         // mov %eax,%r10d
    &[0x41, 0x89, 0xcb],                         // mov %ecx,%r11d
    &[0x0f, 0xa2],                               // cpuid
    &[0x49, 0xc1, 0xe3, 0x20],                   // shl $32,%r11
    &[0x4d, 0x09, 0xd3],                         // or %r10,%r11           the key: subleaf << 32 | leaf
    &[0x4c, 0x8d, 0x15, 0x36, 0x00, 0x00, 0x00], // lea table(%rip),%r10
    &[0x49, 0x83, 0x3a, 0x00],                   // 1: cmpq $0,(%r10)      the table's end
    &[0x74, 0x2b],                               // je 3f
    &[0x4d, 0x39, 0x1a],                         // cmp %r11,(%r10)
    &[0x74, 0x06],                               // je 2f
    &[0x49, 0x83, 0xc2, 0x20],                   // add $32,%r10
    &[0xeb, 0xef],                               // jmp 1b
    &[0x41, 0x23, 0x42, 0x08],                   // 2: and 8(%r10),%eax
    &[0x41, 0x23, 0x5a, 0x08],                   // and 8(%r10),%ebx
    &[0x41, 0x23, 0x4a, 0x08],                   // and 8(%r10),%ecx
    &[0x41, 0x23, 0x52, 0x08],                   // and 8(%r10),%edx
    &[0x41, 0x0b, 0x42, 0x10],                   // or 16(%r10),%eax
    &[0x41, 0x0b, 0x5a, 0x14],                   // or 20(%r10),%ebx
    &[0x41, 0x0b, 0x4a, 0x18],                   // or 24(%r10),%ecx
    &[0x41, 0x0b, 0x52, 0x1c],                   // or 28(%r10),%edx
    &[0xe9],                                     // 3: jmp back
    &[0x00, 0x00, 0x00, 0x00],                   // its distance; the table follows
];
/// Length of `jmp rel32`.
const JUMP_BYTES: usize = 5;
/// The padding's own byte.
const INT3: u8 = 0xcc;
/// Kernels pad with less between functions; only a run as long as this is nobody's.
const PADDING_MIN_BYTES: usize = 512;

/// Where the patch went: virtual addresses of the jump and of the code it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatchSites {
    /// The jump in `native_cpuid()`.
    pub site: u64,
    /// The code.
    pub cave: u64,
}

/// Patches the kernel `vmlinux` (an ELF file) so that it sees `machine`'s processor.
///
/// # Errors
/// `Kernel` if it is no ELF-64 file with a `.text`, if the function is not there exactly once, or if there is no room.
pub fn report_rdt(vmlinux: &mut [u8], machine: &MachineConfig) -> Result<PatchSites, VmError> {
    let text = text_section(vmlinux)?;
    let address = text.address;
    let text = vmlinux.get_mut(text.file).ok_or_else(|| VmError::kernel("its .text lies beyond the file's end"))?;

    let pattern: Vec<u8> = SITE.iter().chain(&AFTER_SITE).flat_map(|code| code.iter().copied()).collect();
    let found: Vec<usize> = memchr::memmem::find_iter(text, &pattern).collect();
    let [site] = found[..] else {
        return Err(VmError::kernel(format!("native_cpuid() is in it {} times, not once", found.len())));
    };
    let replaced = SITE.concat().len();
    let padding = longest_padding(text)
        .ok_or_else(|| VmError::kernel(format!("its .text has no padding of {PADDING_MIN_BYTES} bytes")))?;
    // Aligned, and a little off the last function's end.
    let cave = (padding.start + 31) & !15;

    let mut code = CAVE.concat();
    let back = distance(cave + code.len(), site + replaced)?;
    let jump_at = code.len() - back.len();
    code[jump_at..].copy_from_slice(&back);
    code.extend(leaves(machine).iter().flat_map(Leaf::row));
    code.extend([0; ROW_BYTES]);
    if cave + code.len() > padding.end {
        return Err(VmError::kernel(format!("its padding of {} bytes is too short", padding.len())));
    }

    let mut jump = vec![0xe9];
    jump.extend(distance(site + JUMP_BYTES, cave)?);
    jump.resize(replaced, 0x90);
    text[site..site + replaced].copy_from_slice(&jump);
    text[cave..cave + code.len()].copy_from_slice(&code);
    Ok(PatchSites { site: address + site as u64, cave: address + cave as u64 })
}

/// The operand of a near jump that ends at `from`.
fn distance(from: usize, to: usize) -> Result<[u8; 4], VmError> {
    i32::try_from(to as i64 - from as i64)
        .map(i32::to_le_bytes)
        .map_err(|_| VmError::kernel("its padding is further than a jump reaches"))
}

/// The longest run of int3 that is long enough to be nobody's.
fn longest_padding(text: &[u8]) -> Option<Range<usize>> {
    let mut longest = 0..0;
    let mut from = 0;
    while let Some(start) = memchr::memchr(INT3, &text[from..]).map(|at| from + at) {
        let end = start + text[start..].iter().take_while(|&&byte| byte == INT3).count();
        if end - start > longest.len() {
            longest = start..end;
        }
        from = end;
    }
    (longest.len() >= PADDING_MIN_BYTES).then_some(longest)
}

struct Text {
    file: Range<usize>,
    address: u64,
}

/// Finds `.text` by the section headers.
fn text_section(elf: &[u8]) -> Result<Text, VmError> {
    const SECTION_HEADER_BYTES: usize = 64;
    let cut = || VmError::kernel("its section headers are cut off");
    let half = |at: usize| Some(u16::from_le_bytes(elf.get(at..at + 2)?.try_into().ok()?) as usize);
    let word = |at: usize| Some(u32::from_le_bytes(elf.get(at..at + 4)?.try_into().ok()?) as usize);
    let long = |at: usize| Some(u64::from_le_bytes(elf.get(at..at.checked_add(8)?)?.try_into().ok()?));

    if elf.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err(VmError::kernel("it is no little-endian ELF-64 file"));
    }
    let headers = long(0x28).ok_or_else(cut)? as usize;
    let count = half(0x3c).ok_or_else(cut)?;
    let names = half(0x3e).ok_or_else(cut)?;
    let header = |index: usize| headers.saturating_add(index * SECTION_HEADER_BYTES);
    let names = long(header(names).saturating_add(0x18)).ok_or_else(cut)? as usize;
    for section in (0..count).map(header) {
        let name = names.saturating_add(word(section).ok_or_else(cut)?);
        if elf.get(name..name.saturating_add(6)) == Some(b".text\0") {
            let address = long(section + 0x10).ok_or_else(cut)?;
            let start = long(section + 0x18).ok_or_else(cut)? as usize;
            let length = long(section + 0x20).ok_or_else(cut)? as usize;
            return Ok(Text { file: start..start.saturating_add(length), address });
        }
    }
    Err(VmError::kernel("it has no section .text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    use nigh_llc::resctrl::emulator::{Dialect, GuestMachine};

    const TEXT_AT: usize = 0x1000;
    const ADDRESS: u64 = 0xffff_ffff_8100_0000;
    /// Where the function under patch begins in the section.
    const FUNCTION_AT: usize = 0x100;
    const FUNCTION: [&[u8]; 10] = [
        &[0x49, 0x89, 0xf8], // mov %rdi,%r8
        &[0x53],             // push %rbx
        &[0x49, 0x89, 0xc9], // mov %rcx,%r9
        &[0x48, 0x89, 0xd7], // mov %rdx,%rdi
        &[0x41, 0x8b, 0x00, 0x8b, 0x0a, 0x0f, 0xa2],
        &[0x41, 0x89, 0x00, 0x89, 0x1e],
        &[0x5b],             // pop %rbx
        &[0x89, 0x0f],       // mov %ecx,(%rdi)
        &[0x41, 0x89, 0x11], // mov %edx,(%r9)
        &[0xc3],             // ret
    ];

    fn cascade_lake() -> MachineConfig {
        GuestMachine::CascadeLake.config(Dialect::Linux7)
    }

    /// An ELF file with a `.text` of `functions` copies of the function and `padding` bytes of int3.
    fn kernel(functions: usize, padding: usize) -> Vec<u8> {
        const NAMES: &[u8] = b"\0.shstrtab\0.text\0";
        let mut text = vec![0x90; FUNCTION_AT];
        for _ in 0..functions {
            text.extend(FUNCTION.concat());
            text.extend([INT3; 15]);
        }
        text.push(0xc3);
        text.resize(text.len() + padding, INT3);
        text.push(0xc3);

        let mut elf = vec![0; TEXT_AT];
        elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
        elf[0x40..0x40 + NAMES.len()].copy_from_slice(NAMES);
        elf[0x28..0x30].copy_from_slice(&0x80_u64.to_le_bytes());
        elf[0x3c..0x3e].copy_from_slice(&3_u16.to_le_bytes());
        elf[0x3e..0x40].copy_from_slice(&1_u16.to_le_bytes());
        let mut section = |index: usize, name: u32, address: u64, at: usize, length: usize| {
            let header = 0x80 + 64 * index;
            elf[header..header + 4].copy_from_slice(&name.to_le_bytes());
            elf[header + 0x10..header + 0x18].copy_from_slice(&address.to_le_bytes());
            elf[header + 0x18..header + 0x20].copy_from_slice(&(at as u64).to_le_bytes());
            elf[header + 0x20..header + 0x28].copy_from_slice(&(length as u64).to_le_bytes());
        };
        section(1, 1, 0, 0x40, NAMES.len());
        section(2, 11, ADDRESS, TEXT_AT, text.len());
        elf.extend(text);
        elf
    }

    /// Runs the function of a patched kernel on this processor: `cpuid` is no privileged instruction.
    #[cfg(target_arch = "x86_64")]
    fn cpuid(elf: &[u8], leaf: u32, subleaf: u32) -> [u32; 4] {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
        let text = &elf[TEXT_AT..];
        let [mut eax, mut ebx, mut ecx, mut edx] = [leaf, 0, subleaf, 0];
        // SAFETY: the mapping is new, as long as the code copied into it, executable when called and unmapped after;
        // the code at FUNCTION_AT is a function of this signature that writes through its arguments only.
        unsafe {
            let (read_write, private) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            let page = rustix::mm::mmap_anonymous(std::ptr::null_mut(), text.len(), read_write, private).unwrap();
            std::ptr::copy_nonoverlapping(text.as_ptr(), page.cast::<u8>(), text.len());
            rustix::mm::mprotect(page, text.len(), MprotectFlags::READ | MprotectFlags::EXEC).unwrap();
            let function = std::mem::transmute::<
                *mut std::ffi::c_void,
                unsafe extern "sysv64" fn(*mut u32, *mut u32, *mut u32, *mut u32),
            >(page.byte_add(FUNCTION_AT));
            function(&raw mut eax, &raw mut ebx, &raw mut ecx, &raw mut edx);
            rustix::mm::munmap(page, text.len()).unwrap();
        }
        [eax, ebx, ecx, edx]
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_patched_function_reports_the_leaves_and_everything_else_as_before() {
        let plain = kernel(1, 1024);
        let mut patched = plain.clone();
        let mut machine = cascade_lake();
        machine.l2 = Some(CacheConfig { sparse: true, ..CacheConfig::intel(8, 8) });
        let went = report_rdt(&mut patched, &machine).unwrap();
        assert_eq!(went.site, ADDRESS + FUNCTION_AT as u64 + 10);
        assert_eq!(went.cave % 16, 0);

        assert_eq!(cpuid(&patched, 0x10, 0), [0, 0b1110, 0, 0]);
        assert_eq!(cpuid(&patched, 0x10, 1), [10, 0x600, 0b100, 7]);
        assert_eq!(cpuid(&patched, 0x10, 2), [7, 0, 0b1000, 7]);
        assert_eq!(cpuid(&patched, 0x10, 3), [89, 0, 0b100, 7]);
        assert_eq!(cpuid(&patched, 0xf, 0), [0, 2047, 0, 2]);
        assert_eq!(cpuid(&patched, 0xf, 1), [0, 4096, 2047, 7]);
        let [eax, ebx, ecx, edx] = cpuid(&plain, 7, 0);
        assert_eq!(cpuid(&patched, 7, 0), [eax, ebx | 0x9000, ecx, edx], "added to what the processor has");
        for (leaf, subleaf) in [(0, 0), (2, 0), (4, 3), (7, 1), (0x8000_0000, 0), (0x8000_0002, 0)] {
            assert_eq!(cpuid(&patched, leaf, subleaf), cpuid(&plain, leaf, subleaf), "leaf {leaf:#x}.{subleaf}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_reported() {
        let bare = MachineConfig::cat_only(Dialect::Linux7, 11, 8, 2, 1);
        let leaves: Vec<_> = leaves(&bare).iter().map(|leaf| (leaf.leaf, leaf.subleaf, leaf.registers)).collect();
        let expected = [(7, 0, [0, 0x8000, 0, 0]), (0x10, 0, [0, 0b10, 0, 0]), (0x10, 1, [10, 0, 0, 7])];
        assert_eq!(leaves, expected);
    }

    #[test]
    fn only_the_site_and_the_padding_change() {
        let plain = kernel(1, 1024);
        let mut patched = plain.clone();
        report_rdt(&mut patched, &cascade_lake()).unwrap();
        let site = TEXT_AT + FUNCTION_AT + 10;
        for (at, (before, after)) in plain.iter().zip(&patched).enumerate() {
            assert!(before == after || *before == INT3 || (site..site + 7).contains(&at), "byte {at:#x} changed");
        }
    }

    #[test]
    fn a_kernel_without_the_function_once_or_without_room_is_refused_and_stays_as_it_was() {
        for (functions, padding, said) in [(0, 1024, "0 times"), (2, 1024, "2 times"), (1, 100, "no padding")] {
            let plain = kernel(functions, padding);
            let mut patched = plain.clone();
            let refused = report_rdt(&mut patched, &cascade_lake()).unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
            assert_eq!(patched, plain);
        }
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        let refused = |mut bytes: Vec<u8>| report_rdt(&mut bytes, &cascade_lake()).unwrap_err().to_string();
        assert!(refused(b"\x7fELF\x01".to_vec()).contains("no little-endian ELF-64"));
        assert!(refused(b"\x7fELF\x02\x01".to_vec()).contains("cut off"));
        let mut cut = kernel(1, 1024);
        cut.truncate(TEXT_AT + 10);
        assert!(refused(cut).contains("beyond the file's end"));
        let mut nameless = kernel(1, 1024);
        nameless[0x4b..0x51].copy_from_slice(b".data\0");
        assert!(refused(nameless).contains("no section .text"));
    }
}
