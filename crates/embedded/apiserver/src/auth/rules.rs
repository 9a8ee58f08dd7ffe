//! The rules of roles: what one allows, what another covers, how refusals show them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use plimsoll_golang::strconv::quote;

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    pub verbs: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(rename = "nonResourceURLs", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<String>,
}

/// What somebody wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Action<'a> {
    pub verb: &'a str,
    pub on: Target<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    Resource {
        group: &'a str,
        resource: &'a str,
        subresource: &'a str,
        /// Empty: the whole cluster.
        namespace: &'a str,
        name: &'a str,
    },
    Path(&'a str),
}

impl Rule {
    /// The rules of a Role or ClusterRole.
    pub fn all_of(role: &Value) -> Vec<Self> {
        let rules = role["rules"].as_array().into_iter().flatten();
        rules
            .filter_map(|rule| Self::deserialize(rule).ok())
            .collect()
    }

    /// What it takes to write it down, about.
    pub fn size(&self) -> usize {
        const EACH: usize = 3;
        let lists = [
            &self.verbs,
            &self.api_groups,
            &self.resources,
            &self.resource_names,
            &self.non_resource_urls,
        ];
        let texts = lists.into_iter().flatten();
        texts.map(|text| text.len() + EACH).sum()
    }

    pub fn allows(&self, action: Action<'_>) -> bool {
        let verb = any(&self.verbs, |verb| verb == "*" || verb == action.verb);
        verb && match action.on {
            Target::Path(path) => any(&self.non_resource_urls, |url| url_covers(url, path)),
            Target::Resource {
                group,
                resource,
                subresource,
                name,
                ..
            } => {
                any(&self.api_groups, |one| one == "*" || one == group)
                    && any(&self.resources, |one| {
                        resource_matches(one, resource, subresource)
                    })
                    && (self.resource_names.is_empty()
                        || any(&self.resource_names, |one| one == name))
            }
        }
    }
}

fn any(list: &[String], test: impl Fn(&str) -> bool) -> bool {
    list.iter().any(|one| test(one))
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    let Some(of) = rule.strip_suffix(subresource) else {
        return false;
    };
    of.strip_suffix('/')
        .is_some_and(|of| of == "*" || of == resource)
}

/// `/healthz` and everything that starts as a URL ending in `*` does.
fn url_covers(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

/// As refusals show it: `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown: Vec<String> = parts
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| format!("{name}:{}", quoted_list(list)))
            .collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// A list of strings as Go's `%q` writes it: `["a" "b"]`.
pub(super) fn quoted_list(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|one| quote(one)).collect();
    format!("[{}]", quoted.join(" "))
}

/// What covering means, combination by combination.
#[cfg(test)]
impl Rule {
    /// Whether whoever has this rule has `atom` too, a rule with at most one of everything.
    pub fn covers(&self, atom: &Self) -> bool {
        let all = |mine: &[String], theirs: &[String]| {
            mine.iter().any(|one| one == "*") || theirs.iter().all(|one| mine.contains(one))
        };
        let names = self.resource_names.is_empty()
            || (!atom.resource_names.is_empty()
                && atom
                    .resource_names
                    .iter()
                    .all(|one| self.resource_names.contains(one)));
        all(&self.verbs, &atom.verbs)
            && all(&self.api_groups, &atom.api_groups)
            && atom
                .resources
                .iter()
                .all(|one| resource_covered(&self.resources, one))
            && atom
                .non_resource_urls
                .iter()
                .all(|path| any(&self.non_resource_urls, |url| url_covers(url, path)))
            && names
    }

    /// The same permissions as rules with one verb, one group, one resource and at most one name each.
    pub fn atoms(&self) -> Vec<Self> {
        let mut atoms = Vec::new();
        let names: Vec<Vec<String>> = match self.resource_names.as_slice() {
            [] => vec![Vec::new()],
            names => names.iter().map(|name| vec![name.clone()]).collect(),
        };
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    atoms.extend(names.iter().map(|name| Self {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        resource_names: name.clone(),
                        non_resource_urls: Vec::new(),
                    }));
                }
            }
        }
        for url in &self.non_resource_urls {
            atoms.extend(self.verbs.iter().map(|verb| Self {
                verbs: vec![verb.clone()],
                non_resource_urls: vec![url.clone()],
                ..Self::default()
            }));
        }
        atoms
    }
}

#[cfg(test)]
fn resource_covered(mine: &[String], wanted: &str) -> bool {
    let of_all = wanted.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    any(mine, |one| {
        one == "*" || one == wanted || of_all.as_deref() == Some(one)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(value: Value) -> Rule {
        serde_json::from_value(value).unwrap()
    }

    fn asks<'a>(verb: &'a str, group: &'a str, resource: &'a str, name: &'a str) -> Action<'a> {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let on = Target::Resource {
            group,
            resource,
            subresource,
            namespace: "ns",
            name,
        };
        Action { verb, on }
    }

    #[test]
    fn resources() {
        let pods = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}));
        assert!(pods.allows(asks("get", "", "pods", "p")));
        assert!(!pods.allows(asks("get", "", "pods/log", "p")));
        assert!(!pods.allows(asks("list", "", "pods", "")));
        assert!(!pods.allows(asks("get", "apps", "pods", "p")));
        let path = Action {
            verb: "get",
            on: Target::Path("/pods"),
        };
        assert!(!pods.allows(path));

        let scales = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/scale"]}));
        assert!(scales.allows(asks("update", "apps", "deployments/scale", "d")));
        assert!(!scales.allows(asks("update", "apps", "deployments", "d")));
        // Only the whole star is one: neither side of this matches anything of `pods`.
        let odd = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["pods/*"]}));
        assert!(!odd.allows(asks("get", "", "pods/log", "p")));

        // Reviews may ask with the subresource in the resource's name.
        let log = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods/log"]}));
        let whole = Target::Resource {
            group: "",
            resource: "pods/log",
            subresource: "",
            namespace: "",
            name: "",
        };
        let verb = "get";
        assert!(log.allows(Action { verb, on: whole }));

        let named = rule(
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["*"], "resourceNames": ["a"]}),
        );
        assert!(named.allows(asks("get", "", "pods/log", "a")));
        assert!(!named.allows(asks("get", "", "pods", "b")));
        assert!(!named.allows(asks("get", "", "pods", "")));
    }

    #[test]
    fn paths() {
        let urls = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/apis/*"]}));
        let allows = |path| {
            urls.allows(Action {
                verb: "get",
                on: Target::Path(path),
            })
        };
        assert!(allows("/healthz") && allows("/apis/") && allows("/apis/apps/v1"));
        assert!(!allows("/healthz/etcd") && !allows("/apis") && !allows("/"));
    }

    #[test]
    fn atoms_and_cover() {
        let wide = rule(
            json!({"verbs": ["get", "list"], "apiGroups": ["", "apps"], "resources": ["pods/log", "x"], "resourceNames": ["a", "b"]}),
        );
        let atoms = wide.atoms();
        assert_eq!(atoms.len(), 16);
        assert!(atoms.iter().all(|atom| wide.covers(atom)));
        let mine = rule(json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*/log"]}));
        assert!(mine.covers(&atoms[0]) && !mine.covers(&atoms[4]));
        // Having it for one name is not having it for all.
        let unnamed = rule(json!({"verbs": ["get"], "apiGroups": [""], "resources": ["x"]}));
        assert!(!wide.covers(&unnamed) && unnamed.covers(&atoms[4]));
        // Permission for resources says nothing about paths.
        let path = rule(json!({"verbs": ["get"], "nonResourceURLs": ["/a"]}));
        assert!(!mine.covers(&path));
    }

    #[test]
    fn shown() {
        let rule = rule(
            json!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a\"b"]}),
        );
        assert_eq!(
            rule.to_string(),
            r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["a\"b"], Verbs:["get" "list"]}"#
        );
    }
}
