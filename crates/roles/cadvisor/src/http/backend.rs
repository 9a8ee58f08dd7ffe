//! What the server shows: everything it cannot know by itself, in one trait.

use std::sync::Arc;

use crate::exposition::{Dialect, Gathered};
use crate::rest::Versions;
use plimsoll_containers::Namespace;
use plimsoll_containers::runtime::cri::ImageFs;
use plimsoll_observe::Observer;
use plimsoll_observe::needs::ReadPlan;

use super::extra::ExtraRoute;

/// The agent as the server sees it. Every method may take its time: it is called on a thread that may wait.
pub trait Backend: Send + Sync + 'static {
    /// Containers, events, the machine, and the line to the sampler.
    fn observer(&self) -> &Arc<Observer>;

    fn versions(&self) -> Versions;

    /// The name under which the cluster knows this machine.
    fn node_name(&self) -> String;

    /// A page of metrics; `only`: the containers of one runtime.
    fn metrics_page(&self, dialect: Dialect, only: Option<Namespace>) -> Result<Gathered, String>;

    /// The cgroups directly below one, sorted: also those that are not reported as containers themselves.
    fn children(&self, container: &str) -> Vec<String> {
        let children = self.observer().store.children(container);
        children.iter().map(|c| c.path().to_string()).collect()
    }

    /// Families about the agent itself; the server adds its own.
    fn self_metrics(&self) -> Gathered;

    /// `Err` says what is still missing.
    fn ready(&self) -> Result<(), String>;

    /// Whether the cluster is told what the node uses; `None`: it is not to be told.
    fn reporting(&self) -> Option<bool> {
        None
    }

    /// The report of `/validate/`.
    fn validate(&self) -> String;

    /// Which kernel files a container's figures come from; `None`: no such container.
    fn sources(&self, container: &str) -> Option<Vec<String>>;

    /// What is read of the kernel, and how often.
    fn plan(&self) -> &ReadPlan;

    /// Pages that the server does not know; asked for once, when the server starts.
    fn extra_routes(self: Arc<Self>) -> Vec<ExtraRoute> {
        Vec::new()
    }

    /// How much of the disk the container runtime takes; `None` where none tells.
    fn image_fs(&self) -> Option<ImageFs> {
        None
    }

    /// What a runtime says of itself, name and value by line; `Err` where it cannot be reached.
    fn runtime(&self, namespace: Namespace) -> Result<Vec<(String, String)>, String>;
}
