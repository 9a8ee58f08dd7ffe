//! Programs that are no pods: what a NodeSLO names is looked at like a pod, wherever in the tree its cgroup is.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::memory::{MIB, same_bytes, same_cores};
use super::scene::Look;
use crate::api_server::ApiServer;

pub const NODE: &str = "emulated";
/// The most that a program holds beside what it was told to.
const OVERHEAD: f64 = 4.0 * MIB;
/// Of what all of them use, a program that burns has at least this share, however busy the machine is.
const LEAST_SHARE: f64 = 0.1;

pub struct Application {
    pub name: &'static str,
    /// Of the NodeSLO.
    entry: Value,
    pub cgroup: &'static str,
    /// Whether it uses a CPU; memory they all use, each another amount.
    pub burns: bool,
}

impl Application {
    pub fn series(&self) -> String {
        format!("host_app_name={}", self.name)
    }
}

pub fn applications() -> Vec<Application> {
    let at = |name, base, cgroup, burns| Application {
        name,
        entry: json!({"name": name, "cgroupPath": {"base": base, "parentDir": "apps/", "relativePath": name}}),
        cgroup,
        burns,
    };
    let by_qos = |name, qos: Option<&str>, cgroup| Application {
        name,
        entry: json!({"name": name, "qos": qos}),
        cgroup,
        burns: false,
    };
    vec![
        at("root", "CgroupRoot", "/apps/root", true),
        at("pods", "Kubepods", "/kubepods/apps/pods", false),
        at(
            "burstable",
            "KubepodsBurstable",
            "/kubepods/burstable/apps/burstable",
            false,
        ),
        at(
            "besteffort",
            "KubepodsBesteffort",
            "/kubepods/besteffort/apps/besteffort",
            true,
        ),
        by_qos("ls", Some("LS"), "/host-latency-sensitive/ls"),
        by_qos("be", Some("BE"), "/host-best-effort/be"),
        by_qos("plain", None, "/plain"),
    ]
}

/// What each was told to hold.
pub fn told_bytes(index: usize) -> usize {
    (2 + 2 * index) << 20
}

/// What is remembered of some seconds, against the files' own figures of the same time.
pub fn usage(look: &Look) -> Result<String> {
    let applications = applications();
    let mut all = 0.0;
    for application in &applications {
        all += look.kernel(application.cgroup)?.cores;
    }
    for (index, application) in applications.iter().enumerate() {
        let (name, of) = (application.name, application.series());
        let kernel = look.kernel(application.cgroup)?;
        let cores = look.figure("host_application_cpu_usage", &of, "avg")?;
        same_cores(name, cores, kernel.cores)?;
        ensure!(
            !application.burns || kernel.cores > all * LEAST_SHARE,
            "{name} used {} of {all} cores",
            kernel.cores
        );
        let bytes = look.figure("host_application_memory_usage", &of, "last")?;
        same_bytes(name, bytes, kernel.bytes)?;
        let told = told_bytes(index) as f64;
        ensure!(
            (told..told + OVERHEAD).contains(&kernel.bytes),
            "{name} holds {} bytes instead of {told}",
            kernel.bytes
        );
    }
    Ok(format!("{} applications", applications.len()))
}

/// An API server that knows of this node's policy, and of nothing else.
pub fn serve_policy(applications: &[Application]) -> Result<ApiServer> {
    let entries: Vec<&Value> = applications.iter().map(|one| &one.entry).collect();
    let server = ApiServer::start()?;
    let object = json!({"metadata": {"name": NODE}, "spec": {"hostApplications": entries}});
    server.put("nodeslos", object);
    Ok(server)
}
