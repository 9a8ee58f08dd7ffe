//! The running agent as requests and other parts use it.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_cadvisor::exposition::{Dialect, Exporter, Gathered, Text};
use plimsoll_cadvisor::http::Backend;
use plimsoll_cadvisor::metrics_page;
use plimsoll_client::reflector::ReflectorStatus;
use plimsoll_containers::Namespace;
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::machine::MachineInfo;
use plimsoll_host::{Descriptors, Timestamp};
use plimsoll_observe::needs::ReadPlan;
use plimsoll_observe::sampler::{self, Message};
use plimsoll_observe::{Observer, oom_watch};

use crate::koordlet_metrics;
use crate::metrics;
use crate::protect;
use crate::states::{ClusterStateCell, PodHint};
use crate::{reports, states};
use plimsoll_history::UsageHistory;

/// koordlet's two pages: about the agent itself, and for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Internal,
    External,
}

#[derive(Debug)]
pub struct NodeHandle {
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
    /// The root has no samples, so pages do not show it.
    pub(crate) hide_root: bool,
    pub(crate) node_name: Option<String>,
    pub(crate) cluster_state: ClusterStateCell,
    pub(crate) history: Option<Arc<UsageHistory>>,
    pub(crate) unavailable_features: Vec<&'static str>,
    pub(crate) pod_hint: PodHint,
    pub(crate) cluster: OnceLock<ClusterHealth>,
    pub(crate) protection: Option<protect::Started>,
    pub(crate) audit: Option<protect::audit::Readers>,
}

/// Health of the connection to the cluster, for pages and probes.
#[derive(Debug)]
pub struct ClusterHealth {
    pub states: Arc<states::Counters>,
    /// By watched kind.
    pub rounds: Vec<(&'static str, ReflectorStatus)>,
    /// `None`: nothing is reported.
    pub reports: Option<Arc<reports::Counters>>,
    /// Why usage cannot be reported, if so.
    pub reporting_check: states::ReportingCheck,
}

impl ClusterHealth {
    /// Reporting works once a report was accepted.
    fn tells_cluster(&self) -> Option<bool> {
        let reports = self.reports.as_ref()?;
        let fails = reports.sending.trouble().is_some() || reports.reports.get() == 0;
        Some(!fails && self.reporting_check.trouble().is_none())
    }
}

impl NodeHandle {
    /// Sets what pages show about the cluster; only the first call has an effect.
    pub fn show(&self, membership: ClusterHealth) {
        let _ = self.cluster.set(membership);
    }

    /// Whether usage is reported; `None`: reporting is off.
    pub fn tells_cluster(&self) -> Option<bool> {
        self.cluster.get()?.tells_cluster()
    }

    /// Protection of this node's pods; `None`: it is off.
    pub fn protection(&self) -> Option<&protect::Started> {
        self.protection.as_ref()
    }

    /// Notified when a pod's cgroup appears.
    pub fn pod_hint(&self) -> PodHint {
        self.pod_hint.clone()
    }

    /// What the agent knows of the cluster.
    pub fn cluster_state(&self) -> &ClusterStateCell {
        &self.cluster_state
    }

    /// `None`: the usage history is off.
    pub fn history(&self) -> Option<&Arc<UsageHistory>> {
        self.history.as_ref()
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
        let mut page = metrics_page(
            &self.observer,
            &self.exporter,
            dialect,
            only,
            self.hide_root,
        );
        if dialect == Dialect::Cadvisor {
            let mut text = Text::default();
            metrics::process(&mut text, self.started);
            page.families(text);
            self.koordlet(&[Half::Internal, Half::External], &mut page);
        }
        page
    }

    /// koordlet's metrics: features that are not implemented, and the rest if there is a usage history.
    pub(crate) fn koordlet(&self, halves: &[Half], on: &mut Gathered) {
        let mut text = Text::default();
        if halves.contains(&Half::Internal) {
            koordlet_metrics::unavailable(&mut text, &self.unavailable_features);
        }
        let Some(history) = &self.history else {
            on.families(text);
            return;
        };
        let name = Backend::node_name(self);
        let now = self.observer.clock.now();
        let page = koordlet_metrics::Page {
            history,
            cluster: self.cluster_state.current(),
            node: &name,
            started: self.started,
            now: jiff::Timestamp::from_nanosecond(i128::from(now.nanos())).unwrap_or_default(),
        };
        for half in halves {
            match half {
                Half::Internal => {
                    page.internal(&mut text);
                    if let Some(started) = &self.protection {
                        let shown = started.protection.shown();
                        page.protection(&mut text, &shown.metrics, &started.evictions);
                    }
                }
                Half::External => {
                    page.external(&mut text);
                    page.pressure(&mut text, &self.observer.store);
                }
            }
        }
        on.families(text);
        if halves.contains(&Half::Internal)
            && let Some(started) = &self.protection
        {
            let shown = started.protection.shown();
            on.written(koordlet_metrics::updates(&shown.durations).into_bytes());
        }
        if halves.contains(&Half::Internal)
            && let Some(member) = self.cluster.get()
        {
            on.written(member.states.requests.page().into_bytes());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_told_once_it_took_a_report() {
        let mut member = ClusterHealth {
            states: Arc::default(),
            rounds: Vec::new(),
            reports: None,
            reporting_check: states::ReportingCheck::default(),
        };
        assert_eq!(member.tells_cluster(), None);
        let reports = Arc::<reports::Counters>::default();
        member.reports = Some(Arc::clone(&reports));
        assert_eq!(member.tells_cluster(), Some(false));
        reports.reports.add();
        assert_eq!(member.tells_cluster(), Some(true));
        reports.sending.failed("no answer");
        assert_eq!(member.tells_cluster(), Some(false));
    }
}
