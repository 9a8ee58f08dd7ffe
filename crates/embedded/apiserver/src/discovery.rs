//! What the server says about the resources it has: per group and version, and all at once.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plimsoll_apimachinery::fingerprint::quoted_fingerprint;
use serde_json::{Map, Value, json};

use crate::aggregate::local::priorities;
use crate::resource::{Resource, Subresource};

/// A group and version that another server answers for.
#[derive(Debug, Clone, PartialEq)]
pub struct Remote {
    pub group: String,
    pub version: String,
    /// `groupPriorityMinimum` and `versionPriority` of its APIService.
    pub group_priority: i32,
    pub version_priority: i32,
    /// Its part of aggregated discovery (`APIVersionDiscovery`), where it could be had.
    pub discovery: Option<Value>,
}

/// Everything served, in the order of discovery.
#[derive(Debug, Default)]
pub struct Catalog<'a> {
    groups: Vec<Group<'a>>,
}

#[derive(Debug)]
struct Group<'a> {
    name: &'a str,
    priority: i32,
    versions: Vec<Version<'a>>,
}

#[derive(Debug)]
struct Version<'a> {
    name: &'a str,
    priority: i32,
    resources: Vec<&'a Resource>,
    remote: Option<&'a Remote>,
}

/// A document and its fingerprint, for `ETag`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tagged {
    pub body: Vec<u8>,
    /// With its quotes.
    pub etag: String,
}

impl<'a> Catalog<'a> {
    pub fn new(
        resources: impl IntoIterator<Item = &'a Resource>,
        remotes: impl IntoIterator<Item = &'a Remote>,
    ) -> Self {
        let mut catalog = Self::default();
        for resource in resources {
            let (of_group, of_version) = priorities(&resource.group, &resource.version);
            let group = catalog.group(&resource.group, of_group);
            let version = group.version(&resource.version, of_version);
            version.resources.push(resource);
        }
        for remote in remotes {
            let group = catalog.group(&remote.group, remote.group_priority);
            let version = group.version(&remote.version, remote.version_priority);
            // Whose APIService names another server is asked there, whatever there is here.
            version.priority = remote.version_priority;
            version.remote = Some(remote);
        }
        for group in &mut catalog.groups {
            group.versions.sort_by(|a, b| {
                let by_priority = b.priority.cmp(&a.priority);
                by_priority.then_with(|| compare_versions(b.name, a.name))
            });
        }
        catalog
            .groups
            .sort_by(|a, b| b.priority.cmp(&a.priority).then(a.name.cmp(b.name)));
        catalog
    }

    fn group(&mut self, name: &'a str, priority: i32) -> &mut Group<'a> {
        let at = match self.groups.iter().position(|group| group.name == name) {
            Some(at) => at,
            None => {
                self.groups.push(Group {
                    name,
                    priority,
                    versions: Vec::new(),
                });
                self.groups.len() - 1
            }
        };
        let group = &mut self.groups[at];
        group.priority = group.priority.max(priority);
        group
    }

    fn named_groups(&self) -> impl Iterator<Item = &Group<'a>> {
        self.groups.iter().filter(|group| !group.name.is_empty())
    }

    /// `GET /api`; `address` is where clients reach the server.
    pub fn api_versions(&self, address: &str) -> Value {
        json!({
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
        })
    }

    /// `GET /apis`.
    pub fn group_list(&self) -> Value {
        let groups: Vec<Value> = self.named_groups().map(Group::summary).collect();
        json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
    }

    /// `GET /apis/G`; `None` where there is no such group.
    pub fn group_document(&self, name: &str) -> Option<Value> {
        let group = self.named_groups().find(|group| group.name == name)?;
        let mut document = group.summary();
        document["kind"] = "APIGroup".into();
        document["apiVersion"] = "v1".into();
        Some(document)
    }

    /// `GET /api/v1` (with the empty group) and `GET /apis/G/V`; `None` where there is none, or another server has it.
    pub fn resource_list(&self, group: &str, version: &str) -> Option<Value> {
        let found = self
            .groups
            .iter()
            .find(|one| one.name == group)?
            .versions
            .iter()
            .find(|one| one.name == version && one.remote.is_none())?;
        let resources: Vec<Value> = found
            .resources
            .iter()
            .flat_map(|resource| legacy_entries(resource))
            .collect();
        let mut document = json!({
            "kind": "APIResourceList",
            "groupVersion": group_version(group, version),
            "resources": resources,
        });
        if !group.is_empty() {
            document["apiVersion"] = "v1".into();
        }
        Some(document)
    }

    /// Aggregated discovery of `/apis`, or of `/api` where `core`; `version` of `apidiscovery.k8s.io`.
    pub fn aggregated(&self, core: bool, version: &str) -> Tagged {
        let items: Vec<Value> = self
            .groups
            .iter()
            .filter(|group| group.name.is_empty() == core)
            .map(|group| {
                let metadata = if core {
                    json!({})
                } else {
                    json!({"name": group.name})
                };
                let versions: Vec<Value> = group.versions.iter().map(Version::aggregated).collect();
                json!({"metadata": metadata, "versions": versions})
            })
            .collect();
        let document = json!({
            "kind": "APIGroupDiscoveryList",
            "apiVersion": format!("apidiscovery.k8s.io/{version}"),
            "metadata": {},
            "items": items,
        });
        let body = document.to_string().into_bytes();
        let etag = quoted_fingerprint(&body);
        Tagged { body, etag }
    }
}

impl<'a> Group<'a> {
    fn version(&mut self, name: &'a str, priority: i32) -> &mut Version<'a> {
        let at = match self.versions.iter().position(|one| one.name == name) {
            Some(at) => at,
            None => {
                self.versions.push(Version {
                    name,
                    priority,
                    resources: Vec::new(),
                    remote: None,
                });
                self.versions.len() - 1
            }
        };
        &mut self.versions[at]
    }

    fn summary(&self) -> Value {
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| {
                json!({
                    "groupVersion": group_version(self.name, version.name),
                    "version": version.name,
                })
            })
            .collect();
        json!({
            "name": self.name,
            "preferredVersion": versions.first(),
            "versions": versions,
        })
    }
}

impl Version<'_> {
    fn aggregated(&self) -> Value {
        if let Some(remote) = self.remote {
            let stale = || json!({"version": self.name, "freshness": "Stale"});
            return remote.discovery.clone().unwrap_or_else(stale);
        }
        let resources: Vec<Value> = self
            .resources
            .iter()
            .map(|resource| aggregated_entry(resource))
            .collect();
        json!({"version": self.name, "resources": resources, "freshness": "Current"})
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

fn insert_lists(entry: &mut Map<String, Value>, resource: &Resource) {
    if !resource.short_names.is_empty() {
        entry.insert("shortNames".into(), json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        entry.insert("categories".into(), json!(resource.categories));
    }
}

/// Of a subresource whose kind is of another group and version than the resource: those.
fn foreign(kind: &str) -> Option<(&'static str, &'static str)> {
    match kind {
        "Scale" => Some(("autoscaling", "v1")),
        "Eviction" => Some(("policy", "v1")),
        "TokenRequest" => Some(("authentication.k8s.io", "v1")),
        _ => None,
    }
}

fn legacy_entries(resource: &Resource) -> Vec<Value> {
    let mut entry = Map::new();
    entry.insert("name".into(), json!(resource.plural));
    entry.insert("singularName".into(), json!(resource.singular));
    entry.insert("namespaced".into(), resource.namespaced().into());
    entry.insert("kind".into(), json!(resource.kind));
    entry.insert("verbs".into(), json!(resource.verbs));
    insert_lists(&mut entry, resource);
    if let Some(hash) = storage_version_hash(resource) {
        entry.insert("storageVersionHash".into(), hash.into());
    }
    let mut entries = vec![Value::Object(entry)];
    for Subresource(name, kind, verbs) in &resource.subresources {
        let mut entry = json!({
            "name": format!("{}/{name}", resource.plural),
            "singularName": "",
            "namespaced": resource.namespaced(),
            "kind": kind,
            "verbs": verbs,
        });
        if let Some((group, version)) = foreign(kind) {
            entry["group"] = group.into();
            entry["version"] = version.into();
        }
        entries.push(entry);
    }
    entries
}

fn aggregated_entry(resource: &Resource) -> Value {
    // Built-in kinds are said to be of no group, which reads as that of the resource.
    let of_resource = |kind: &str| {
        if resource.is_custom() {
            json!({"group": resource.group, "version": resource.version, "kind": kind})
        } else {
            json!({"group": "", "version": "", "kind": kind})
        }
    };
    let mut entry = Map::new();
    entry.insert("resource".into(), json!(resource.plural));
    entry.insert("responseKind".into(), of_resource(&resource.kind));
    entry.insert(
        "scope".into(),
        if resource.namespaced() {
            "Namespaced"
        } else {
            "Cluster"
        }
        .into(),
    );
    entry.insert("singularResource".into(), json!(resource.singular));
    entry.insert("verbs".into(), json!(resource.verbs));
    insert_lists(&mut entry, resource);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|Subresource(name, kind, verbs)| {
            let kind = match foreign(kind) {
                Some((group, version)) => json!({"group": group, "version": version, "kind": kind}),
                None => of_resource(kind),
            };
            json!({"subresource": name, "responseKind": kind, "verbs": verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry.insert("subresources".into(), subresources.into());
    }
    entry.into()
}

/// A fingerprint of the group, version and kind in which objects are stored; none for what is not stored.
fn storage_version_hash(resource: &Resource) -> Option<String> {
    if !resource.has_verb("watch") {
        return None;
    }
    let (group, version) = match &resource.storage_version {
        Some(version) => (resource.group.as_str(), version.as_str()),
        None => stored_as(&resource.group, &resource.version, &resource.kind),
    };
    let text = format!("{group}/{version}/{}", resource.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    Some(STANDARD.encode(&digest.as_ref()[..8]))
}

/// Built-in kinds that are kept in another group or version than they are served in.
fn stored_as<'a>(group: &'a str, version: &'a str, kind: &str) -> (&'a str, &'a str) {
    match (group, kind) {
        ("events.k8s.io", "Event") => ("", "v1"),
        ("autoscaling", "HorizontalPodAutoscaler") => (group, "v2"),
        (
            "admissionregistration.k8s.io",
            "MutatingAdmissionPolicy" | "MutatingAdmissionPolicyBinding",
        ) => (group, "v1beta1"),
        ("apiextensions.k8s.io", _) => (group, "v1beta1"),
        _ => (group, version),
    }
}

/// The order of versions: stable ones over betas over alphas, higher numbers over lower, then anything else.
pub fn compare_versions(a: &str, b: &str) -> std::cmp::Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => std::cmp::Ordering::Greater,
        (None, Some(_)) => std::cmp::Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// `v2beta3`: stability, major, minor.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit());
    let (major, rest) = rest.split_at(digits.unwrap_or(rest.len()));
    if major.starts_with('0') {
        return None;
    }
    let major = major.parse().ok()?;
    let (stability, minor) = match rest {
        "" => return Some((2, major, 0)),
        rest => match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (0, minor),
            _ => return None,
        },
    };
    if minor.starts_with('0') {
        return None;
    }
    Some((stability, major, minor.parse().ok()?))
}

#[cfg(test)]
mod tests;
