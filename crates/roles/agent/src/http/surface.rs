//! What the server shows: everything it cannot know by itself, in one trait.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_containers::Namespace;
use plimsoll_containers::runtime::cri::ImageFs;
use plimsoll_observe::Observer;
use plimsoll_observe::exposition::{Dialect, Gathered};
use plimsoll_observe::needs::ReadPlan;
use plimsoll_observe::rest::Versions;

/// What concerns the agent itself, and what users look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Half {
    Internal,
    External,
}

/// The agent as the server sees it. Every method may take its time: it is called on a thread that may wait.
pub trait Surface: Send + Sync + 'static {
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

    /// Koordinator's families; none where nothing is remembered.
    fn koordlet_metrics(&self, _half: Half) -> Gathered {
        Gathered::default()
    }

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

    /// Every series of a metric, as JSON; `None`: nothing is remembered here.
    fn remembered(&self, _metric: &str, _window: Duration) -> Option<String> {
        None
    }

    /// How much of the disk the container runtime takes; `None` where none tells.
    fn image_fs(&self) -> Option<ImageFs> {
        None
    }

    /// What a runtime says of itself, name and value by line; `Err` where it cannot be reached.
    fn runtime(&self, namespace: Namespace) -> Result<Vec<(String, String)>, String>;
}
