//! Whose pod it is: what somebody wrote a manifest of.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Workload {
    pub namespace: Box<str>,
    /// `Deployment`, `StatefulSet` and so on; `Pod` for those that nobody controls.
    pub kind: Box<str>,
    pub name: Box<str>,
}

/// The label of a Deployment's pods that is also the end of their ReplicaSet's name.
const TEMPLATE: &str = "pod-template-hash";
/// Jobs of a CronJob are named after the minute that they were due.
const MINUTES: usize = 8;

impl Workload {
    /// By what the pod says of itself: its controller, or that one's controller where the names tell.
    pub fn of(pod: &ObjectMeta) -> Self {
        let mut owners = pod.owner_references.iter().flatten();
        let controller = owners.find(|owner| owner.controller == Some(true));
        let own = pod.name.as_deref().unwrap_or_default();
        let (kind, name) = match controller {
            None => ("Pod", own),
            Some(owner) => match owner.kind.as_str() {
                "ReplicaSet" => match deployment(pod, &owner.name) {
                    Some(deployment) => ("Deployment", deployment),
                    None => ("ReplicaSet", &*owner.name),
                },
                "Job" => match cron_job(&owner.name) {
                    Some(cron_job) => ("CronJob", cron_job),
                    None => ("Job", &*owner.name),
                },
                // A kubelet's own pods end with the node's name.
                "Node" => {
                    let name = own.strip_suffix(&*owner.name);
                    (
                        "Pod",
                        name.and_then(|name| name.strip_suffix('-')).unwrap_or(own),
                    )
                }
                kind => (kind, &*owner.name),
            },
        };
        Self {
            namespace: pod.namespace.as_deref().unwrap_or_default().into(),
            kind: kind.into(),
            name: name.into(),
        }
    }
}

fn deployment<'a>(pod: &ObjectMeta, replica_set: &'a str) -> Option<&'a str> {
    let hash = pod.labels.as_ref()?.get(TEMPLATE)?;
    replica_set.strip_suffix(hash.as_str())?.strip_suffix('-')
}

fn cron_job(job: &str) -> Option<&str> {
    let (name, due) = job.rsplit_once('-')?;
    let minutes = due.len() == MINUTES && due.bytes().all(|byte| byte.is_ascii_digit());
    minutes.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(name: &str, owner: Option<(&str, &str)>, expected: &str) {
        let owners = owner.map(|(kind, name)| {
            json!([
                {"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "y"},
                {"apiVersion": "v1", "kind": kind, "name": name, "uid": "z", "controller": true},
            ])
        });
        let pod = json!({"name": name, "namespace": "n", "ownerReferences": owners,
            "labels": {TEMPLATE: "5f7c"}});
        let workload = Workload::of(&serde_json::from_value(pod).unwrap());
        assert_eq!(format!("{}/{}", workload.kind, workload.name), expected);
        assert_eq!(&*workload.namespace, "n");
    }

    #[test]
    fn owners_of_owners_by_their_names() {
        check(
            "web-5f7c-x2",
            Some(("ReplicaSet", "web-5f7c")),
            "Deployment/web",
        );
        check("web-x2", Some(("ReplicaSet", "web")), "ReplicaSet/web");
        check("db-0", Some(("StatefulSet", "db")), "StatefulSet/db");
        check("b-29000000-x", Some(("Job", "b-29000000")), "CronJob/b");
        check("b-1-x", Some(("Job", "b-1")), "Job/b-1");
        check("etcd-m1", Some(("Node", "m1")), "Pod/etcd");
        check("alone", None, "Pod/alone");
    }
}
