//! The APIServices of what is served here. Clients learn from them which groups there are, and tools list them.

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;

use super::announce::note_own;
use super::{API_SERVICES, GROUP};
use crate::kinds;
use crate::server::Server;
use crate::store::{Expect, Stored};
use plimsoll_golang::time::show_seconds;

/// On the APIServices that are made here: `onstart` for those that are put right when the server starts, `true` for
/// those that are kept as they should be.
const MANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";
const CUSTOM_PRIORITIES: (i32, i32) = (1000, 100);

/// Where a group and version served here stands among the others: the priorities of its group and of its version.
pub fn priorities(group: &str, version: &str) -> (i32, i32) {
    let of_group = match group {
        // Its own group has no APIService, and comes first.
        GROUP => i32::MAX,
        "" => 18000,
        "apps" => 17800,
        "events.k8s.io" => 17750,
        "authentication.k8s.io" => 17700,
        "authorization.k8s.io" => 17600,
        "autoscaling" => 17500,
        "batch" => 17400,
        "certificates.k8s.io" => 17300,
        "networking.k8s.io" => 17200,
        "policy" => 17100,
        "rbac.authorization.k8s.io" => 17000,
        "storage.k8s.io" => 16800,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" => 16700,
        "scheduling.k8s.io" => 16600,
        "coordination.k8s.io" => 16500,
        "node.k8s.io" => 16300,
        "discovery.k8s.io" | "resource.k8s.io" => 16200,
        "flowcontrol.apiserver.k8s.io" => 16100,
        _ => return CUSTOM_PRIORITIES,
    };
    let of_version = match (group, version) {
        ("", "v1") => 1,
        ("autoscaling", "v2") => 30,
        ("flowcontrol.apiserver.k8s.io" | "resource.k8s.io", "v1") => 21,
        _ => 15,
    };
    (of_group, of_version)
}

/// What became of an APIService that is to be there.
enum Registered {
    /// It is there, at this revision.
    AsItIs(u64),
    Begun,
    Raced,
}

impl Server {
    /// When the server starts.
    pub(crate) async fn register_builtin_services(&self) {
        for (group, version) in self.served_versions(false) {
            self.register(&group, &version, "onstart");
        }
        self.store().flush().await;
    }

    /// Whenever definitions or APIServices have changed. `settled`: those that are as they should be, by name, with
    /// their revisions; nobody has to look at them again.
    pub(super) async fn register_custom_services(&self, settled: &mut FxHashMap<String, u64>) {
        let wanted = self.served_versions(true);
        let mut begun = false;
        let mut names = FxHashSet::default();
        for (group, version) in &wanted {
            let name = format!("{version}.{group}");
            let current = self.store().get(API_SERVICES, &name);
            let known = settled.get(&name).copied();
            if known.is_none() || current.map(|current| current.revision) != known {
                settled.remove(&name);
                match self.register(group, version, "true") {
                    Registered::AsItIs(revision) => drop(settled.insert(name.clone(), revision)),
                    Registered::Begun => begun = true,
                    Registered::Raced => {}
                }
            }
            names.insert(name);
        }
        settled.retain(|name, _| names.contains(name));
        let others = |stored: &Stored| !names.contains(stored.name());
        let page = self
            .store()
            .list(API_SERVICES, "", None, None, usize::MAX, others);
        for current in page.map(|page| page.items).unwrap_or_default() {
            if current.value()["metadata"]["labels"][MANAGED] == "true" {
                // Whoever changed it meanwhile comes by here in their turn.
                let expect = Expect::Revision(current.revision);
                begun |= self
                    .store()
                    .begin_delete(API_SERVICES, &current.key, expect)
                    .is_ok();
            }
        }
        if begun {
            self.store().flush().await;
        }
    }

    fn served_versions(&self, custom: bool) -> Vec<(String, String)> {
        let mut versions = Vec::new();
        let mut seen = FxHashSet::default();
        for resource in self.catalogue().resources() {
            let version = (resource.group.clone(), resource.version.clone());
            if resource.is_custom() == custom
                && resource.group != GROUP
                && seen.insert(version.clone())
            {
                versions.push(version);
            }
        }
        versions
    }

    /// Sees to it that there is one. What a user has made in its place is left alone.
    fn register(&self, group: &str, version: &str, managed: &str) -> Registered {
        let name = format!("{version}.{group}");
        let (group_priority, version_priority) = priorities(group, version);
        let mut spec = json!({
            "version": version,
            "groupPriorityMinimum": group_priority,
            "versionPriority": version_priority,
        });
        if !group.is_empty() {
            spec["group"] = group.into();
        }
        let now = Timestamp::now();
        let current = self.store().get(API_SERVICES, &name);
        let (expect, old, mut object) = match &current {
            None => {
                let mut object = json!({
                    "metadata": {
                        "name": name,
                        "uid": uuid::Uuid::new_v4().to_string(),
                        "creationTimestamp": show_seconds(now),
                        "labels": {MANAGED: managed},
                    },
                    "spec": spec,
                });
                kinds::of(GROUP, "v1", "APIService").prepare_create(&mut object);
                (Expect::Absent, None, object)
            }
            Some(current) => {
                let old = current.value();
                if old["metadata"]["labels"][MANAGED] != managed || old["spec"] == spec {
                    return Registered::AsItIs(current.revision);
                }
                let mut object = old.clone();
                object["spec"] = spec;
                (Expect::Revision(current.revision), Some(old), object)
            }
        };
        if let Some(served) = self.catalogue().find(GROUP, "v1", "apiservices") {
            note_own(served, old, &mut object, "", now);
        }
        let attributes = crate::served::attributes(API_SERVICES, &object);
        let begun = self
            .store()
            .begin_put(API_SERVICES, &name, expect, &mut object, &attributes);
        match begun {
            Ok(_) => Registered::Begun,
            // Whoever was faster saw to it.
            Err(_) => Registered::Raced,
        }
    }
}
