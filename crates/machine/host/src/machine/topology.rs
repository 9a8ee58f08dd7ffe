//! Nodes, cores, threads and caches, from sysfs.

use std::collections::BTreeSet;
use std::path::Path;

use super::devices::{HugePages, hugepages, numbered, read_number, read_signed};
use crate::parse::{self, Malformed};
use crate::proc::meminfo::parse_meminfo;
use crate::{HostError, HostRoot, ReadBuf, Result, list_dir, read_file, read_text};

/// A NUMA node; on machines without nodes, a socket.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    pub id: i64,
    pub memory: u64,
    pub hugepages: Vec<HugePages>,
    pub cores: Vec<Core>,
    /// Shared by the whole node.
    pub caches: Vec<Cache>,
    pub distances: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Core {
    pub id: i64,
    pub thread_ids: Vec<u32>,
    /// Levels 1 and 2, of this core alone.
    pub caches: Vec<Cache>,
    /// Level 3 and up, shared with some cores of the node but not all.
    pub uncore_caches: Vec<Cache>,
    pub socket_id: i64,
    /// Mainframes only.
    pub book_id: Option<String>,
    pub drawer_id: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    pub id: u64,
    pub size: u64,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    pub level: u64,
}

/// The machine's online processors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    pub nodes: Vec<Node>,
    /// Online threads where sysfs tells neither nodes nor sockets.
    unplaced: usize,
}

impl Topology {
    pub fn read(root: &HostRoot, buf: &mut ReadBuf) -> Result<Self> {
        let cpus = root.sys("devices/system/cpu");
        let online = Online::read(&cpus.join("online"), buf)?;
        let nodes_dir = root.sys("devices/system/node");
        let mut nodes = Vec::new();
        for name in list_dir(&nodes_dir)? {
            if let Some(id) = numbered(&name, "node") {
                let dir = nodes_dir.join(&name);
                let threads = read_threads(&cpus, &online.among(&dir)?, buf)?;
                let mut node = Node {
                    id: i64::from(id),
                    memory: node_memory(&dir, buf)?,
                    hugepages: hugepages(&dir.join("hugepages"), buf)?,
                    cores: group_cores(&threads),
                    caches: Vec::new(),
                    distances: distances(&dir.join("distance"), buf)?,
                };
                add_caches(&cpus, &mut node, buf)?;
                nodes.push(node);
            }
        }
        if nodes.is_empty() {
            return Self::by_socket(&cpus, &online, buf);
        }
        nodes.sort_by_key(|node| node.id);
        Ok(Self { nodes, unplaced: 0 })
    }

    fn by_socket(cpus: &Path, online: &Online, buf: &mut ReadBuf) -> Result<Self> {
        let present = online.among(cpus)?;
        let threads = read_threads(cpus, &present, buf)?;
        let sockets: BTreeSet<i64> = threads.iter().map(|thread| thread.socket).collect();
        let mut nodes = Vec::new();
        for socket in sockets {
            let own: Vec<Thread> = threads
                .iter()
                .filter(|thread| thread.socket == socket)
                .cloned()
                .collect();
            let mut node = Node {
                id: socket,
                cores: group_cores(&own),
                ..Node::default()
            };
            add_caches(cpus, &mut node, buf)?;
            nodes.push(node);
        }
        let unplaced = if nodes.is_empty() { present.len() } else { 0 };
        Ok(Self { nodes, unplaced })
    }

    fn cores(&self) -> impl Iterator<Item = &Core> {
        self.nodes.iter().flat_map(|node| &node.cores)
    }

    pub fn num_threads(&self) -> usize {
        let placed: usize = self.cores().map(|core| core.thread_ids.len()).sum();
        placed + self.unplaced
    }

    pub fn num_cores(&self) -> usize {
        self.cores().count()
    }

    pub fn num_sockets(&self) -> usize {
        let sockets: BTreeSet<_> = self
            .cores()
            .map(|core| (&core.drawer_id, &core.book_id, core.socket_id))
            .collect();
        sockets.len()
    }

    pub fn num_books(&self) -> usize {
        let books: BTreeSet<_> = self
            .cores()
            .filter(|core| core.book_id.is_some())
            .map(|core| (&core.drawer_id, &core.book_id))
            .collect();
        books.len()
    }

    pub fn num_drawers(&self) -> usize {
        let drawers: BTreeSet<_> = self.cores().filter_map(|c| c.drawer_id.as_ref()).collect();
        drawers.len()
    }

    /// The socket of a thread, for figures that are kept per socket.
    pub fn socket_of(&self, thread: u32) -> Option<i64> {
        self.cores()
            .find(|core| core.thread_ids.contains(&thread))
            .map(|core| core.socket_id)
    }

    /// Thread numbers, in order.
    pub fn online(&self) -> Vec<u32> {
        let mut threads: Vec<u32> = self
            .cores()
            .flat_map(|core| core.thread_ids.iter().copied())
            .collect();
        threads.sort_unstable();
        threads
    }
}

/// The list of online processors; absent on kernels without hotplug, where all are.
struct Online(Option<Vec<u32>>);

impl Online {
    fn read(path: &Path, buf: &mut ReadBuf) -> Result<Self> {
        let list = match read_file(path, buf)? {
            Some(text) => {
                let list = parse::index_list(text);
                Some(list.map_err(|at| HostError::malformed(path, at))?)
            }
            None => None,
        };
        Ok(Self(list))
    }

    /// The online ones of the `cpuN` entries of a directory.
    fn among(&self, dir: &Path) -> Result<Vec<u32>> {
        let mut found: Vec<u32> = list_dir(dir)?
            .iter()
            .filter_map(|name| numbered(name, "cpu"))
            .filter(|cpu| self.0.as_ref().is_none_or(|online| online.contains(cpu)))
            .collect();
        found.sort_unstable();
        Ok(found)
    }
}

#[derive(Debug, Clone)]
struct Thread {
    id: u32,
    core: i64,
    socket: i64,
    die: i64,
    /// The lowest thread of the same core. `core_id` alone is not enough: it is unique within a die or a cluster.
    first_sibling: Option<u32>,
    book: Option<String>,
    drawer: Option<String>,
}

fn read_threads(cpus: &Path, ids: &[u32], buf: &mut ReadBuf) -> Result<Vec<Thread>> {
    let mut threads = Vec::with_capacity(ids.len());
    for &id in ids {
        let dir = cpus.join(format!("cpu{id}/topology"));
        // A processor without a topology cannot be placed; it went offline, or the kernel is built without it.
        let (Some(core), Some(socket)) = (
            read_signed(&dir.join("core_id"), buf)?,
            read_signed(&dir.join("physical_package_id"), buf)?,
        ) else {
            continue;
        };
        threads.push(Thread {
            id,
            core,
            socket,
            die: read_signed(&dir.join("die_id"), buf)?.unwrap_or(0),
            first_sibling: first_of(&dir.join("thread_siblings_list"), buf)?,
            book: read_text(&dir.join("book_id"), buf)?,
            drawer: read_text(&dir.join("drawer_id"), buf)?,
        });
    }
    Ok(threads)
}

fn first_of(path: &Path, buf: &mut ReadBuf) -> Result<Option<u32>> {
    let Some(text) = read_file(path, buf)? else {
        return Ok(None);
    };
    let list = parse::index_list(text).map_err(|at| HostError::malformed(path, at))?;
    Ok(list.first().copied())
}

fn group_cores(threads: &[Thread]) -> Vec<Core> {
    let mut cores: Vec<Core> = Vec::new();
    let mut keys = Vec::new();
    for thread in threads {
        let key = (
            (&thread.drawer, &thread.book, thread.socket),
            (thread.die, thread.core, thread.first_sibling),
        );
        match keys.iter().position(|known| *known == key) {
            Some(at) => cores[at].thread_ids.push(thread.id),
            None => {
                keys.push(key);
                cores.push(Core {
                    id: thread.core,
                    thread_ids: vec![thread.id],
                    socket_id: thread.socket,
                    book_id: thread.book.clone(),
                    drawer_id: thread.drawer.clone(),
                    ..Core::default()
                });
            }
        }
    }
    cores
}

fn add_caches(cpus: &Path, node: &mut Node, buf: &mut ReadBuf) -> Result<()> {
    let node_threads: usize = node.cores.iter().map(|core| core.thread_ids.len()).sum();
    for core in &mut node.cores {
        let Some(first) = core.thread_ids.first() else {
            continue;
        };
        let dir = cpus.join(format!("cpu{first}/cache"));
        for name in list_dir(&dir)? {
            if !name.starts_with("index") {
                continue;
            }
            let Some((cache, sharers)) = read_cache(&dir.join(name), buf)? else {
                continue;
            };
            let place = match cache.level {
                0..=2 if sharers == core.thread_ids.len() => &mut core.caches,
                // A level-2 cache of a cluster of cores belongs to neither a core nor the node.
                0..=2 => continue,
                _ if sharers == node_threads => &mut node.caches,
                _ => &mut core.uncore_caches,
            };
            if !place.contains(&cache) {
                place.push(cache);
            }
        }
    }
    Ok(())
}

/// One cache and how many threads share it. `Ok(None)`: the kernel (of an arm guest) does not describe it.
fn read_cache(dir: &Path, buf: &mut ReadBuf) -> Result<Option<(Cache, usize)>> {
    let Some(size) = read_file(&dir.join("size"), buf)? else {
        return Ok(None);
    };
    let size = parse_size(size).map_err(|at| HostError::malformed(&dir.join("size"), at))?;
    let (Some(level), Some(kind)) = (
        read_number(&dir.join("level"), buf)?,
        read_text(&dir.join("type"), buf)?,
    ) else {
        return Ok(None);
    };
    let list = dir.join("shared_cpu_list");
    let sharers = match read_file(&list, buf)? {
        Some(text) => parse::index_list(text).map_err(|at| HostError::malformed(&list, at))?,
        None => {
            let map = dir.join("shared_cpu_map");
            let Some(text) = read_file(&map, buf)? else {
                return Ok(None);
            };
            parse_mask(text).map_err(|at| HostError::malformed(&map, at))?
        }
    };
    // Numbers came to arm late; the first sharer tells caches of one level apart just as well.
    let id = match read_number(&dir.join("id"), buf)? {
        Some(id) => id,
        None => sharers.first().copied().map_or(0, u64::from),
    };
    let cache = Cache {
        id,
        size,
        kind,
        level,
    };
    Ok(Some((cache, sharers.len())))
}

/// `32K` in bytes.
fn parse_size(text: &[u8]) -> Result<u64, Malformed> {
    let word = parse::trim(text);
    let (digits, unit) = match word.split_last() {
        Some((b'K', digits)) => (digits, 1 << 10),
        Some((b'M', digits)) => (digits, 1 << 20),
        _ => (word, 1),
    };
    parse::u64(digits)
        .and_then(|size| size.checked_mul(unit))
        .ok_or_else(|| Malformed::at(0, word))
}

/// `00000000,000000ff`: 32 bits a group, the highest first.
fn parse_mask(text: &[u8]) -> Result<Vec<u32>, Malformed> {
    let word = parse::trim(text);
    let mut found = Vec::new();
    for (group, digits) in word.rsplit(|&b| b == b',').enumerate() {
        let bits = parse::hex(digits)
            .filter(|bits| *bits <= u64::from(u32::MAX) && group < 1 << 12)
            .ok_or_else(|| Malformed::at(0, word))?;
        let numbers = (0..32).filter(|bit| bits >> bit & 1 == 1);
        found.extend(numbers.map(|bit| group as u32 * 32 + bit));
    }
    Ok(found)
}

fn node_memory(dir: &Path, buf: &mut ReadBuf) -> Result<u64> {
    let path = dir.join("meminfo");
    match read_file(&path, buf)? {
        Some(text) => {
            let info = parse_meminfo(text).map_err(|at| HostError::malformed(&path, at))?;
            Ok(info.total)
        }
        None => Ok(0),
    }
}

fn distances(path: &Path, buf: &mut ReadBuf) -> Result<Vec<u64>> {
    let Some(text) = read_file(path, buf)? else {
        return Ok(Vec::new());
    };
    parse::words(text)
        .map(|word| parse::u64(word).ok_or_else(|| Malformed::at(0, parse::trim(text))))
        .collect::<Result<_, _>>()
        .map_err(|at| HostError::malformed(path, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_and_masks() {
        assert_eq!(parse_size(b"32K\n").unwrap(), 32_768);
        assert_eq!(parse_size(b"1M\n").unwrap(), 1 << 20);
        assert!(parse_size(b"K\n").is_err());
        assert_eq!(parse_mask(b"00000001,80000003\n").unwrap(), [0, 1, 31, 32]);
        assert!(parse_mask(b"x\n").is_err());
        assert!(parse_mask(b"100000000\n").is_err());
    }

    proptest! {
        #[test]
        fn any_mask_survives(high: u32, low: u32) {
            let found = parse_mask(format!("{high:08x},{low:08x}\n").as_bytes()).unwrap();
            let bits = found.iter().fold(0_u64, |sum, bit| sum | 1 << bit);
            prop_assert_eq!(bits, u64::from(high) << 32 | u64::from(low));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_size(&text);
            let _ = parse_mask(&text);
        }
    }
}
