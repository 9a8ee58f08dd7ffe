//! Reads what the machine as a whole uses: its CPUs, its memory, and that of each NUMA node.

use std::sync::Arc;

use plimsoll_host::proc::meminfo::{Meminfo, parse_meminfo};
use plimsoll_host::{Descriptors, HostRoot, ReadBuf, Result, Source, Timestamp, list_dir};

use crate::machine::NodeUsage;

#[derive(Debug)]
pub struct MachineReader {
    stat: Source,
    meminfo: Source,
    nodes: Vec<(u32, Source)>,
    figures: NodeUsage,
}

impl MachineReader {
    pub fn new(root: &HostRoot, descriptors: &Arc<Descriptors>) -> Self {
        let nodes = root.sys("devices/system/node");
        // A tree without nodes has none to read.
        let names = list_dir(&nodes).unwrap_or_default();
        let mut nodes: Vec<(u32, Source)> = names
            .iter()
            .filter_map(|name| {
                let number = name.strip_prefix("node")?.parse().ok()?;
                let file = nodes.join(name).join("meminfo");
                Some((number, Source::new(file, descriptors)))
            })
            .collect();
        nodes.sort_by_key(|(number, _)| *number);
        Self {
            stat: Source::records(root.proc("stat"), descriptors),
            meminfo: Source::new(root.proc("meminfo"), descriptors),
            nodes,
            figures: NodeUsage::default(),
        }
    }

    /// `memory` is the machine's where the round has read it already.
    pub fn read(
        &mut self,
        at: Timestamp,
        memory: Option<Meminfo>,
        buf: &mut ReadBuf,
    ) -> Result<&mut NodeUsage> {
        let figures = &mut self.figures;
        self.stat.parse(buf, |text| figures.cpu.parse(text))?;
        let memory = match memory {
            Some(memory) => Some(memory),
            None => self.meminfo.parse(buf, parse_meminfo)?,
        };
        figures.memory = memory.unwrap_or_default();
        figures.numa.clear();
        for (number, source) in &mut self.nodes {
            if let Some(memory) = source.parse(buf, parse_meminfo)? {
                figures.numa.push((*number, memory));
            }
        }
        figures.at = at;
        Ok(figures)
    }
}
