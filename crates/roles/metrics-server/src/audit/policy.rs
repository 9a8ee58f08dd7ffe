//! What is to be audited, and in how much detail: `audit.k8s.io/v1`, kind `Policy`.

use plimsoll_apimachinery::request::{RequestInfo, ResourcePath};
use plimsoll_serving::auth::UserInfo;
use serde::{Deserialize, Serialize};

/// How much of a request is written down. Of a request that only reads, `Request` says no more than `Metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    None,
    Metadata,
    Request,
    RequestResponse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    RequestReceived,
    ResponseStarted,
    ResponseComplete,
    Panic,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    api_version: String,
    kind: String,
    #[serde(default, rename = "metadata")]
    _metadata: serde_json::Value,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    /// Objects are never shown, so neither is who manages their fields.
    #[serde(default, rename = "omitManagedFields")]
    _omit_managed_fields: bool,
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rule {
    level: Level,
    #[serde(default)]
    users: Vec<String>,
    #[serde(default)]
    user_groups: Vec<String>,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    resources: Vec<GroupResources>,
    #[serde(default)]
    namespaces: Vec<String>,
    #[serde(default, rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    #[serde(default)]
    omit_stages: Vec<Stage>,
    #[serde(default, rename = "omitManagedFields")]
    _omit_managed_fields: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct GroupResources {
    #[serde(default)]
    group: String,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    resource_names: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    #[error("the audit policy makes no sense: {0}")]
    Yaml(String),
    #[error("the audit policy is {0}, not audit.k8s.io/v1 Policy")]
    Kind(String),
    #[error("loaded illegal policy with 0 rules")]
    NoRules,
}

/// What a policy says about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict<'a> {
    pub level: Level,
    omitted: [&'a [Stage]; 2],
}

impl Verdict<'_> {
    pub fn wants(&self, stage: Stage) -> bool {
        self.level != Level::None && !self.omitted.iter().any(|stages| stages.contains(&stage))
    }
}

impl Policy {
    pub fn parse(text: &str) -> Result<Self, PolicyError> {
        let policy: Self = serde_saphyr::from_str(text)
            .map_err(|error: serde_saphyr::Error| PolicyError::Yaml(error.to_string()))?;
        if (policy.api_version.as_str(), policy.kind.as_str()) != ("audit.k8s.io/v1", "Policy") {
            let kind = format!("{} {}", policy.api_version, policy.kind);
            return Err(PolicyError::Kind(kind));
        }
        match policy.rules.is_empty() {
            true => Err(PolicyError::NoRules),
            false => Ok(policy),
        }
    }

    /// By the first rule that matches. `user` is `None` for those whom nobody knows.
    pub fn verdict(&self, info: &RequestInfo, user: Option<&UserInfo>) -> Verdict<'_> {
        let found = self.rules.iter().find(|rule| rule.matches(info, user));
        let (level, stages): (Level, &[Stage]) = match found {
            Some(rule) => (rule.level, &rule.omit_stages),
            None => (Level::None, &[]),
        };
        Verdict {
            level,
            omitted: [&self.omit_stages, stages],
        }
    }
}

impl Rule {
    fn matches(&self, info: &RequestInfo, user: Option<&UserInfo>) -> bool {
        let has = |list: &[String], one: &str| list.iter().any(|known| known == one);
        if let Some(user) = user {
            let is_one = self.users.is_empty() || has(&self.users, &user.name);
            let in_one = self.user_groups.is_empty()
                || user
                    .groups
                    .iter()
                    .any(|group| has(&self.user_groups, group));
            if !is_one || !in_one {
                return false;
            }
        }
        if !self.verbs.is_empty() && !has(&self.verbs, info.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            let Some(path) = &info.resource else {
                return false;
            };
            let here = self.namespaces.is_empty() || has(&self.namespaces, &path.namespace);
            let this = self.resources.is_empty() || self.resources.iter().any(|one| one.has(path));
            return here && this;
        }
        if !self.non_resource_urls.is_empty() {
            let matches = |pattern: &String| match pattern.strip_suffix('*') {
                Some(prefix) => info.path.starts_with(prefix),
                None => info.path == *pattern,
            };
            return info.resource.is_none() && self.non_resource_urls.iter().any(matches);
        }
        true
    }
}

impl GroupResources {
    fn has(&self, path: &ResourcePath) -> bool {
        if self.group != path.group {
            return false;
        }
        let named = self.resource_names.is_empty() || self.resource_names.contains(&path.name);
        let matches = |pattern: &String| match (pattern.as_str(), pattern.split_once('/')) {
            ("*", _) => true,
            (_, Some(("*", sub))) => sub == path.subresource,
            (_, Some((resource, "*"))) => resource == path.resource,
            (_, Some((resource, sub))) => resource == path.resource && sub == path.subresource,
            (resource, None) => resource == path.resource && path.subresource.is_empty(),
        };
        self.resources.is_empty() || named && self.resources.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use plimsoll_apimachinery::request::Query;

    use super::*;

    const POLICY: &str = "
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: [probe]
- level: None
  nonResourceURLs: [/healthz*, /version]
- level: Request
  resources: [{group: metrics.k8s.io, resources: [pods], resourceNames: [p]}]
- level: Metadata
  userGroups: [ops]
  verbs: [list]
  namespaces: [shop]
  omitStages: [ResponseComplete]
- level: RequestResponse
  resources: [{group: metrics.k8s.io}]
";

    #[test]
    fn the_first_rule_that_matches() {
        let policy = Policy::parse(POLICY).unwrap();
        let level = |target: &str, name: &str, group: &str| {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let info = RequestInfo::new(&Method::GET, path, &Query::parse(query));
            let user = UserInfo {
                name: name.to_owned(),
                groups: vec![group.to_owned()],
                ..UserInfo::default()
            };
            let verdict = policy.verdict(&info, Some(&user));
            assert!(!verdict.wants(Stage::RequestReceived));
            (verdict.level, verdict.wants(Stage::ResponseComplete))
        };
        let base = "/apis/metrics.k8s.io/v1beta1";
        let shop = format!("{base}/namespaces/shop/pods");
        assert_eq!(level(&shop, "probe", "ops"), (Level::None, false));
        assert_eq!(level("/healthz/ping", "bob", "x"), (Level::None, false));
        assert_eq!(level("/metrics", "bob", "x"), (Level::None, false));
        assert_eq!(
            level(&format!("{shop}/p"), "bob", "x"),
            (Level::Request, true)
        );
        assert_eq!(level(&shop, "bob", "ops"), (Level::Metadata, false));
        assert_eq!(level(&shop, "bob", "x"), (Level::RequestResponse, true));
        assert_eq!(
            level(&format!("{base}/nodes"), "bob", "ops"),
            (Level::RequestResponse, true)
        );
    }

    #[test]
    fn policies_that_are_none() {
        for (text, expected) in [
            (
                "apiVersion: v1\nkind: Policy\nrules: [{level: None}]",
                "not audit.k8s.io/v1 Policy",
            ),
            ("apiVersion: audit.k8s.io/v1\nkind: Policy", "0 rules"),
            (
                "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Loud}]",
                "makes no sense",
            ),
            (
                "apiVersion: audit.k8s.io/v1\nkind: Policy\nrule: []",
                "makes no sense",
            ),
        ] {
            let error = Policy::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
