//! PCI devices: their location, and which are RDMA network cards.

use std::path::{Path, PathBuf};

use crate::{HostRoot, ReadBuf, Result, list_dir, read_text};

const DEVICES: &str = "bus/pci/devices";
/// The first byte of a network controller's class.
const NETWORK: &str = "0x02";
const ACTIVE: &str = "ACTIVE";

/// Where a device sits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PciLocation {
    /// The root that it hangs below, `pci0000:3a`; empty where sysfs does not say.
    pub root: String,
    /// `None`: the machine has no NUMA nodes.
    pub numa_node: Option<i32>,
}

impl PciLocation {
    /// `address` as sysfs has it: `0000:3b:00.0`.
    pub fn of(root: &HostRoot, address: &str) -> Self {
        let device: PathBuf = root.sys(DEVICES).join(address);
        let numa = std::fs::read_to_string(device.join("numa_node"));
        let numa = numa.ok().and_then(|text| text.trim().parse().ok());
        let link = std::fs::read_link(&device).unwrap_or_default();
        let root = link
            .iter()
            .filter_map(|part| part.to_str())
            .find(|part| part.starts_with("pci"))
            .unwrap_or_default();
        Self {
            root: root.to_owned(),
            // -1 is the kernel's word for "none".
            numa_node: numa.filter(|node| *node >= 0),
        }
    }
}

/// A network card that speaks RDMA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RdmaDevice {
    /// Tells the machine's cards apart: 1 of `mlx5_1`.
    pub minor: u32,
    /// `0000:3b:00.0`.
    pub address: String,
    pub place: PciLocation,
    /// All its ports are up.
    pub healthy: bool,
    /// Addresses of the virtual cards that it has been split into.
    pub functions: Vec<String>,
}

/// The machine's cards, without those that are parts of others, by number.
pub fn rdma_cards(root: &HostRoot, buf: &mut ReadBuf) -> Result<Vec<RdmaDevice>> {
    let devices = root.sys(DEVICES);
    let mut cards: Vec<RdmaDevice> = Vec::new();
    let mut addresses = list_dir(&devices)?;
    addresses.sort();
    for address in addresses {
        let device = devices.join(&address);
        let class = read_text(&device.join("class"), buf)?.unwrap_or_default();
        if !class.starts_with(NETWORK) || device.join("physfn").exists() {
            continue;
        }
        let mut names = list_dir(&device.join("infiniband"))?;
        names.sort();
        // A card's own name comes before those of its parts.
        let Some(name) = names.first() else {
            continue;
        };
        let taken = |minor: u32| cards.iter().any(|card| card.minor == minor);
        let minor = number_at_end(name).filter(|minor| !taken(*minor));
        let minor = minor.or_else(|| (0..).find(|minor| !taken(*minor)));
        cards.push(RdmaDevice {
            minor: minor.unwrap_or_default(),
            healthy: all_ports_are_up(&device.join("infiniband").join(name), buf)?,
            functions: functions(&device)?,
            place: PciLocation::of(root, &address),
            address,
        });
    }
    cards.sort_by_key(|card| card.minor);
    Ok(cards)
}

fn number_at_end(name: &str) -> Option<u32> {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name[digits..].parse().ok()
}

fn all_ports_are_up(card: &Path, buf: &mut ReadBuf) -> Result<bool> {
    let ports = card.join("ports");
    let names = list_dir(&ports)?;
    for name in &names {
        let state = read_text(&ports.join(name).join("state"), buf)?;
        if !state.is_some_and(|state| state.contains(ACTIVE)) {
            return Ok(false);
        }
    }
    Ok(!names.is_empty())
}

fn functions(device: &Path) -> Result<Vec<String>> {
    let mut functions: Vec<String> = list_dir(device)?
        .iter()
        .filter(|name| name.starts_with("virtfn"))
        .filter_map(|name| {
            let target = std::fs::read_link(device.join(name)).ok()?;
            Some(target.file_name()?.to_str()?.to_owned())
        })
        .collect();
    functions.sort();
    Ok(functions)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn device(&self, address: &str, class: &str, files: &[(&str, &str)]) {
            let sys = self.0.path().join("sys");
            let real = sys.join(format!("devices/pci0000:3a/0000:3a:00.0/{address}"));
            let mut all = vec![("class", class), ("numa_node", "-1\n")];
            all.extend(files);
            for (name, text) in all {
                let path = real.join(name);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            std::fs::create_dir_all(sys.join(DEVICES)).unwrap();
            let link = format!("../../../devices/pci0000:3a/0000:3a:00.0/{address}");
            std::os::unix::fs::symlink(link, sys.join(DEVICES).join(address)).unwrap();
        }

        fn link(&self, address: &str, name: &str, target: &str) {
            let at = self.0.path().join("sys").join(DEVICES).join(address);
            std::os::unix::fs::symlink(format!("../{target}"), at.join(name)).unwrap();
        }
    }

    #[test]
    fn cards_without_their_parts_and_without_others() {
        let tree = Tree(tempfile::tempdir().unwrap());
        let up = ("infiniband/mlx5_1/ports/1/state", "4: ACTIVE\n");
        tree.device("0000:3b:00.1", "0x020000\n", &[up, ("numa_node", "1\n")]);
        let down = ("infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
        tree.device("0000:3b:00.0", "0x020700\n", &[down]);
        tree.device("0000:3b:00.2", "0x020000\n", &[("infiniband/mlx5_2/x", "")]);
        tree.link("0000:3b:00.2", "physfn", "0000:3b:00.1");
        tree.link("0000:3b:00.1", "virtfn1", "0000:3b:00.3");
        tree.link("0000:3b:00.1", "virtfn0", "0000:3b:00.2");
        // A network card without RDMA, and a disk.
        tree.device("0000:3c:00.0", "0x020000\n", &[]);
        tree.device("0000:3d:00.0", "0x010802\n", &[("infiniband/x0/x", "")]);
        // One that is numbered as another is.
        let other = ("infiniband/bnxt_re1/ports/1/state", "4: ACTIVE\n");
        tree.device("0000:5b:00.0", "0x020000\n", &[other]);

        let root = HostRoot::new(tree.0.path());
        let cards = rdma_cards(&root, &mut ReadBuf::default()).unwrap();
        let told: Vec<_> = cards
            .iter()
            .map(|card| (card.minor, card.address.as_str(), card.healthy))
            .collect();
        assert_eq!(
            told,
            [
                (0, "0000:3b:00.0", false),
                (1, "0000:3b:00.1", true),
                (2, "0000:5b:00.0", true),
            ]
        );
        assert_eq!(cards[1].functions, ["0000:3b:00.2", "0000:3b:00.3"]);
        assert_eq!(cards[1].place.root, "pci0000:3a");
        assert_eq!(
            (cards[0].place.numa_node, cards[1].place.numa_node),
            (None, Some(1))
        );
    }

    #[test]
    fn a_machine_without_a_bus() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        assert_eq!(rdma_cards(&root, &mut ReadBuf::default()).unwrap(), []);
    }
}
