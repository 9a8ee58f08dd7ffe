//! Role, fault, what is said, how it ends, what probes see.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Agent,
    Manager,
    MetricsServer,
    Scheduler,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    NoKubeconfig,
    EmptyKubeconfig,
    /// The kubeconfig names a context that it does not have.
    NoContext,
    /// Nobody listens at the API server's address.
    Refused,
    /// Somebody listens there and never answers.
    Silent,
    /// A token that the API server does not know.
    Unauthorized,
    /// A user without any rights.
    Forbidden,
    /// Of the lease.
    NoNamespace,
    /// No node has the name that was given.
    NoNode,
    /// The manager's kinds are not defined.
    NoDefinitions,
    PortTaken,
    /// No container runtime at its socket.
    NoRuntime,
    /// The folder for what is remembered cannot be used.
    NoFolder,
    /// No kubelet at its port.
    NoKubelet,
}

/// A path for probes, and what it answers.
pub type Probe = (&'static str, u16, &'static str);

#[derive(Debug)]
pub struct Row {
    pub role: Role,
    pub fault: Fault,
    /// All of these are in one line of its log. `ADDRESS` is the API server's.
    pub says: &'static [&'static str],
    /// `None`: it goes on.
    pub exit: Option<i32>,
    pub probe: Option<Probe>,
    /// Is in no line.
    pub never: &'static str,
}

const fn row(role: Role, fault: Fault, says: &'static [&'static str]) -> Row {
    Row {
        role,
        fault,
        says,
        exit: None,
        probe: None,
        never: "Status {",
    }
}

const fn ends(role: Role, fault: Fault, says: &'static [&'static str]) -> Row {
    Row {
        exit: Some(1),
        ..row(role, fault, says)
    }
}

impl Row {
    const fn probed(self, path: &'static str, status: u16, says: &'static str) -> Self {
        Self {
            probe: Some((path, status, says)),
            ..self
        }
    }

    const fn never(self, never: &'static str) -> Self {
        Self { never, ..self }
    }
}

use Fault::*;
use Role::*;

const MISSING: &[&str] = &["there is no kubeconfig at", "--kubeconfig"];
const EMPTY: &[&str] = &["is empty or has no contexts", "--kubeconfig"];
const CONTEXT: &[&str] = &["names no current context; choose one of: c"];
const REFUSES: &[&str] = &["ADDRESS refuses connections; is it running"];
const UNKNOWN: &[&str] = &[
    "ADDRESS does not accept the credentials in",
    "(401 Unauthorized)",
    "give a new one",
];
const FORBIDDEN: &[&str] = &[r#"User \"alice\" cannot "#, "grant it by RBAC"];
const NAMESPACE: &[&str] = &["not found; create the namespace, or name another one"];
const PORT: &[&str] = &["listen on 127.0.0.1:"];

pub const TABLE: &[Row] = &[
    ends(Agent, NoKubeconfig, MISSING),
    ends(Manager, NoKubeconfig, MISSING),
    ends(MetricsServer, NoKubeconfig, MISSING),
    ends(Scheduler, NoKubeconfig, MISSING),
    ends(Agent, EmptyKubeconfig, EMPTY),
    ends(Manager, EmptyKubeconfig, EMPTY),
    ends(MetricsServer, EmptyKubeconfig, EMPTY),
    ends(Scheduler, EmptyKubeconfig, EMPTY),
    ends(Agent, NoContext, CONTEXT),
    ends(Manager, NoContext, CONTEXT),
    ends(MetricsServer, NoContext, CONTEXT),
    ends(Scheduler, NoContext, CONTEXT),
    row(Agent, Refused, REFUSES)
        .probed("/readyz?verbose", 200, "reporting: no")
        .never("RBAC"),
    row(Manager, Refused, REFUSES)
        .probed("/readyz", 500, "[-]leaderElection failed")
        .never("RBAC"),
    ends(MetricsServer, Refused, REFUSES).never("RBAC"),
    row(Scheduler, Refused, REFUSES)
        .probed("/readyz", 500, "[-]leaderElection failed")
        .never("RBAC"),
    row(Agent, Silent, &["no answer yet"]).probed("/readyz?verbose", 200, "reporting: no"),
    row(
        Manager,
        Silent,
        &["no answer yet", "is the API server running"],
    )
    .never("RBAC"),
    row(
        MetricsServer,
        Silent,
        &["no answer yet", "extension-apiserver-authentication"],
    )
    .never("RBAC"),
    row(
        Scheduler,
        Silent,
        &[
            "extension-apiserver-authentication",
            "does not answer in time",
        ],
    )
    .probed("/healthz", 200, "ok")
    .never("RBAC"),
    row(Agent, Unauthorized, UNKNOWN).probed("/readyz?verbose", 200, "reporting: no"),
    row(Manager, Unauthorized, UNKNOWN)
        .probed("/readyz", 500, "[-]leaderElection failed")
        .never("RBAC"),
    ends(MetricsServer, Unauthorized, UNKNOWN).never("RBAC"),
    row(Scheduler, Unauthorized, UNKNOWN)
        .probed("/readyz", 500, "[-]leaderElection failed")
        .never("RBAC"),
    row(Agent, Forbidden, FORBIDDEN).probed("/readyz?verbose", 200, "reporting: no"),
    row(Manager, Forbidden, FORBIDDEN).probed("/readyz", 500, "[-]leaderElection failed"),
    ends(
        MetricsServer,
        Forbidden,
        &[
            "extension-apiserver-authentication",
            "grant it by RBAC",
            "bind the role extension-apiserver-authentication-reader",
        ],
    ),
    row(Scheduler, Forbidden, FORBIDDEN).probed("/readyz", 500, "[-]leaderElection failed"),
    row(Manager, NoNamespace, NAMESPACE).probed("/readyz", 500, "[-]leaderElection failed"),
    row(Scheduler, NoNamespace, NAMESPACE).probed("/readyz", 500, "[-]leaderElection failed"),
    row(
        Agent,
        NoNode,
        &["the cluster has no node no-such-node", "--node-name"],
    )
    .probed("/readyz?verbose", 200, "reporting: no"),
    row(Agent, NoDefinitions, &["deploy/manager/crds.yaml"]),
    row(
        Manager,
        NoDefinitions,
        &["nodemetrics", "is its CustomResourceDefinition installed?"],
    )
    .probed("/readyz", 500, "[-]informer-sync failed"),
    ends(Agent, PortTaken, PORT),
    ends(Manager, PortTaken, PORT),
    ends(MetricsServer, PortTaken, PORT),
    ends(Scheduler, PortTaken, PORT),
    row(
        Agent,
        NoRuntime,
        &[
            "runtime does not answer",
            "is it running, and is this its socket?",
        ],
    ),
    ends(
        Agent,
        NoFolder,
        &["cannot use the data directory", "--data-dir"],
    ),
    row(
        Agent,
        NoKubelet,
        &[
            "cannot list pods from the kubelet",
            "the kubelet at https://",
        ],
    ),
];
