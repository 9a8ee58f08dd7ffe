//! Data that the HTTP server needs from the program.

use std::sync::Arc;

use crate::exposition::{Dialect, Gathered};
use crate::rest::Versions;
use plimsoll_containers::Namespace;
use plimsoll_containers::runtime::cri::ImageFs;
use plimsoll_observe::Observer;
use plimsoll_observe::needs::ReadPlan;

use super::extra::ExtraRoute;

/// The program behind the server. Methods may block: they are called on threads that may wait.
pub trait Backend: Send + Sync + 'static {
    /// Containers, events, the machine, and on-demand samples.
    fn observer(&self) -> &Arc<Observer>;

    fn versions(&self) -> Versions;

    /// The node's name in the cluster.
    fn node_name(&self) -> String;

    /// A page of metrics; `only`: the containers of one runtime.
    fn metrics_page(&self, dialect: Dialect, only: Option<Namespace>) -> Result<Gathered, String>;

    /// The cgroups directly below one, sorted: also those that are not reported as containers themselves.
    fn children(&self, container: &str) -> Vec<String> {
        let children = self.observer().store.children(container);
        children.iter().map(|c| c.path().to_string()).collect()
    }

    /// Metrics of the program itself; the server adds its own.
    fn self_metrics(&self) -> Gathered;

    /// `Err`: what is still missing.
    fn ready(&self) -> Result<(), String>;

    /// Whether usage is reported to the cluster; `None`: reporting is off.
    fn reporting(&self) -> Option<bool> {
        None
    }

    /// More lines for the verbose readiness page. They never make it not ready.
    fn details(&self) -> String {
        String::new()
    }

    /// The report of `/validate/`.
    fn validate(&self) -> String;

    /// The kernel files that are read for a container; `None`: no such container.
    fn sources(&self, container: &str) -> Option<Vec<String>>;

    /// The reading plan.
    fn plan(&self) -> &ReadPlan;

    /// Routes of the program; called once, when the server starts.
    fn extra_routes(self: Arc<Self>) -> Vec<ExtraRoute> {
        Vec::new()
    }

    /// Disk usage of the container runtime; `None` if it does not report any.
    fn image_fs(&self) -> Option<ImageFs> {
        None
    }

    /// Status of a runtime as name and value; `Err`: it cannot be reached.
    fn runtime(&self, namespace: Namespace) -> Result<Vec<(String, String)>, String>;
}
