//! What requests may look at, and the pages made of it.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_client::reflector::ReflectorStatus;
use plimsoll_containers::Namespace;
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::machine::MachineInfo;
use plimsoll_host::{Descriptors, Timestamp};
use plimsoll_observe::exposition::number::Number::Whole;
use plimsoll_observe::exposition::{
    Dialect, Exporter, Gathered, Kind, Text, Version, kubelet_shows, machine_families,
};
use plimsoll_observe::needs::ReadPlan;
use plimsoll_observe::sampler::{self, Message};
use plimsoll_observe::store::Container;
use plimsoll_observe::{Group, Observer, oom_watch};

use crate::http::{Half, Surface};
use crate::koordlet_page;
use crate::memory::Memory;
use crate::self_metrics;
use crate::states::{Board, Doorbell};
use crate::{report, states};

/// The release of cAdvisor whose interfaces these are, so that clients which compare versions find one, and ours.
const VERSION: &str = concat!("v0.60.6+plimsoll.", env!("CARGO_PKG_VERSION"));

#[derive(Debug)]
pub struct View {
    pub(crate) started: Timestamp,
    pub(crate) observer: Arc<Observer>,
    pub(crate) exporter: Arc<Exporter>,
    pub(crate) hierarchies: Arc<Hierarchies>,
    pub(crate) descriptors: Arc<Descriptors>,
    pub(crate) sampling: Arc<sampler::Counters>,
    pub(crate) sampler: Sender<Message>,
    pub(crate) plan: ReadPlan,
    pub(crate) containers: plimsoll_containers::Handle,
    pub(crate) kernel_log: Option<Arc<oom_watch::Counters>>,
    pub(crate) tokio: tokio::runtime::Handle,
    /// The root has no figures, so pages do not show it.
    pub(crate) hide_root: bool,
    pub(crate) node_name: Option<String>,
    pub(crate) board: Board,
    pub(crate) memory: Option<Arc<Memory>>,
    pub(crate) unavailable_features: Vec<&'static str>,
    pub(crate) bell: Doorbell,
    pub(crate) cluster: OnceLock<Membership>,
}

/// How being a member of a cluster goes.
#[derive(Debug)]
pub struct Membership {
    pub states: Arc<states::Counters>,
    /// By the kind that is followed.
    pub rounds: Vec<(&'static str, ReflectorStatus)>,
    /// `None`: nothing is reported.
    pub reports: Option<Arc<report::Counters>>,
    /// Why the cluster cannot be told what the node uses, if so.
    pub lookout: states::Lookout,
}

impl Membership {
    /// Only a report that was taken shows that reports are.
    fn tells_cluster(&self) -> Option<bool> {
        let reports = self.reports.as_ref()?;
        let fails = reports.sending.trouble().is_some() || reports.reports.get() == 0;
        Some(!fails && self.lookout.trouble().is_none())
    }
}

impl View {
    /// Has pages tell of it; the first call counts.
    pub fn show(&self, membership: Membership) {
        let _ = self.cluster.set(membership);
    }

    /// Whether the cluster is told what the node uses; `None`: it is not to be told.
    pub fn tells_cluster(&self) -> Option<bool> {
        self.cluster.get()?.tells_cluster()
    }

    /// Rung when a pod's cgroup appears.
    pub fn bell(&self) -> Doorbell {
        self.bell.clone()
    }

    /// Where what the cluster says is put, and looked for.
    pub fn board(&self) -> &Board {
        &self.board
    }

    /// What the node used; `None`: nobody remembers.
    pub fn memory(&self) -> Option<&Arc<Memory>> {
        self.memory.as_ref()
    }

    pub fn machine_info(&self) -> Arc<MachineInfo> {
        self.observer.machine.info()
    }

    /// Of the connected runtime that pods would most likely be in, `containerd://2.1.4`; empty without one.
    pub fn runtime_version(&self) -> String {
        let runtimes = &self.containers.counters().runtimes;
        ["cri", "containerd", "docker", "podman"]
            .iter()
            .flat_map(|kind| runtimes.iter().filter(move |runtime| runtime.kind == *kind))
            .filter(|runtime| runtime.up.load(Ordering::Relaxed))
            .map(|runtime| runtime.version.lock().clone())
            .find(|version| !version.is_empty())
            .unwrap_or_default()
    }

    pub(crate) fn page(&self, dialect: Dialect, only: Option<Namespace>) -> Gathered {
        let containers = self.shown(dialect, only);
        let info = self.observer.machine.info();
        let timed = dialect == Dialect::Cadvisor;
        let topology = timed && self.observer.groups.has(Group::CpuTopology);
        let (version, machine) = machine_families(&info, &self.version(dialect), timed, topology);
        let containers = self.exporter.containers(dialect, &containers);
        let mut page = Gathered::from(version);
        page.containers(containers, SCRAPE_ERROR, scrape_error())
            .families(machine);
        if dialect == Dialect::Cadvisor {
            let mut text = Text::default();
            self_metrics::process(&mut text, self.started);
            page.families(text);
            self.koordlet(&[Half::Internal, Half::External], &mut page);
        }
        page
    }

    /// Koordinator's families: what is not there, and the rest where something is remembered.
    pub(crate) fn koordlet(&self, halves: &[Half], on: &mut Gathered) {
        let mut text = Text::default();
        if halves.contains(&Half::Internal) {
            koordlet_page::unavailable(&mut text, &self.unavailable_features);
        }
        let Some(memory) = &self.memory else {
            on.families(text);
            return;
        };
        let name = self.node_name();
        let now = self.observer.clock.now();
        let page = koordlet_page::Page {
            memory,
            known: self.board.now(),
            node: &name,
            started: self.started,
            now: jiff::Timestamp::from_nanosecond(i128::from(now.nanos())).unwrap_or_default(),
        };
        for half in halves {
            match half {
                Half::Internal => page.internal(&mut text),
                Half::External => {
                    page.external(&mut text);
                    page.pressure(&mut text, &self.observer.store);
                }
            }
        }
        on.families(text);
        if halves.contains(&Half::Internal)
            && let Some(member) = self.cluster.get()
        {
            on.written(member.states.requests.page().into_bytes());
        }
    }

    fn shown(&self, dialect: Dialect, only: Option<Namespace>) -> Vec<Arc<Container>> {
        let store = &self.observer.store;
        let mut containers = match only {
            Some(namespace) => store.of_namespace(namespace),
            None => store.all(),
        };
        if self.hide_root {
            containers.retain(|c| c.path().as_ref() != "/");
        }
        if dialect == Dialect::Kubelet {
            containers.retain(|c| kubelet_shows(c.path(), &c.lock()));
        }
        containers
    }

    pub(crate) fn version(&self, dialect: Dialect) -> Version {
        let fixed = self.observer.machine.fixed();
        let own = |text: &str| match dialect {
            Dialect::Cadvisor => text.to_owned(),
            // The kubelet leaves these empty.
            Dialect::Kubelet => String::new(),
        };
        Version {
            kernel: fixed.kernel_version.clone(),
            os: fixed.os_version.clone(),
            docker: String::new(),
            program: own(VERSION),
            revision: String::new(),
        }
    }

    /// Every cgroup directly below one, as the directories have it: mount units and whatever the rules refuse count too,
    /// since clients walk the tree by these names.
    pub(crate) fn directories_below(&self, path: &str) -> Vec<String> {
        let prefix = path.trim_end_matches('/');
        let mut found = BTreeSet::new();
        for dir in self.hierarchies.watched_dirs(path) {
            // A tree that does not have this cgroup has nothing to add.
            let Ok(entries) = std::fs::read_dir(dir) else {
                continue;
            };
            let directories = entries
                .flatten()
                .filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir()));
            found.extend(
                directories.map(|e| format!("{prefix}/{}", e.file_name().to_string_lossy())),
            );
        }
        found.into_iter().collect()
    }

    /// The files that are read for one container; waits for the sampler's answer.
    pub(crate) fn files_of(&self, path: &str) -> Option<Vec<String>> {
        self.observer.store.get(path)?;
        let (reply, answer) = channel();
        self.sampler
            .send(Message::Sources(path.to_owned(), reply))
            .ok()?;
        answer.recv_timeout(Duration::from_secs(5)).ok()
    }

    /// Ready: the machine's own cgroup has been sampled, so the first walk is done.
    pub(crate) fn first_round_over(&self) -> Result<(), String> {
        let root = self.observer.store.get("/");
        if root.is_some_and(|root| self.hide_root || root.lock().sampled) {
            Ok(())
        } else {
            Err("the first round of sampling is not over".to_owned())
        }
    }
}

const SCRAPE_ERROR: &str = "container_scrape_error";

fn scrape_error() -> Text {
    let mut text = Text::default();
    text.single(
        SCRAPE_ERROR,
        Kind::Gauge,
        "1 if containers could not be listed for this page.",
        Whole(0),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_told_once_it_took_a_report() {
        let mut member = Membership {
            states: Arc::default(),
            rounds: Vec::new(),
            reports: None,
            lookout: states::Lookout::default(),
        };
        assert_eq!(member.tells_cluster(), None);
        let reports = Arc::<report::Counters>::default();
        member.reports = Some(Arc::clone(&reports));
        assert_eq!(member.tells_cluster(), Some(false));
        reports.reports.add();
        assert_eq!(member.tells_cluster(), Some(true));
        reports.sending.failed("no answer");
        assert_eq!(member.tells_cluster(), Some(false));
    }
}
