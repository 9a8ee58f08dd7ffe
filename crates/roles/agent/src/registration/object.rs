//! Makes the Node object of a machine.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeStatus,
    NodeSwapStatus, NodeSystemInfo,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use plimsoll_api::quantity::{Notation, Quantity};
use plimsoll_golang::platform::goarch;

use super::node_facts::Facts;

/// Clients compare versions: the Kubernetes that the node behaves like, and whose it is.
pub const KUBELET_VERSION: &str = concat!("v1.36.3+plimsoll.", env!("CARGO_PKG_VERSION"));

/// As many as a kubelet takes unless told otherwise.
const PODS: i64 = 110;
/// With less memory than this left, a kubelet evicts; pods cannot have it.
const MEMORY_RESERVE: u64 = 100 << 20;
/// The share of the disk, and of its inodes, that a kubelet keeps free in the same way.
const STORAGE_RESERVE: u64 = 10;
const INODES_RESERVE: u64 = 5;
/// With less than this share of the possible threads left, the next pod may fail to start.
const THREADS_RESERVE: u64 = 1;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// What the node is ready for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeReadiness {
    Running,
    Stopped,
}

/// The whole object, as it is registered.
pub fn node(name: &str, facts: &Facts, readiness: NodeReadiness, now: Timestamp) -> Node {
    Node {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels(name)),
            ..ObjectMeta::default()
        },
        status: Some(status(name, facts, readiness, now)),
        ..Node::default()
    }
}

pub fn labels(name: &str) -> BTreeMap<String, String> {
    let arch = goarch(std::env::consts::ARCH);
    [
        (HOSTNAME, name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", arch),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", arch),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into()
}

pub fn status(name: &str, facts: &Facts, readiness: NodeReadiness, now: Timestamp) -> NodeStatus {
    NodeStatus {
        capacity: Some(capacity(facts)),
        allocatable: Some(allocatable(facts)),
        addresses: Some(addresses(name, facts)),
        daemon_endpoints: facts.pages.map(|port| NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: port.into() }),
        }),
        conditions: Some(conditions(facts, readiness, now)),
        node_info: Some(info(facts)),
        ..NodeStatus::default()
    }
}

/// Who is on this machine finds the agent's pages by the last.
fn addresses(name: &str, facts: &Facts) -> Vec<NodeAddress> {
    let mut addresses = vec![
        address("InternalIP", facts.address.to_string()),
        address("Hostname", name.to_owned()),
    ];
    if facts.pages.is_some() {
        addresses.push(address("InternalDNS", "localhost".to_owned()));
    }
    addresses
}

type Amounts = BTreeMap<String, Wire>;

fn capacity(facts: &Facts) -> Amounts {
    let storage = facts.storage.map(|storage| storage.capacity);
    amounts(facts, facts.memory, storage.map(bytes))
}

/// What pods may have of it.
fn allocatable(facts: &Facts) -> Amounts {
    let huge: u64 = facts
        .hugepages
        .iter()
        .map(|(size, pages)| size.saturating_mul(*pages))
        .fold(0, u64::saturating_add);
    let memory = facts
        .memory
        .saturating_sub(huge.saturating_add(MEMORY_RESERVE));
    // The share is no round number of anything: a kubelet writes it as plain digits.
    let storage = facts.storage.map(|storage| {
        let kept = storage.capacity / 100 * STORAGE_RESERVE;
        count(i64::try_from(storage.capacity - kept).unwrap_or(i64::MAX))
    });
    amounts(facts, memory, storage)
}

fn amounts(facts: &Facts, memory: u64, storage: Option<Quantity>) -> Amounts {
    let mut amounts = vec![
        (
            "cpu".to_owned(),
            count(i64::try_from(facts.cpus).unwrap_or(i64::MAX)),
        ),
        ("memory".to_owned(), bytes(memory)),
        ("pods".to_owned(), count(PODS)),
    ];
    amounts.extend(storage.map(|storage| ("ephemeral-storage".to_owned(), storage)));
    for (size, pages) in &facts.hugepages {
        amounts.push((format!("hugepages-{}", bytes(*size)), bytes(size * pages)));
    }
    let wire = |(name, amount): (String, Quantity)| (name, Wire(amount.to_string()));
    amounts.into_iter().map(wire).collect()
}

fn bytes(bytes: u64) -> Quantity {
    Quantity::from_bytes(bytes)
}

fn count(count: i64) -> Quantity {
    Quantity::from_nanos(i128::from(count) * 1_000_000_000, Notation::Decimal)
}

fn address(kind: &str, address: String) -> NodeAddress {
    NodeAddress {
        type_: kind.to_owned(),
        address,
    }
}

fn info(facts: &Facts) -> NodeSystemInfo {
    NodeSystemInfo {
        machine_id: facts.machine_id.clone(),
        system_uuid: facts.system_uuid.clone(),
        boot_id: facts.boot_id.clone(),
        kernel_version: facts.kernel_version.clone(),
        os_image: facts.os_image.clone(),
        container_runtime_version: facts.runtime.clone(),
        kubelet_version: KUBELET_VERSION.to_owned(),
        kube_proxy_version: String::new(),
        operating_system: "linux".to_owned(),
        architecture: goarch(std::env::consts::ARCH).to_owned(),
        swap: (facts.swap > 0).then(|| NodeSwapStatus {
            capacity: i64::try_from(facts.swap).ok(),
        }),
    }
}

fn conditions(facts: &Facts, readiness: NodeReadiness, now: Timestamp) -> Vec<NodeCondition> {
    let condition = |kind: &str, (is, reason, message): (bool, &str, &str)| NodeCondition {
        type_: kind.to_owned(),
        status: if is { "True" } else { "False" }.to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    };
    let choose = |pressed: bool, with: (&'static str, &'static str), without| {
        let (reason, message) = if pressed { with } else { without };
        (pressed, reason, message)
    };
    let memory = choose(
        facts.memory_available < MEMORY_RESERVE,
        (
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
        ),
        (
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
    );
    let disk = choose(
        storage_is_short(facts),
        ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    );
    let threads = choose(
        facts.threads.is_some_and(|(used, most)| {
            less_than_share(most.saturating_sub(used), THREADS_RESERVE, most)
        }),
        (
            "KubeletHasInsufficientPID",
            "kubelet has insufficient PID available",
        ),
        (
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
    );
    let ready = match readiness {
        NodeReadiness::Running => (true, "KubeletReady", "kubelet is posting ready status"),
        NodeReadiness::Stopped => (
            false,
            "KubeletNotReady",
            "plimsoll was stopped on this node",
        ),
    };
    vec![
        condition("MemoryPressure", memory),
        condition("DiskPressure", disk),
        condition("PIDPressure", threads),
        condition("Ready", ready),
    ]
}

fn storage_is_short(facts: &Facts) -> bool {
    let Some(storage) = facts.storage else {
        return false;
    };
    let short_of_inodes = |(all, free)| less_than_share(free, INODES_RESERVE, all);
    less_than_share(storage.available, STORAGE_RESERVE, storage.capacity)
        || storage.inodes.is_some_and(short_of_inodes)
}

/// Never true of nothing: a file system that does not count its inodes says that it has none.
fn less_than_share(part: u64, percent: u64, whole: u64) -> bool {
    u128::from(part) * 100 < u128::from(whole) * u128::from(percent)
}
