//! `schemata`, `size`, `mode` and `bit_usage` in the emulator: what they show, what they take, in which order they
//! refuse.
//!
//! Source: fs/resctrl/ctrlmondata.c of the kernel, by behaviour.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::machine::Vendor;
use super::number;
use super::state::{CommandResult, GroupAt, Mode, Resource, Schema, State};

/// New values, by schema and domain, not yet applied.
type StagedValues = BTreeMap<(usize, u32), u32>;

impl State {
    /// The width every schema name is padded to, that of a CDP name where the cache could do it.
    fn name_width(&self) -> usize {
        let widths = self.schemas.iter().map(|schema| {
            let could = self.cache(schema.resource).is_some_and(|cache| cache.cdp);
            let suffix = if could && schema.half == super::state::CacheHalf::Whole { "CODE".len() } else { 0 };
            schema.name.len() + suffix
        });
        widths.max().unwrap_or(0)
    }

    /// Digits a value is padded to on kernels that pad.
    fn value_width(&self) -> usize {
        if self.is_new_kernel() {
            return 0;
        }
        let caches = [&self.machine.l3, &self.machine.l2].into_iter().flatten();
        let mask = caches.map(|cache| usize::from(cache.ways.div_ceil(4))).max().unwrap_or(0);
        let bandwidth = match (&self.machine.mb, self.machine.vendor) {
            (None, _) => 0,
            (Some(_), Vendor::Intel) => 3,
            (Some(_), Vendor::Amd) => 4,
        };
        mask.max(bandwidth)
    }

    /// One schema's values of one class: `0=7ff;1=7ff`.
    pub(super) fn show_domains(&self, schema: &Schema, closid: u32) -> String {
        let width = self.value_width();
        let shown = schema.values.iter().map(|(id, values)| {
            let value = values[closid as usize];
            if schema.is_cache() { format!("{id}={value:0width$x}") } else { format!("{id}={value:width$}") }
        });
        shown.collect::<Vec<_>>().join(";")
    }

    pub(super) fn show_schemata(&self, ctrl: usize) -> String {
        let (closid, width) = (self.groups[ctrl].closid, self.name_width());
        let shown = self.schemas.iter().filter(|schema| closid < schema.closids);
        shown.map(|schema| format!("{:>width$}:{}\n", schema.name, self.show_domains(schema, closid))).collect()
    }

    pub(super) fn show_size(&self, ctrl: usize) -> String {
        let (closid, width) = (self.groups[ctrl].closid, self.name_width());
        let lines = self.schemas.iter().map(|schema| {
            let way = self.cache(schema.resource).map(|cache| cache.bytes / u32::from(cache.ways));
            let sizes = schema.values.iter().map(|(id, values)| {
                let value = values[closid as usize];
                format!("{id}={}", way.map_or(value, |way| way * value.count_ones()))
            });
            format!("{:>width$}:{}\n", schema.name, sizes.collect::<Vec<_>>().join(";"))
        });
        lines.collect()
    }

    /// Takes a write of `schemata`: parses everything, then applies it. After an error nothing is applied.
    pub(super) fn write_schemata(&mut self, at: GroupAt, text: &str) -> CommandResult<()> {
        let Some(text) = text.strip_suffix('\n') else { return Err(Errno::INVAL) };
        self.clear_status();
        let mut staged = StagedValues::new();
        for line in text.split('\n') {
            let (name, values) = line.split_once(':').map_or((line, None), |(name, values)| (name, Some(values)));
            let name = number::strim(name);
            let Some(values) = values else { return self.refuse(Errno::INVAL, "Missing ':'\n") };
            if values.is_empty() {
                return self.refuse(Errno::INVAL, &format!("Missing '{name}' value\n"));
            }
            let closid = self.groups[at.ctrl].closid;
            match self.schemas.iter().position(|schema| schema.name == name && closid < schema.closids) {
                Some(schema) => self.parse_line(at.ctrl, schema, values, &mut staged)?,
                None => {
                    let text = format!("Unknown or unsupported resource name '{name}'\n");
                    return self.refuse(Errno::INVAL, &text);
                }
            }
        }
        let closid = self.groups[at.ctrl].closid as usize;
        for ((schema, id), value) in staged {
            if let Some(values) = self.schemas[schema].values.get_mut(&id) {
                values[closid] = value;
            }
        }
        Ok(())
    }

    fn parse_line(&mut self, ctrl: usize, schema: usize, line: &str, staged: &mut StagedValues) -> CommandResult<()> {
        let closid = self.groups[ctrl].closid as usize;
        let software = self.schemas[schema].resource == Resource::Mb && self.options().mba_mbps;
        let mut rest = Some(line);
        while let Some(line) = rest.filter(|line| !line.is_empty()) {
            let (part, after) = line.split_once(';').map_or((line, None), |(part, after)| (part, Some(after)));
            rest = after;
            let parsed = part.split_once('=').and_then(|(id, value)| Some((number::unsigned(id, 10).ok()?, value)));
            let Some((id, value)) = parsed else {
                return self.refuse(Errno::INVAL, "Missing '=' or non-numeric domain\n");
            };
            let known = u32::try_from(id).ok().filter(|id| self.schemas[schema].values.contains_key(id));
            let Some(id) = known else { return Err(Errno::INVAL) };
            if staged.contains_key(&(schema, id)) {
                return self.refuse(Errno::INVAL, &format!("Duplicate domain {id}\n"));
            }
            let value = number::strim(value);
            let value = if self.schemas[schema].is_cache() {
                self.check_mask(ctrl, schema, id, value)?
            } else {
                self.check_bandwidth(schema, value)?
            };
            // The software controller takes its values while they are parsed; nothing is staged.
            match self.schemas[schema].values.get_mut(&id).filter(|_values| software) {
                Some(values) => values[closid] = value,
                None => _ = staged.insert((schema, id), value),
            }
        }
        Ok(())
    }

    /// A mask for one class and domain, or why not, in the kernel's order.
    pub(super) fn check_mask(&mut self, ctrl: usize, schema: usize, id: u32, text: &str) -> CommandResult<u32> {
        let mask = self.check_mask_shape(self.schemas[schema].resource, text)?;
        let (closid, mode) = (self.groups[ctrl].closid, self.groups[ctrl].mode);
        if self.overlaps(&self.schemas[schema], id, mask, closid, true) {
            return self.refuse(Errno::INVAL, "Overlaps with exclusive group\n");
        }
        if mode == Mode::Exclusive && self.overlaps(&self.schemas[schema], id, mask, closid, false) {
            return self.refuse(Errno::INVAL, "Overlaps with other group\n");
        }
        Ok(mask)
    }

    pub(super) fn check_mask_shape(&mut self, resource: Resource, text: &str) -> CommandResult<u32> {
        let Some(cache) = self.cache(resource) else { return Err(Errno::INVAL) };
        let (min_bits, sparse, full) = (cache.min_bits, self.sparse(cache), self.full_mask(resource));
        let Ok(mask) = number::unsigned(text, 16) else {
            return self.refuse(Errno::INVAL, &format!("Non-hex character in the mask {text}\n"));
        };
        let fits = u32::try_from(mask).ok().filter(|&mask| mask <= full && (mask != 0 || min_bits == 0));
        let Some(mask) = fits else { return self.refuse(Errno::INVAL, "Mask out of range\n") };
        let run = first_run(mask);
        if !sparse && run != mask {
            return self.refuse(Errno::INVAL, &format!("The mask {mask:x} has non-consecutive 1-bits\n"));
        }
        if run.count_ones() < min_bits {
            return self.refuse(Errno::INVAL, &format!("Need at least {min_bits} bits in the mask\n"));
        }
        Ok(mask)
    }

    fn check_bandwidth(&mut self, schema: usize, text: &str) -> CommandResult<u32> {
        let resource = self.schemas[schema].resource;
        let config = if resource == Resource::Mb { &self.machine.mb } else { &self.machine.smba };
        let Some(config) = config.clone() else { return Err(Errno::INVAL) };
        if !config.linear && self.machine.vendor == Vendor::Intel {
            return self.refuse(Errno::INVAL, "No support for non-linear MB domains\n");
        }
        let Ok(value) = number::unsigned32(text, 10) else {
            return self.refuse(Errno::INVAL, &format!("Invalid MB value {text}\n"));
        };
        if resource == Resource::Mb && self.options().mba_mbps {
            return Ok(value);
        }
        if value < config.min || value > config.max {
            let text = format!("MB value {value} out of range [{},{}]\n", config.min, config.max);
            return self.refuse(Errno::INVAL, &text);
        }
        Ok(value.div_ceil(config.gran) * config.gran)
    }

    /// Whether a mask meets another class's: exclusive ones alone, or all and the hardware's.
    pub(super) fn overlaps(&self, schema: &Schema, id: u32, mask: u32, closid: u32, exclusive: bool) -> bool {
        let hardware = self.cache(schema.resource).map_or(0, |cache| cache.shareable);
        if !exclusive && mask & hardware != 0 {
            return true;
        }
        [Some(schema), self.peer(schema)].into_iter().flatten().any(|schema| {
            let values = schema.values.get(&id).into_iter().flatten().zip(0u32..);
            values.filter(|&(_, other)| other != closid && self.closid_in_use(other)).any(|(value, other)| {
                let counts = !exclusive || self.mode_of(other) == Some(Mode::Exclusive);
                counts && mask & value != 0
            })
        })
    }

    pub(super) fn closid_in_use(&self, closid: u32) -> bool {
        self.closid_used.get(closid as usize).copied().unwrap_or(false)
    }

    pub(super) fn show_mode(&self, ctrl: usize) -> String {
        match self.groups[ctrl].mode {
            Mode::Shareable => "shareable\n".to_owned(),
            Mode::Exclusive => "exclusive\n".to_owned(),
        }
    }

    /// Takes a write of `mode`. Pseudo-locking is refused as on a processor the kernel cannot lock on.
    pub(super) fn write_mode(&mut self, ctrl: usize, text: &str) -> CommandResult<()> {
        let Some(text) = text.strip_suffix('\n') else { return Err(Errno::INVAL) };
        self.clear_status();
        match (text, self.groups[ctrl].mode) {
            ("shareable", _) => self.groups[ctrl].mode = Mode::Shareable,
            ("exclusive", Mode::Exclusive) => {}
            ("exclusive", Mode::Shareable) => {
                self.check_exclusive(ctrl)?;
                self.groups[ctrl].mode = Mode::Exclusive;
            }
            ("pseudo-locksetup", _) => {
                let options = self.options();
                let reason = if ctrl == 0 {
                    "Cannot pseudo-lock default group\n"
                } else if options.cdp || options.cdpl2 {
                    "CDP enabled\n"
                } else {
                    "Pseudo-locking not supported\n"
                };
                return self.refuse(Errno::INVAL, reason);
            }
            _ => return self.refuse(Errno::INVAL, "Unknown or unsupported mode\n"),
        }
        Ok(())
    }

    fn check_exclusive(&mut self, ctrl: usize) -> CommandResult<()> {
        let closid = self.groups[ctrl].closid;
        let mut caches = self.schemas.iter().filter(|schema| schema.is_cache()).peekable();
        if caches.peek().is_none() {
            return self.refuse(Errno::INVAL, "Cannot be exclusive without CAT/CDP\n");
        }
        let shared = caches.any(|schema| {
            let mut values = schema.values.iter();
            values.any(|(&id, values)| self.overlaps(schema, id, values[closid as usize], closid, false))
        });
        if shared { self.refuse(Errno::INVAL, "Schemata overlaps\n") } else { Ok(()) }
    }

    /// The text of `bit_usage`.
    pub(super) fn show_bit_usage(&self, schema: &Schema) -> String {
        let Some(cache) = self.cache(schema.resource) else { return "\n".to_owned() };
        let io_class = self.io_alloc_closid().filter(|_closid| self.io_alloc);
        let domains = schema.values.iter().map(|(id, values)| {
            let (mut hardware, mut software, mut exclusive) = (cache.shareable, 0, 0);
            for (&value, closid) in values.iter().zip(0u32..).filter(|&(_, closid)| self.closid_in_use(closid)) {
                match self.mode_of(closid) {
                    Some(Mode::Shareable) => software |= value,
                    Some(Mode::Exclusive) => exclusive |= value,
                    None if io_class == Some(closid) => hardware |= value,
                    None => {}
                }
            }
            let ways = (0..cache.ways).rev().map(|way| {
                let held = |mask: u32| mask >> way & 1 == 1;
                match (held(hardware), held(software), held(exclusive)) {
                    (true, true, _) => 'X',
                    (true, false, _) => 'H',
                    (false, true, _) => 'S',
                    (false, false, true) => 'E',
                    (false, false, false) => '0',
                }
            });
            format!("{id}={}", ways.collect::<String>())
        });
        domains.collect::<Vec<_>>().join(";") + "\n"
    }
}

/// The lowest run of ones.
pub(super) fn first_run(mask: u32) -> u32 {
    if mask == 0 {
        return 0;
    }
    let shift = mask.trailing_zeros();
    let length = (mask >> shift).trailing_ones();
    (u32::MAX >> (32 - length)) << shift
}
