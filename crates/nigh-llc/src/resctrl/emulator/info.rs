//! The files below `info/` in the emulator.
//!
//! Source: fs/resctrl/rdtgroup.c and ctrlmondata.c of the kernel, by behaviour.

use rustix::io::Errno;

use super::monitor::Event;
use super::number;
use super::state::{CacheHalf, CommandResult, Resource, Schema, State};

/// A directory below `info/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InfoOf {
    /// Of one schema, by position.
    Schema(usize),
    /// Of L3 monitoring.
    Monitoring,
}

impl State {
    /// The name of a directory below `info/`.
    pub(super) fn info_dirs(&self) -> Vec<(String, InfoOf)> {
        let schemas = self.schemas.iter().enumerate().map(|(at, schema)| (schema.name.clone(), InfoOf::Schema(at)));
        let monitoring = self.monitors().then(|| ("L3_MON".to_owned(), InfoOf::Monitoring));
        schemas.chain(monitoring).collect()
    }

    /// The files of a directory below `info/`.
    pub(super) fn info_files(&self, of: InfoOf) -> Vec<&'static str> {
        let new = self.is_new_kernel();
        match of {
            InfoOf::Schema(at) if self.schemas[at].is_cache() => {
                let mut files = vec!["num_closids", "cbm_mask", "min_cbm_bits", "shareable_bits", "bit_usage"];
                if new {
                    files.push("sparse_masks");
                    if self.io_alloc_closid().is_some() {
                        files.extend(["io_alloc", "io_alloc_cbm"]);
                    }
                }
                files
            }
            InfoOf::Schema(at) => {
                let mut files = vec!["num_closids", "min_bandwidth", "bandwidth_gran", "delay_linear"];
                let config =
                    if self.schemas[at].resource == Resource::Mb { &self.machine.mb } else { &self.machine.smba };
                if config.as_ref().is_some_and(|config| config.throttle.is_some()) {
                    files.push("thread_throttle_mode");
                }
                files
            }
            InfoOf::Monitoring => {
                let mut files = vec!["num_rmids", "mon_features", "max_threshold_occupancy"];
                if new {
                    files.push("mbm_assign_mode");
                }
                if self.events_configurable() {
                    files.extend(["mbm_total_bytes_config", "mbm_local_bytes_config"]);
                }
                files
            }
        }
    }

    /// The text of a file below `info/`.
    pub(super) fn show_info(&mut self, of: InfoOf, file: &str) -> CommandResult<String> {
        match of {
            InfoOf::Schema(at) => {
                let schema = self.schemas[at].clone();
                self.show_info_of_schema(&schema, file)
            }
            InfoOf::Monitoring => self.show_info_of_monitoring(file),
        }
    }

    fn show_info_of_schema(&mut self, schema: &Schema, file: &str) -> CommandResult<String> {
        match file {
            "num_closids" => return Ok(format!("{}\n", schema.closids)),
            "bit_usage" => return Ok(self.show_bit_usage(schema)),
            "io_alloc" => return Ok(self.show_io_alloc(schema)),
            "io_alloc_cbm" => return self.show_io_alloc_cbm(schema),
            _ => {}
        }
        if let Some(cache) = self.cache(schema.resource) {
            return match file {
                "cbm_mask" => Ok(format!("{:x}\n", self.full_mask(schema.resource))),
                "min_cbm_bits" => Ok(format!("{}\n", cache.min_bits)),
                "shareable_bits" => Ok(format!("{:x}\n", cache.shareable)),
                "sparse_masks" => Ok(format!("{}\n", u8::from(self.sparse(cache)))),
                _ => Err(Errno::NOENT),
            };
        }
        let config = if schema.resource == Resource::Mb { &self.machine.mb } else { &self.machine.smba };
        let config = config.as_ref().ok_or(Errno::NOENT)?;
        match file {
            "min_bandwidth" => Ok(format!("{}\n", config.min)),
            "bandwidth_gran" => Ok(format!("{}\n", config.gran)),
            "delay_linear" => Ok(format!("{}\n", u8::from(config.linear))),
            "thread_throttle_mode" => Ok(format!("{}\n", config.throttle.unwrap_or("undefined"))),
            _ => Err(Errno::NOENT),
        }
    }

    fn show_info_of_monitoring(&self, file: &str) -> CommandResult<String> {
        let monitoring = self.machine.monitoring.as_ref().ok_or(Errno::NOENT)?;
        match file {
            "num_rmids" => Ok(format!("{}\n", monitoring.rmids)),
            "max_threshold_occupancy" => Ok(format!("{}\n", self.threshold)),
            "mbm_assign_mode" => Ok("[default]\n".to_owned()),
            "mbm_total_bytes_config" => Ok(self.show_event_config(Event::TotalBytes)),
            "mbm_local_bytes_config" => Ok(self.show_event_config(Event::LocalBytes)),
            "mon_features" => {
                let configurable = self.events_configurable();
                let lines = self.events().into_iter().map(|event| match event {
                    Event::TotalBytes | Event::LocalBytes if configurable => format!("{0}\n{0}_config\n", event.file()),
                    _ => format!("{}\n", event.file()),
                });
                Ok(lines.collect())
            }
            _ => Err(Errno::NOENT),
        }
    }

    /// Takes a write of a file below `info/`; most take none.
    pub(super) fn write_info(&mut self, of: InfoOf, file: &str, text: &str) -> CommandResult<()> {
        match (of, file) {
            (InfoOf::Monitoring, "max_threshold_occupancy") => self.write_threshold(text),
            (InfoOf::Monitoring, "mbm_total_bytes_config") => self.write_event_config(Event::TotalBytes, text),
            (InfoOf::Monitoring, "mbm_local_bytes_config") => self.write_event_config(Event::LocalBytes, text),
            (InfoOf::Monitoring, "mbm_assign_mode") => {
                let Some(mode) = text.strip_suffix('\n') else { return Err(Errno::INVAL) };
                self.clear_status();
                match mode {
                    "default" => Ok(()),
                    "mbm_event" => self.refuse(Errno::INVAL, "mbm_event mode is not supported\n"),
                    _ => self.refuse(Errno::INVAL, "Unsupported assign mode\n"),
                }
            }
            (InfoOf::Schema(at), "io_alloc") => self.write_io_alloc(at, text),
            (InfoOf::Schema(at), "io_alloc_cbm") => self.write_io_alloc_cbm(at, text),
            _ => Err(Errno::ACCESS),
        }
    }

    fn io_capable(&self, schema: &Schema) -> bool {
        self.cache(schema.resource).is_some_and(|cache| cache.io_alloc)
    }

    fn show_io_alloc(&self, schema: &Schema) -> String {
        match (self.io_capable(schema), self.io_alloc) {
            (false, _) => "not supported\n".to_owned(),
            (true, true) => "enabled\n".to_owned(),
            (true, false) => "disabled\n".to_owned(),
        }
    }

    /// The I/O class, or why there is none, said in the status.
    fn io_class(&mut self, schema: &Schema) -> CommandResult<u32> {
        self.clear_status();
        let name = &schema.name;
        match self.io_alloc_closid().filter(|_closid| self.io_capable(schema)) {
            None => self.refuse(Errno::NODEV, &format!("io_alloc is not supported on {name}\n")),
            Some(_) if !self.io_alloc => self.refuse(Errno::INVAL, &format!("io_alloc is not enabled on {name}\n")),
            Some(closid) => Ok(closid),
        }
    }

    fn show_io_alloc_cbm(&mut self, schema: &Schema) -> CommandResult<String> {
        let closid = self.io_class(schema)?;
        Ok(self.show_domains(schema, closid) + "\n")
    }

    fn write_io_alloc(&mut self, at: usize, text: &str) -> CommandResult<()> {
        let enable = number::boolean(text)?;
        self.clear_status();
        let schema = self.schemas[at].clone();
        let Some(closid) = self.io_alloc_closid().filter(|_closid| self.io_capable(&schema)) else {
            let text = format!("io_alloc is not supported on {}\n", schema.name);
            return self.refuse(Errno::NODEV, &text);
        };
        if enable == self.io_alloc {
            return Ok(());
        }
        if closid as usize >= self.closid_used.len() {
            let text = format!("io_alloc CLOSID (ctrl_hw_id) {closid} is not available\n");
            return self.refuse(Errno::INVAL, &text);
        }
        if enable {
            if self.closid_in_use(closid) {
                let holder = self.groups.iter().find(|group| group.closid == closid);
                let holder = holder.map_or("another", |group| &group.name).to_owned();
                let text = format!("CLOSID (ctrl_hw_id) {closid} for io_alloc is used by {holder} group\n");
                return self.refuse(Errno::NOSPC, &text);
            }
            self.closid_used[closid as usize] = true;
            match self.first_masks(&schema, closid) {
                Ok(masks) => masks.into_iter().for_each(|(id, mask)| self.set_io_mask(at, id, closid, mask)),
                Err(errno) => {
                    self.closid_used[closid as usize] = false;
                    return self.refuse(errno, "Failed to initialize io_alloc allocations\n");
                }
            }
        } else {
            self.closid_used[closid as usize] = false;
        }
        self.io_alloc = enable;
        Ok(())
    }

    /// Sets the I/O class's mask, in both halves under CDP.
    fn set_io_mask(&mut self, at: usize, id: u32, closid: u32, mask: u32) {
        let (resource, half) = (self.schemas[at].resource, self.schemas[at].half);
        let both = self.schemas.iter_mut().enumerate();
        for (_, schema) in
            both.filter(|(other, schema)| schema.resource == resource && (*other == at || half != CacheHalf::Whole))
        {
            if let Some(values) = schema.values.get_mut(&id) {
                values[closid as usize] = mask;
            }
        }
    }

    fn write_io_alloc_cbm(&mut self, at: usize, text: &str) -> CommandResult<()> {
        let Some(text) = text.strip_suffix('\n') else { return Err(Errno::INVAL) };
        let schema = self.schemas[at].clone();
        let closid = self.io_class(&schema)?;
        let mut staged = Vec::new();
        for part in text.split_terminator(';') {
            let parsed = part.split_once('=').and_then(|(id, value)| Some((number::unsigned(id, 10).ok()?, value)));
            let Some((id, value)) = parsed else {
                return self.refuse(Errno::INVAL, "Missing '=' or non-numeric domain\n");
            };
            let known = u32::try_from(id).ok().filter(|id| schema.values.contains_key(id));
            let Some(id) = known else { return Err(Errno::INVAL) };
            if staged.iter().any(|&(other, _)| other == id) {
                return self.refuse(Errno::INVAL, &format!("Duplicate domain {id}\n"));
            }
            let mask = self.check_mask_shape(schema.resource, number::strim(value))?;
            if self.overlaps(&schema, id, mask, closid, true) {
                return self.refuse(Errno::INVAL, "Overlaps with exclusive group\n");
            }
            staged.push((id, mask));
        }
        staged.into_iter().for_each(|(id, mask)| self.set_io_mask(at, id, closid, mask));
        Ok(())
    }
}
