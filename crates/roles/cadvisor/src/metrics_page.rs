//! The pages `/metrics` and `/metrics/cadvisor`: version, containers, machine.

use std::sync::Arc;

use plimsoll_containers::Namespace;
use plimsoll_observe::store::Container;
use plimsoll_observe::{Group, Observer};

use crate::exposition::number::Number::Whole;
use crate::exposition::{
    Dialect, Exporter, Gathered, Kind, Text, Version, kubelet_shows, machine_families,
};

/// The release of cAdvisor whose interfaces these are, so that clients which compare versions find one, and ours.
const VERSION: &str = concat!("v0.60.6+plimsoll.", env!("CARGO_PKG_VERSION"));

/// `only`: the containers of one runtime. `hide_root`: the root cgroup has no figures.
pub fn metrics_page(
    observer: &Observer,
    exporter: &Exporter,
    dialect: Dialect,
    only: Option<Namespace>,
    hide_root: bool,
) -> Gathered {
    let containers = shown(observer, dialect, only, hide_root);
    let info = observer.machine.info();
    let timed = dialect == Dialect::Cadvisor;
    let topology = timed && observer.groups.has(Group::CpuTopology);
    let (version, machine) = machine_families(&info, &version(observer, dialect), timed, topology);
    let containers = exporter.containers(dialect, &containers);
    let mut page = Gathered::from(version);
    page.containers(containers, SCRAPE_ERROR, scrape_error())
        .families(machine);
    page
}

/// The kubelet leaves docker and program empty.
pub fn version(observer: &Observer, dialect: Dialect) -> Version {
    let fixed = observer.machine.fixed();
    Version {
        kernel: fixed.kernel_version.clone(),
        os: fixed.os_version.clone(),
        docker: String::new(),
        program: match dialect {
            Dialect::Cadvisor => VERSION.to_owned(),
            Dialect::Kubelet => String::new(),
        },
        revision: String::new(),
    }
}

fn shown(
    observer: &Observer,
    dialect: Dialect,
    only: Option<Namespace>,
    hide_root: bool,
) -> Vec<Arc<Container>> {
    let mut containers = match only {
        Some(namespace) => observer.store.of_namespace(namespace),
        None => observer.store.all(),
    };
    if hide_root {
        containers.retain(|c| c.path().as_ref() != "/");
    }
    if dialect == Dialect::Kubelet {
        containers.retain(|c| kubelet_shows(c.path(), &c.lock()));
    }
    containers
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
