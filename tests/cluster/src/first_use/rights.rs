//! Each right that a role follows objects by, taken away: the role names it.
//!
//! One process for each role and verb lacks it for all kinds at once: every kind has a line of its own to be found.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use super::SLACK;
use super::row::SetUp;
use super::table::Role;
use crate::admin;
use crate::client::Server;
use crate::process::Process;

/// Who follows what: API group and resource.
pub const FOLLOWED: &[(Role, &[(&str, &str)])] = &[
    (
        Role::Agent,
        &[
            ("", "nodes"),
            ("", "pods"),
            ("slo.koordinator.sh", "nodeslos"),
            ("slo.koordinator.sh", "nodemetrics"),
        ],
    ),
    (
        Role::Manager,
        &[
            ("", "nodes"),
            ("", "pods"),
            ("slo.koordinator.sh", "nodeslos"),
            ("slo.koordinator.sh", "nodemetrics"),
            ("topology.node.k8s.io", "noderesourcetopologies"),
        ],
    ),
    (Role::MetricsServer, &[("", "nodes"), ("", "pods")]),
    (
        Role::Scheduler,
        &[
            ("", "nodes"),
            ("", "pods"),
            ("", "namespaces"),
            ("", "services"),
            ("", "persistentvolumes"),
            ("", "persistentvolumeclaims"),
            ("policy", "poddisruptionbudgets"),
            ("storage.k8s.io", "storageclasses"),
            ("storage.k8s.io", "csinodes"),
        ],
    ),
];
pub const VERBS: [&str; 2] = ["list", "watch"];

/// What is named, once it is.
pub fn play(
    role: Role,
    followed: &[(&str, &str)],
    verb: &str,
    program: &Path,
    server: &Server,
) -> Result<()> {
    // Where a kind is not defined there is nothing to watch.
    let defined = |group: &str| verb == "list" || !group.contains('.') || group.ends_with("k8s.io");
    let followed: Vec<_> = followed
        .iter()
        .filter(|(group, resource)| {
            defined(group) && (verb == "list" || *resource != "noderesourcetopologies")
        })
        .collect();
    // Each leads, by a lease of its own.
    let namespace = match verb {
        "list" => "kube-public",
        _ => "kube-node-lease",
    };
    let user = format!("first-use-{role:?}-{verb}").to_lowercase();
    let mut rules = vec![
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["*"]}),
        json!({"apiGroups": [""], "resources": ["configmaps", "events"], "verbs": ["*"]}),
    ];
    if verb == "watch" {
        rules.extend(followed.iter().map(|(group, resource)| {
            json!({"apiGroups": [group], "resources": [resource], "verbs": ["list"]})
        }));
    }
    allow(server, &user, &rules)?;
    let mut set_up = SetUp::acting_as(&user, namespace, server)?;
    let command = set_up.command(role, program, server)?;
    let log = set_up.scratch.path().join("log");
    let process = Process::start("the role", command, &log)?;
    set_up.scratch.process(&process)?;
    for (_, resource) in followed {
        let refused = format!("User \"{user}\" cannot {verb} resource \"{resource}\"");
        let said = poll::until(&format!("it says: {refused}"), SLACK, || {
            let text = fs::read_to_string(&log)?.replace("\\\"", "\"");
            let mut lines = text.lines();
            let line = lines
                .find(|line| line.contains(&refused))
                .map(str::to_owned);
            Ok(line)
        });
        let said = said.with_context(|| {
            format!("its log:\n{}", fs::read_to_string(&log).unwrap_or_default())
        })?;
        ensure!(said.contains("grant it by RBAC"), "without advice: {said}");
    }
    Ok(())
}

/// Gives the user these rights, and waits until the server knows.
fn allow(server: &Server, user: &str, rules: &[Value]) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let metadata = json!({"name": user});
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": metadata, "rules": rules});
    admin::create(server, &format!("{rbac}/clusterroles"), &role)?;
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    admin::create(server, &format!("{rbac}/clusterrolebindings"), &binding)?;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": {"verb": "get", "group": "coordination.k8s.io",
            "resource": "leases", "namespace": "default"}}});
    poll::until(&format!("{user} has its rights"), SLACK, || {
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let (_, answer) = admin::send(server, "POST", path, "application/json", &review)?;
        Ok((answer["status"]["allowed"] == true).then_some(()))
    })
}
